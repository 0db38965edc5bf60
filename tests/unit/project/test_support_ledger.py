"""The comparison that end-to-end tests trust finds each kind of difference."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.ledger import NOTHING, Difference, Ledger, compare, from_lake, from_offset, records

WHOLE = records(1, [5, 6, 9], [10, 11, 12], [b"a", b"", b"c"], [b"x", b"y", b"z"])


def test_the_same_records_in_another_order() -> None:
    assert compare(WHOLE, WHOLE.take([2, 0, 1])) == NOTHING


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (WHOLE.slice(0, 2), Difference(lost=1)),
        (WHOLE.slice(0, 0), Difference(lost=3)),
        (pa.concat_tables([WHOLE, WHOLE.slice(1, 1)]), Difference(doubled=1)),
        (pa.concat_tables([WHOLE, records(0, [5], [10], [b"a"], [b"x"])]), Difference(extra=1)),
        (pa.concat_tables([WHOLE.slice(1), records(1, [5], [10], [b"a"], [b"!"])]), Difference(altered=1)),
        (pa.concat_tables([WHOLE.slice(1), records(1, [5], [99], [b"a"], [b"x"])]), Difference(altered=1)),
    ],
    ids=["lost", "all-lost", "doubled", "extra", "value", "timestamp"],
)
def test_each_difference_is_counted(found: pa.Table, difference: Difference) -> None:
    assert compare(WHOLE, found) == difference


def test_no_value_differs_from_an_empty_one() -> None:
    absent = WHOLE.set_column(4, "value", pa.array([None, b"y", b"z"], pa.binary()))
    empty = WHOLE.set_column(4, "value", pa.array([b"", b"y", b"z"], pa.binary()))
    assert compare(absent, empty) == Difference(altered=1)
    assert compare(absent, absent) == NOTHING


def test_only_what_was_committed_is_expected() -> None:
    ledger = Ledger(committed=[WHOLE], aborted=[records(1, [7], [10], [b""], [b""])])
    assert ledger.table() == WHOLE
    assert ledger.aborted_rows() == 1
    assert Ledger().table().num_rows == 0


def test_what_lies_below_a_start_is_left_out() -> None:
    assert from_offset(WHOLE, {1: 6}) == WHOLE.slice(1)
    assert from_offset(WHOLE, {0: 100}) == WHOLE


def test_rows_of_a_table_are_records() -> None:
    lake = pa.table(
        {
            "_kafka_value": pa.array([b"x", None], pa.large_binary()),
            "_kafka_key": pa.array([None, b"k"], pa.large_binary()),
            "_kafka_partition": pa.array([1, 1], pa.int32()),
            "_kafka_offset": pa.array([5, 6], pa.int64()),
            "_kafka_timestamp": pa.array([1_700_000_000_123_000, 0], pa.timestamp("us", "UTC")),
        }
    )
    found = from_lake(lake)
    assert found["timestamp_ms"].to_pylist() == [1_700_000_000_123, 0]
    assert found["key"].to_pylist() == [None, b"k"]
    assert found["value"].to_pylist() == [b"x", None]
