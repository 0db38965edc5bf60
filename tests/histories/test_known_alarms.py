"""Histories whose tables were right while `tierberg status` or `tierberg verify` said that they were not."""

from __future__ import annotations

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


@pytest.mark.parametrize("retention", ["follow-kafka", "keep"])
def test_rows_of_a_withdrawn_copy_whose_records_were_deleted_are_no_lost_index(retention: str) -> None:
    # The reply of a copy is lost after its rows are in the table; Kafka withdraws it, and its records are deleted
    # before it is copied again: the rows stay, and no index will ever cover them.
    error, done, trace = replay(Setup(True, retention, epochs_recorded=3), WITHDRAWN_AND_DELETED)
    assert not error, trace
    assert len(done) == len(WITHDRAWN_AND_DELETED)
