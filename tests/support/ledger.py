"""What producers were told, what consumers got, what a table holds: the same five columns, compared at once.

`partition` int32, `offset` int64, `timestamp_ms` int64, `key` and `value` binary. Nothing here touches records one by
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Counts of (partition, offset): missing, not expected, there more than once, with another content."""

    lost: int = 0
    extra: int = 0
    doubled: int = 0
    altered: int = 0


NOTHING = Difference()


@dataclass(slots=True)
class Ledger:
    """Records acknowledged, with the offsets they were given."""

    committed: list[pa.Table] = field(default_factory=list)
    aborted: list[pa.Table] = field(default_factory=list)

    def table(self) -> pa.Table:
        """What a read_committed consumer must get."""
        return pa.concat_tables([SCHEMA.empty_table(), *self.committed])

    def aborted_rows(self) -> int:
        return sum(part.num_rows for part in self.aborted)


def records(
    partition: int, offsets: Sequence[int], timestamps_ms: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
) -> pa.Table:
    """Columns of one partition as a table."""
    columns = [[partition] * len(offsets), offsets, timestamps_ms, keys, values]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def from_lake(rows: pa.Table) -> pa.Table:
    """Rows of an Iceberg table of `raw` values in the columns of this module."""
    columns = [
        rows["_kafka_partition"],
        rows["_kafka_offset"],
        pc.cast(pc.cast(rows["_kafka_timestamp"], pa.timestamp("ms", "UTC")), pa.int64()),
        rows["_kafka_key"],
        rows["_kafka_value"],
    ]
    casted = [pc.cast(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(casted, schema=SCHEMA)


def from_offset(table: pa.Table, starts: dict[int, int]) -> pa.Table:
    """The records of each partition from its start on; partitions without one stay whole."""
    kept = pa.concat_tables([SCHEMA.empty_table(), table])
    for partition, start in starts.items():
        below = pc.and_(pc.equal(kept["partition"], partition), pc.less(kept["offset"], start))
        kept = kept.filter(pc.invert(below))
    return kept


def compare(expected: pa.Table, found: pa.Table) -> Difference:
    """How `found` differs from `expected`."""
    with duckdb.connect() as database:
        database.register("expected", expected)
        database.register("found", found)

        def count(query: str) -> int:
            row = database.execute(query).fetchone()
            assert row is not None
            return int(row[0])

        return Difference(
            lost=count('SELECT count(*) FROM expected ANTI JOIN found USING (partition, "offset")'),
            extra=count('SELECT count(*) FROM found ANTI JOIN expected USING (partition, "offset")'),
            doubled=count('SELECT count(*) - count(DISTINCT (partition, "offset")) FROM found'),
            altered=count(
                'SELECT count(*) FROM expected JOIN found USING (partition, "offset") '
                "WHERE (expected.timestamp_ms, expected.key, expected.value) "
                "IS DISTINCT FROM (found.timestamp_ms, found.key, found.value)"
            ),
        )
