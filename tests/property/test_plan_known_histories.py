"""Histories the random search once stumbled over, as steps of it: each showed a mistake in the plan or in the model."""

from __future__ import annotations

import pytest

from tests.property.plan_world import SNAPSHOTS_KEPT
from tests.property.test_plan_histories import Histories
from tests.worlds.plan_support import KEEP


class Archive(Histories):
    """Rows never leave by retention, and elections may be unclean."""

    clean = False
    policy = KEEP


def begun(*, narrow: bool) -> Archive:
    state = Archive()
    state.begin(narrow=narrow)
    return state


@pytest.mark.parametrize("narrow", [True, False])
def test_a_page_that_missed_the_marker_s_segment_does_not_lose_the_transaction(narrow: bool) -> None:
    """Between two pages of a listing come a segment with the marker, for the first, and one above, for the second."""
    state = begun(narrow=narrow)
    state.flow(kinds=["transaction"], pid=1, ends=True, keep_up=1)
    state.copy(fault="", verbatim=False, peek=False)
    state.list_one_page(up_to=2)
    state.roll(0)
    state.flow(kinds=["plain"], pid=1, ends=True, keep_up=1)
    while state.kafka.due():
        state.copy(fault="", verbatim=False, peek=False)
    state.finish_slow_publish()
    state.nothing_is_wrong()
    state.settle(chance=0)
    assert 0 in state.world.head.rows


def test_a_late_plan_that_names_two_reclaimed_files_is_refused() -> None:
    """A publisher sleeps on an old head while what it had listed is published, deleted, merged and reclaimed."""
    state = begun(narrow=False)
    for _ in range(2):
        state.flow(kinds=["plain"], pid=1, ends=True, keep_up=1)
        state.copy(fault="", verbatim=False, peek=False)
    state.list_one_page(up_to=30)
    state.publish(fault="")
    state.kafka.retain(2)
    state.kafka.clean_up()
    state.publish(fault="")
    state.world.merge("s1.data", "s2.data", "")
    for _ in range(SNAPSHOTS_KEPT):
        state.world.swap(state.world.touched())
    state.reclaim(fault="")
    assert not state.kafka.remote
    state.finish_slow_publish()
    state.nothing_is_wrong()
    state.settle(chance=0)


def test_a_rewind_does_not_bring_back_a_file_that_is_being_reclaimed() -> None:
    """The reclaimer dies between the data file and the tombstone; then a transaction's end is decided once more."""
    state = begun(narrow=False)
    state.end_twice(pid=1, commit=False, broker=0, fault="")
    state.end_twice(pid=1, commit=False, broker=2, fault="crash after listing")
    state.elect(broker=1)
    state.kafka.retain(2)
    state.kafka.delete("s3")
    state.publish(fault="")
    assert state.world.head.rows == {3: 1}
    state.reclaim(fault="crash in between")
    assert "s3" in state.kafka.remote
    assert "s3.data" not in state.world.objects
    state.settle(chance=0)
    state.nothing_is_wrong()
    assert state.world.head.rows[3] == 1


def unclean(*, commit: bool, fault: str) -> Archive:
    """A transaction ends twice; the leader that its end was tiered from loses to one that had not seen it."""
    state = begun(narrow=False)
    state.flow(kinds=["plain"], pid=1, ends=False, keep_up=0)
    state.copy_in_smaller_parts(broker=1, again="")
    state.end_twice(pid=1, commit=commit, broker=1, fault=fault)
    state.elect(broker=0)
    return state


@pytest.mark.parametrize("fault", ["", "crash after listing"])
def test_a_dead_marker_below_the_log_start_does_not_stop_the_partition(fault: str) -> None:
    state = unclean(commit=False, fault=fault)
    state.write(count=1, rows=True)
    state.roll(broker=0)
    state.delete_records(count=4)
    state.end_twice(pid=1, commit=False, broker=0, fault="")
    state.nothing_is_wrong()
    state.delete_records(count=2)
    state.settle(chance=0)


def test_what_a_dead_leader_saw_committed_says_nothing_of_later_rows() -> None:
    state = unclean(commit=True, fault="crash after listing")
    state.write_in_transaction(count=1, pid=1)
    state.flow(kinds=["plain"], pid=1, ends=True, keep_up=0)
    state.copy_in_smaller_parts(broker=0, again="")
    state.publish(fault="")
    state.nothing_is_wrong()
    state.settle(chance=0)


@pytest.mark.parametrize("narrow", [True, False])
def test_what_was_peeked_below_the_frontier_contradicts_nobody(narrow: bool) -> None:
    """Two leaders saw the same transaction end differently; the older one's segment is below the frontier by now."""
    state = begun(narrow=narrow)
    state.elect(broker=0)
    state.end_twice(pid=1, commit=True, broker=0, fault="")
    state.elect(broker=1)
    state.end_twice(pid=1, commit=False, broker=0, fault="reply lost")
    state.nothing_is_wrong()
    state.settle(chance=0)


def test_c17_rows_of_an_older_epoch_that_wins_back_come_again() -> None:
    """Each leader is elected with the log of its own only; the third has that of the first."""
    state = begun(narrow=False)
    state.elect(broker=1)
    state.write(count=2, rows=True)
    state.roll(broker=1)
    state.replicate(broker=2)
    state.copy(fault="", verbatim=False, peek=False)
    state.publish(fault="")
    state.elect(broker=0)
    state.write(count=3, rows=True)
    state.write(count=3, rows=True)
    state.roll(broker=0)
    state.copy(fault="", verbatim=False, peek=False)
    state.publish(fault="")
    assert state.world.head.rows == dict.fromkeys(range(6), 2)
    state.elect(broker=2)
    state.write(count=3, rows=True)
    state.roll(broker=2)
    state.copy(fault="", verbatim=False, peek=False)
    state.publish(fault="")
    state.nothing_is_wrong()
    assert state.world.head.rows == {0: 1, 1: 1, 2: 3, 3: 3, 4: 3}
    state.settle(chance=0)
