"""Segment -> Parquet, kept bytes and index -> record batches, for every form of batch."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from converter.types import BatchFlag, Cause, ConvertOptions, Mode, ValueFormat
from tests.oracle.expect import expected_rows
from tests.oracle.records import NONE, Message, decode_batch, split_batches
from tests.oracle.stored import Copied, copy_segment
from tests.oracle.strategies import Segment, make_segment, segments
from tests.support.examples import examples
from tests.worlds.index_support import data_files

FORMS: list[tuple[ValueFormat, Mode]] = [("raw", "table"), ("string", "table"), ("raw", "verbatim")]


def convert(segment: Segment, value_format: ValueFormat = "raw", mode: Mode = "table") -> Copied:
    options = ConvertOptions(value_format=value_format, mode=mode)
    return copy_segment(segment.data, segment.metadata, segment.transactions, options)


@given(segments(max_batches=12), st.sampled_from(FORMS))
@examples(150)
def test_a_segment_comes_back(segment: Segment, form: tuple[ValueFormat, Mode]) -> None:
    copied = convert(segment, *form)
    flags = [int(flag) for block in copied.blocks() for flag in block.batches["flags"]]
    back = split_batches(copied.fetch_all())
    sent = split_batches(segment.data)
    assert len(back) == len(sent)
    for batch, original, again, flag in zip(segment.batches, sent, back, flags, strict=True):
        if flag & BatchFlag.KEPT or isinstance(batch, Message) or batch.codec == NONE:
            assert again == original
        else:
            assert decode_batch(again).same_but_codec(decode_batch(original))


def uncompressed(segment: Segment) -> Segment:
    """The segment as a producer without compression would have written it."""
    parts = [batch if isinstance(batch, Message) else replace(batch, codec=NONE) for batch in segment.batches]
    return make_segment(list(parts), start_offset=segment.metadata.start_offset)


@given(segments(max_batches=6, canonical=True).map(uncompressed))
@examples(50)
def test_an_uncompressed_segment_is_identical(segment: Segment) -> None:
    copied = convert(segment)
    assert copied.fetch_all() == segment.data
    for block in copied.blocks():
        kept = (block.batches["flags"] & BatchFlag.KEPT) != 0
        assert (block.batches["cause"][kept] == Cause.NO_ROWS).all()


@given(segments(max_batches=12), st.data())
@examples(50)
def test_any_range_of_batches(segment: Segment, data: st.DataObject) -> None:
    copied = convert(segment)
    whole = split_batches(copied.fetch_all())
    for block in copied.blocks():
        last_of_block = block.first_batch + len(block.batches) - 1
        first = data.draw(st.integers(block.first_batch, last_of_block))
        last = data.draw(st.integers(first, last_of_block))
        assert copied.fetch(block, first, last) == b"".join(whole[first : last + 1])


@given(segments(max_batches=8), st.sampled_from(["raw", "string"]))
@examples(50)
def test_the_data_file_has_the_rows(segment: Segment, value_format: ValueFormat) -> None:
    copied = convert(segment, value_format)
    want = expected_rows(segment, value_format)
    if not want:
        assert copied.data == b""
        return
    files = [pq.read_table(io.BytesIO(file)) for file in data_files(copied.directory, copied.data)]
    table = pa.concat_tables(files)
    assert table.column("_kafka_offset").to_pylist() == [row["_kafka_offset"] for row in want]
    for name in ("_kafka_key", "_kafka_headers", "_kafka_value", "_kafka_value_size", "_kafka_timestamp_type"):
        assert table.column(name).to_pylist() == [row[name] for row in want], name
    microseconds = table.column("_kafka_timestamp").combine_chunks().view("int64")
    assert microseconds.to_pylist() == [row["_kafka_timestamp"] for row in want]
    if value_format == "string":
        for name in ("value", "_kafka_error"):
            assert table.column(name).to_pylist() == [row[name] for row in want], name
