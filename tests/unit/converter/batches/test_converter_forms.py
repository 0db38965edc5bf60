"""How single forms of batches are stored and served: sizes, limits, timestamps, verbatim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from converter import limits
from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.types import BatchFlag, Cause, ConvertOptions, Mode, ParsedStep
from tests.oracle.expect import actual_rows, parse, served, table
from tests.oracle.records import GZIP, LZ4, NONE, SNAPPY, ZSTD, Batch, Message, Record, compress, decode_batch, marker
from tests.oracle.strategies import INT64_MAX, INT64_MIN, MICROSECOND_LIMIT, make_segment

TS = 1_700_000_000_123


def one(*records: Record, **fields: object) -> Batch:
    fields.setdefault("last_offset_delta", records[-1].offset_delta)
    return replace(Batch(0, records), **fields)  # type: ignore[arg-type]


def stored(batch: Batch | Message, options: ConvertOptions | None = None) -> tuple[np.void, ParsedStep, bytes]:
    steps = parse(make_segment([batch]), options)
    return table(steps)[0], steps[0], served(steps)[0]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_compressed_batch_is_served_uncompressed(codec: int) -> None:
    batch = one(Record(0, 0, b"k", b"v" * 5000), codec=codec, high_attributes=3, transactional=False)
    row, step, again = stored(batch)
    assert row["flags"] == BatchFlag.ROWS
    assert not step.kept
    assert row["served_size"] == len(again) == len(replace(batch, codec=NONE).encode())
    assert again == replace(batch, codec=NONE).encode()
    assert row["crc"] != row["served_crc"]


@pytest.mark.parametrize("surplus", [0, 1])
def test_the_served_size_stops_at_a_mebibyte(surplus: int) -> None:
    value = b"\0" * (limits.SERVED_BATCH_BYTES_MAX + surplus - len(one(Record(0, 0, None, b"")).encode()) - 4)
    batch = one(Record(0, 0, None, value), codec=ZSTD)
    plain = len(replace(batch, codec=NONE).encode())
    assert plain == limits.SERVED_BATCH_BYTES_MAX + surplus
    row, step, again = stored(batch)
    assert step.rows.num_rows == 1
    if surplus:
        assert BatchFlag(int(row["flags"])) == BatchFlag.ROWS | BatchFlag.KEPT
        assert row["cause"] == Cause.SERVED_SIZE
        assert again == batch.encode()
        assert step.rows.column("_kafka_value").to_pylist() == [value]
    else:
        assert row["flags"] == BatchFlag.ROWS
        assert len(again) == plain


def test_an_uncompressed_batch_may_be_larger() -> None:
    batch = one(Record(0, 0, None, b"x" * (2 * limits.SERVED_BATCH_BYTES_MAX)))
    row, _, again = stored(batch)
    assert row["flags"] == BatchFlag.ROWS
    assert again == batch.encode()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_beyond_the_decompression_limit_is_quarantined(codec: int) -> None:
    batch = one(Record(0, 0, None, b"\0" * 100_000), codec=codec)
    row, step, again = stored(batch, ConvertOptions(decompressed_batch_bytes_max=100_000))
    assert row["cause"] == Cause.DECOMPRESSION_LIMIT
    assert row["flags"] == BatchFlag.KEPT | BatchFlag.QUARANTINED
    assert step.rows.num_rows == 0
    assert again == batch.encode()
    row, step, _ = stored(batch, ConvertOptions(decompressed_batch_bytes_max=100_100))
    assert row["cause"] == Cause.NONE


def test_very_many_tiny_records_count_as_a_bomb() -> None:
    records = tuple(Record(i, 0, None, None) for i in range(1000))
    options = ConvertOptions(decompressed_batch_bytes_max=999 * limits.RECORD_BYTES)
    assert stored(one(*records, codec=ZSTD), options)[0]["cause"] == Cause.DECOMPRESSION_LIMIT
    assert stored(one(*records), options)[0]["cause"] == Cause.NONE


EXACT: dict[str, tuple[int, list[int], dict[str, Any], list[int | None]]] = {
    "LogAppendTime": (TS, [0, 5, -5], {"log_append_time": True}, [TS, TS, TS]),
    "no timestamp": (-1, [0, 0, 0], {}, [None, None, None]),
    "one without": (TS, [0, -TS - 1, 1], {}, [TS, None, TS + 1]),
    "too large for microseconds": (MICROSECOND_LIMIT, [0, 1, 2], {}, [MICROSECOND_LIMIT, None, None]),
    "too small for microseconds": (-MICROSECOND_LIMIT, [0, -1, -2], {}, [-MICROSECOND_LIMIT, None, None]),
    "wrapping around": (INT64_MAX, [0, 1, INT64_MIN], {}, [None, None, None]),
}


@pytest.mark.parametrize("name", EXACT)
def test_timestamps_the_column_cannot_give_back(name: str) -> None:
    base, deltas, fields, seen = EXACT[name]
    batch = one(
        *(Record(i, delta, None, b"") for i, delta in enumerate(deltas)),
        base_timestamp=base,
        max_timestamp=TS,
        **fields,
    )
    row, step, again = stored(batch)
    assert row["flags"] == BatchFlag.ROWS | BatchFlag.EXACT_TIMESTAMPS
    assert row["timestamps_start"] == 0
    assert step.timestamp_deltas.tolist() == deltas
    assert [r["_kafka_timestamp"] for r in actual_rows([step])] == [None if ms is None else ms * 1000 for ms in seen]
    assert again == batch.encode()


def test_ordinary_timestamps_need_no_deltas() -> None:
    batch = one(Record(0, 0, None, b""), Record(1, -999, None, b""), Record(2, 7, None, b""), base_timestamp=TS)
    row, step, _ = stored(batch)
    assert row["flags"] == BatchFlag.ROWS
    assert row["timestamps_start"] == -1
    assert len(step.timestamp_deltas) == 0


def test_a_delete_horizon_is_a_base_timestamp_like_any_other() -> None:
    batch = one(Record(0, -500, b"k", None), delete_horizon=True, base_timestamp=TS, max_timestamp=TS - 500)
    row, step, again = stored(batch)
    assert actual_rows([step])[0]["_kafka_timestamp"] == (TS - 500) * 1000
    assert row["flags"] == BatchFlag.ROWS
    assert again == batch.encode()


NOT_CANONICAL = {
    "record attributes": one(Record(0, 0, b"k", b"v", attributes=4)),
    "padded varint": one(Record(0, 0, b"k", b"v", padding=2)),
    "odd null": one(Record(0, 0, None, b"v", null_length=-2)),
    "header name that is not text": one(Record(0, 0, b"k", b"v", ((b"\xff", b"x"), (b"good", None)))),
}


@pytest.mark.parametrize("name", NOT_CANONICAL)
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_what_does_not_come_back_is_kept_and_still_rows(name: str, codec: int) -> None:
    batch = replace(NOT_CANONICAL[name], codec=codec)
    row, step, again = stored(batch)
    assert row["flags"] == BatchFlag.ROWS | BatchFlag.KEPT
    assert row["cause"] == Cause.NOT_CANONICAL
    assert again == batch.encode()
    assert step.rows.column("_kafka_value").to_pylist() == [b"v"]


def test_a_bad_header_name_is_readable_in_the_table() -> None:
    _, step, _ = stored(NOT_CANONICAL["header name that is not text"])
    assert step.rows.column("_kafka_headers").to_pylist() == [
        [{"key": "\N{REPLACEMENT CHARACTER}", "value": b"x"}, {"key": "good", "value": None}]
    ]


UNDECODABLE = {
    "offsets not ascending": one(Record(1, 0, None, b""), Record(1, 0, None, b"")),
    "offset below the batch": one(Record(-1, 0, None, b""), last_offset_delta=0),
    "offset above the batch": one(Record(3, 0, None, b""), last_offset_delta=2),
    "bytes left in the batch": one(Record(0, 0, None, b""), trailing=b"\0"),
    "bytes left in a record": one(Record(0, 0, None, b"", extra=b"\0")),
    "more records declared": one(Record(0, 0, None, b""), count=2),
    "fewer records declared": one(Record(0, 0, None, b""), Record(1, 0, None, b""), count=1),
    "huge count": one(Record(0, 0, None, b""), count=2**31 - 1),
    "negative count": one(Record(0, 0, None, b""), count=-1),
    "unknown codec": one(Record(0, 0, None, b""), codec=6, payload=b"abc"),
    "not gzip": one(Record(0, 0, None, b""), codec=GZIP, payload=b"abc"),
    "cut zstd": one(Record(0, 0, None, b""), codec=ZSTD, payload=compress(ZSTD, b"abcdefgh" * 9)[:-3]),
    "magic 3": one(Record(0, 0, None, b""), magic=3),
    "length near 2^63": one(Record(0, 0, None, b""), payload=b"\x12\x00\x00\x00" + b"\xff" * 9 + b"\x01"),
}


@pytest.mark.parametrize("name", UNDECODABLE)
def test_what_cannot_be_decoded_is_quarantined(name: str) -> None:
    batch = UNDECODABLE[name]
    row, step, again = stored(batch)
    assert row["cause"] == Cause.UNDECODABLE
    assert row["flags"] == BatchFlag.KEPT | BatchFlag.QUARANTINED
    assert (row["row_count"], step.rows.num_rows) == (0, 0)
    assert again == batch.encode()


def test_magic_0_and_1_among_magic_2() -> None:
    parts: list[Batch | Message] = [
        Message(0, b"k", None, magic=0),
        Message(1, b"k", b"v"),
        one(Record(0, 0, None, b"x")),
        Message(9, b"", b"", crc_error=3),
    ]
    segment = make_segment([parts[0], parts[1], replace(parts[2], base_offset=5), parts[3]])
    steps = parse(segment)
    batches = table(steps)
    assert batches["cause"].tolist() == [Cause.LEGACY_MAGIC, Cause.LEGACY_MAGIC, Cause.NONE, Cause.BAD_CRC]
    assert b"".join(served(steps)) == segment.data
    assert sum(step.rows.num_rows for step in steps) == 1


@pytest.mark.parametrize("cause", [Cause.VERBATIM, Cause.INTERNAL])
def test_verbatim_keeps_everything_and_knows_markers(cause: Cause) -> None:
    mode: Mode = "verbatim"
    segment = make_segment(
        [
            one(Record(0, 0, b"k", b"v")),
            marker(1, 5, 1),
            Message(2, None, None),
            replace(one(Record(0, 0, None, b"")), base_offset=3, crc_error=1),
        ]
    )
    parser = SegmentParser(segment.metadata, ConvertOptions(mode=mode), Transactions(), cause)
    steps = [*parser.feed(segment.data), *parser.finish()]
    batches = table(steps)
    assert b"".join(bytes(piece) for step in steps for piece in step.kept) == segment.data
    assert b"".join(served(steps)) == segment.data
    assert (batches["cause"] == cause).all()
    assert batches["control_type"].tolist() == [-1, 1, -1, -1]
    quarantined = (batches["flags"] & BatchFlag.QUARANTINED != 0).tolist()
    assert quarantined == ([True, False, True, True] if cause == Cause.INTERNAL else [False] * 4)
    assert all(step.rows.num_rows == 0 for step in steps)


def test_steps_end_where_their_records_fill_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the batches came: memory follows what they unfold to."""
    monkeypatch.setattr(limits, "STEP_RECORDS_BYTES", 100_000)
    parts = [replace(one(Record(0, 0, None, b"\0" * 30_000), codec=ZSTD), base_offset=i) for i in range(20)]
    segment = make_segment(list(parts))
    steps = parse(segment)
    assert [len(step.batches) for step in steps] == [4, 4, 4, 4, 4]
    assert [row["_kafka_offset"] for row in actual_rows(steps)] == list(range(20))
    assert [decode_batch(data).records[0].value for data in served(steps)] == [b"\0" * 30_000] * 20
    assert table(steps)["row_start"].tolist() == list(range(20))


def test_a_batch_larger_than_a_step() -> None:
    big = one(Record(0, 0, None, bytes(range(256)) * 40_000))
    segment = make_segment([one(Record(0, 0, None, b"a")), replace(big, base_offset=1), replace(big, base_offset=2)])
    for size in (0, 1 << 20, 65_537):
        steps = parse(segment, slice_bytes=size)
        assert b"".join(served(steps)) == segment.data
