"""The checksum is the same in Python and in DuckDB's SQL, does not depend on order, and sees every change."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierberg.demo.canonical import DUCKDB_CHECKSUM, canonical, checksum_term
from tierberg.demo.events import Headers

BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
RECORD = st.tuples(st.integers(0, 3), st.integers(0, 2**62), st.integers(-(2**40), 2**42), BYTES, BYTES, HEADERS)
Record = tuple[int, int, int, bytes | None, bytes | None, Headers]

SCHEMA = pa.schema(
    [
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("_kafka_timestamp", pa.timestamp("us", "UTC")),
        ("_kafka_key", pa.binary()),
        ("_kafka_headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("_kafka_value", pa.binary()),
    ]
)


def table_of(records: list[Record]) -> pa.Table:
    rows = []
    for partition, offset, timestamp_ms, key, value, headers in records:
        rows.append(
            {
                "_kafka_partition": partition,
                "_kafka_offset": offset,
                "_kafka_timestamp": timestamp_ms * 1000,
                "_kafka_key": key,
                "_kafka_headers": [{"key": name, "value": content} for name, content in headers],
                "_kafka_value": value,
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


def checksum(records: list[Record]) -> int:
    return sum(checksum_term(canonical(*record)) for record in records)


@given(st.lists(RECORD, min_size=1, max_size=8))
def test_duckdb_adds_up_the_same(records: list[Record]) -> None:
    flights = table_of(records)
    with duckdb.connect() as connection:
        connection.register("flights", flights)
        found = connection.sql(f"SELECT {DUCKDB_CHECKSUM} FROM flights").fetchall()[0][0]
    assert int(found) == checksum(records)


@given(st.lists(RECORD, min_size=2, max_size=6), st.randoms())
def test_order_does_not_matter(records: list[Record], random: object) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert checksum(shuffled) == checksum(records)


ORIGINAL: Record = (1, 7, 1000, b"k", b"v", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    "changed",
    [
        (2, 7, 1000, b"k", b"v", ORIGINAL[5]),
        (1, 8, 1000, b"k", b"v", ORIGINAL[5]),
        (1, 7, 1001, b"k", b"v", ORIGINAL[5]),
        (1, 7, 1000, None, b"v", ORIGINAL[5]),
        (1, 7, 1000, b"", b"v", ORIGINAL[5]),
        (1, 7, 1000, b"k", None, ORIGINAL[5]),
        (1, 7, 1000, b"k", b"w", ORIGINAL[5]),
        (1, 7, 1000, b"k", b"v", ()),
        (1, 7, 1000, b"k", b"v", (("b", None), ("a", b"1"))),
        (1, 7, 1000, b"k", b"v", (("a", b"1"), ("b", b""))),
    ],
)
def test_every_field_counts(changed: Record) -> None:
    assert checksum([changed]) != checksum([ORIGINAL])


def test_a_doubled_record_counts() -> None:
    assert checksum([ORIGINAL, ORIGINAL]) != checksum([ORIGINAL])
