"""Loads, or compiles, every kernel of the parse, proof, write and fetch paths.

A cold compile takes tens of seconds, a cached start about one. A bridge must not say that it is healthy before.
"""

from __future__ import annotations

import io

import pyarrow as pa

from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.index.codec import block_section, decode_block
from converter.index.model import StoredObjects
from converter.parquet.arrow_writer import ArrowWriter
from converter.parquet.columns import OFFSET, row_schema
from converter.parquet.parts import PartedFile, PartSink, closed_part
from converter.parquet.sink import CountingSink
from converter.segment.reader import plan_read, replay
from converter.segment.writer import SegmentWriter
from converter.types import ConvertOptions, IndexType, LeaderEpoch, Mode, SegmentMetadata, ValueFormat

#: Four batches: keys, headers and text beyond ASCII; a commit marker; lz4 with LogAppendTime in a transaction; a
#: header name that is not UTF-8.
SAMPLE = bytes.fromhex(
    "00000000000000000000005e0000000002f9f4862e0000000000020000018bcfe568000000018bcfe56800ffffffffffffffffff"
    "ffffffffff0000000326000000026b0a706c61696e0402680276026e01120002020106e282ac001c0004040002ff040268027602"
    "6e010000000000000003000000420000000002bda9896c0030000000000000000000000000000000000000000000000000000000"
    "010000ffffffff000000012000000008000000010c00000000000000000000000000000400000065000000000225f7c79d001b00"
    "0000010000018bcfe568000000018bcfe5680000000000000000010000000000000000000204224d186440a721000000afae0300"
    "0000026b9003760100b4f0020402680276026e011000d80402026b0100000000007705d34b00000000000000070000003d000000"
    "000244004b9a0000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff00000001160000000200"
    "02780202ff00"
)


def warm() -> None:
    """Run a small segment through everything, once per value format and mode."""
    for value_format, mode in _FORMS:
        _round_trip(ConvertOptions(value_format=value_format, mode=mode))
    Transactions.parse(b"", None)
    _file_of_parts()


_FORMS: tuple[tuple[ValueFormat, Mode], ...] = (("raw", "table"), ("string", "table"), ("raw", "verbatim"))


def _metadata() -> SegmentMetadata:
    return SegmentMetadata(
        cluster_name="",
        topic="",
        topic_id=bytes(16),
        partition=0,
        segment_id=bytes(16),
        start_offset=0,
        end_offset=7,
        max_timestamp_ms=0,
        broker_id=0,
        event_timestamp_ms=0,
        segment_size_bytes=len(SAMPLE),
        leader_epochs=(LeaderEpoch(0, 0),),
    )


def _round_trip(options: ConvertOptions) -> None:
    metadata = _metadata()
    transactions = Transactions()
    parser = SegmentParser(metadata, options, transactions)
    data, kept = io.BytesIO(), io.BytesIO()
    writer = SegmentWriter(metadata, options, row_schema(options.value_format), data, kept)
    for steps in (parser.feed(SAMPLE), parser.finish()):
        for step in steps:
            writer.add(step)
    written = writer.finish({IndexType.TIMESTAMP: b""}, transactions, StoredObjects(bytes(16), "data", "kept"))
    section = block_section(written.directory, 0)
    block = decode_block(written.directory, 0, written.index[section.offset : section.offset + section.size])
    plan = plan_read(written.directory, block, 0, len(block.batches) - 1)
    replay(
        written.directory,
        block,
        plan,
        [data.getvalue()[part.start : part.start + part.length] for part in plan.data],
        [kept.getvalue()[part.start : part.start + part.length] for part in plan.kept],
    )


def _file_of_parts() -> None:
    """As of a wide table."""
    target = CountingSink(io.BytesIO())
    part = PartSink(target)
    rows = pa.table({OFFSET: pa.array([1])})
    writer = ArrowWriter(rows.schema, part, "raw", proven=False)
    writer.write(rows)
    PartedFile(target, {OFFSET: 0}).add([closed_part(writer, part)])
