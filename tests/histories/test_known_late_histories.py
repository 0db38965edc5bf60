"""Histories that went wrong, or whose alarms were false, found late by the random search; shrunk."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.histories.kafka_steps import Setup
from tests.histories.running import replay
from tests.histories.world import Step

WITHDRAWN_AND_DELETED: tuple[Step, ...] = (
    ("settle", (), ()),
    ("elect", (0, 1), ()),
    ("write", (0, 0, 1), ()),
    ("roll", (0, 0), ()),
    ("replicate", (0, 0, 0), ()),
    ("replicate", (0, 2, 0), ()),
    ("copy", (0, 0, 2, 0), ()),
    ("publish", (0, 0, 0, 0, 0, 0, 0), ()),
    ("withdraw", (0, 0, 0), ()),
    ("clock", (0, 0), ()),
    ("publish", (0, 0, 0, 0, 0, 0, 1), ()),
    ("delete_records", (0, 1), ()),
    ("settle", (), ()),
)


def assert_right(setup: Setup, steps: Sequence[Step]) -> None:
    """Every step is done, and nothing is wrong after any of them."""
    error, done, trace = replay(setup, steps)
    assert not error, trace
    assert len(done) == len(steps)


@pytest.mark.parametrize("retention", ["follow-kafka", "keep"])
def test_rows_of_a_withdrawn_copy_whose_records_were_deleted_are_no_lost_index(retention: str) -> None:
    # The reply of a copy is lost after its rows are in the table; Kafka withdraws it, and its records are deleted
    # before it is copied again: the rows stay, and no index will ever cover them.
    assert_right(Setup(True, retention, epochs_recorded=3), WITHDRAWN_AND_DELETED)


def test_a_deletion_for_old_epochs_is_judged_by_all_of_the_partition() -> None:
    # A leader without the log deletes the copy of the older epoch and loses; the one that comes back copies it again.
    # From the frontier on, nothing shows that leader: the deletion raised the floor over the living row.
    steps: tuple[Step, ...] = (
        ("elect", (0, 1), ()),
        ("write", (0, 0, 1), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("elect", (0, 0), ()),
        ("write", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("delete", (0, 0, 1, 0), ()),
        ("elect", (0, 1), ()),
        ("settle", (), ()),
    )
    assert_right(Setup(False, "follow-kafka", epochs_recorded=6), steps)


def test_a_deletion_is_judged_by_all_of_the_partition_where_the_record_does_not_know_the_newer_epoch() -> None:
    # As above, but the row of the leader that came back is not published yet when the deletion is told.
    steps: tuple[Step, ...] = (
        ("elect", (0, 1), ()),
        ("write", (0, 0, 1), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("publish", (0, 0, 0, 0, 0, 0, 0), ()),
        ("elect", (0, 0), ()),
        ("write", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("delete", (0, 0, 1, 0), ()),
        ("elect", (0, 1), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("publish", (1, 0, 0, 0, 0, 0, 0), ()),
        ("settle", (), ()),
    )
    assert_right(Setup(False, "follow-kafka", epochs_recorded=6), steps)


def test_what_a_leader_that_lost_deleted_is_a_gap_that_is_real() -> None:
    steps: tuple[Step, ...] = (
        ("transaction", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("end", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("replicate", (0, 1, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("elect", (0, 1), ()),
        ("end", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("retain", (0, 1), ()),
        ("delete", (0, 1, 0, 2), ()),
        ("time", (1,), ()),
        ("elect", (0, 0), ()),
        ("publish", (0, 0, 0, 0, 0, 0, 1), ()),
        ("settle", (), ()),
    )
    error, _, trace = replay(Setup(False, "follow-kafka", epochs_recorded=3), steps)
    assert not error, trace


def test_a_deletion_for_old_epochs_by_a_leader_that_nothing_shows_is_taken_for_retention() -> None:
    # It leads without the log, copies nothing, deletes the newest copy and loses. `tierberg status` says that rows are
    # missing which Kafka has (rows_below_floor), and `tierberg undelete` brings them back.
    steps: tuple[Step, ...] = (
        ("write", (0, 0, 1), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("elect", (0, 0), ()),
        ("write", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("elect", (0, 1), ()),
        ("end", (0, 0, 0), ()),
        ("delete", (0, 1, 0, 0), ()),
        ("elect", (0, 0), ()),
        ("settle", (), ()),
    )
    assert_right(Setup(False, "follow-kafka", epochs_recorded=24), steps)


def test_rolled_back_into_the_midst_of_a_rewind_while_the_older_leader_comes_back() -> None:
    # The commit takes the dead branch's rows out and brings those of the living one. Somebody rolls the table back to
    # the snapshot in between; then the older leader wins again: its rows were published by the state recorded there.
    steps: tuple[Step, ...] = (
        ("elect", (0, 1), ()),
        ("write", (0, 0, 1), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("elect", (0, 0), ()),
        ("write", (0, 0, 1), ()),
        ("publish", (0, 0, 0, 0, 0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("publish", (0, 0, 0, 0, 0, 0, 0), ()),
        ("roll_back", (0,), ()),
        ("elect", (0, 1), ()),
        ("settle", (), ()),
    )
    assert_right(Setup(False, "keep", epochs_recorded=6), steps)


@pytest.mark.parametrize("retention", ["keep", 172800.0])
def test_a_record_says_no_more_than_was_known_when_it_was_written(retention: str | float) -> None:
    # It is shortened, and begins with a hole. What two copies tell together of the living log there, was not known
    # when the rows came that lie in it: read as the record, it would call them alive.
    steps: tuple[Step, ...] = (
        ("restarts", (0, 0, 1), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("elect", (0, 1), ()),
        ("end", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("replicate", (0, 2, 0), ()),
        ("retain", (0, 0), ()),
        ("elect", (0, 2), ()),
        ("write", (0, 0, 0), ()),
        ("replicate", (0, 1, 0), ()),
        ("elect", (0, 1), ()),
        ("restarts", (0, 4, 1), ()),
        ("roll", (0, 0), ()),
        ("copy", (0, 0, 0, 0), ()),
        ("elect", (0, 2), ()),
        ("publish", (0, 0, 0, 0, 0, 0, 0), ()),
        ("settle", (), ()),
    )
    assert_right(Setup(False, retention, partitions=1, epochs_recorded=6), steps)


@pytest.mark.parametrize("retention", ["keep", 172800.0])
def test_what_was_peeked_wrongly_goes_back_though_its_segment_is_deleted(retention: str | float) -> None:
    steps: tuple[Step, ...] = (
        ("transaction", (0, 0, 0), ()),
        ("roll", (0, 0), ()),
        ("replicate", (0, 1, 0), ()),
        ("end", (0, 0, 1), ()),
        ("copy", (0, 0, 0, 1), ()),
        ("publish", (0, 0, 0, 0, 0, 0, 0), ()),
        ("elect", (0, 1), ()),
        ("end", (0, 0, 0), ()),
        ("replicate", (0, 0, 0), ()),
        ("retain", (0, 0), ()),
        ("delete", (0, 0, 0, 0), ()),
        ("elect", (0, 0), ()),
        ("settle", (), ()),
    )
    assert_right(Setup(False, retention, partitions=1), steps)
