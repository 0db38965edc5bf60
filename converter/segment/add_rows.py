"""A segment that was stored as it is gets its rows, and Kafka is served the very same bytes as before.

Brokers cache positions, so what is served for a segment never changes its form: every batch stays KEPT. Those that
decode become rows as well, in a data file of their own. The index differs in flags, causes, rows and pages only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.errors import SegmentError
from converter.index.block_writer import BlockWriter
from converter.index.codec import Buffer, block_section, decode_index, encode_index, footer_bytes, kafka_files
from converter.index.model import Block, CauseCount, Directory, StoredObject
from converter.index.summary import SummaryBuilder
from converter.parquet.writer import RowFile
from converter.types import BATCH_DTYPE, BatchFlag, BatchTable, Cause, ConvertOptions, ParsedStep

_TAKEN = ["base_offset", "flags", "cause", "control_type", "row_start", "row_count"]
_NO_DELTAS = np.empty(0, dtype=np.int64)


def add_rows(
    index: Buffer,
    kept: Iterable[Buffer],
    options: ConvertOptions,
    schema: pa.Schema,
    data: BinaryIO,
    data_key: str,
    pending: str | None,
    written_ms: int,
) -> bytes:
    """Convert a verbatim segment.

    Args:
        index: its whole index object.
        kept: its kept bytes, all of them, in pieces of any size.
        options: the topic's rule.
        schema: columns.row_schema for the rule, with the field ids to write.
        data: where the Parquet file goes; nothing is written to it when no batch has rows.
        data_key: what the index shall call that file.
        pending: why these rows lack value columns of the table, if they do.
        written_ms: when the segment's first index was written.

    Returns:
        The new index.

    Raises:
        SegmentError: `corrupt_object` when index and kept bytes contradict each other.
        ValueError: the segment has rows already.
    """
    directory, blocks = decode_index(index)
    if directory.data is not None or directory.kept is None:
        raise ValueError("the segment is not stored verbatim")
    files = kafka_files(directory, index)
    transactions = Transactions.of_files(files)
    parser = SegmentParser(directory.metadata, options, transactions)
    file = RowFile(schema, data, options.value_format)
    found: list[BatchTable] = [np.empty(0, dtype=BATCH_DTYPE)[_TAKEN]]  # the cleaner may have left no batch
    try:
        for step in _steps(parser, kept):
            file.add(step.rows)
            found.append(step.batches[_TAKEN].copy())
        pages = file.close(directory.summary.leader_epochs)
    except BaseException:
        file.abort()
        raise
    writer, summary = BlockWriter(), SummaryBuilder(directory.metadata.leader_epochs)
    for batches in _converted(blocks, np.concatenate(found)):
        summary.add(batches)
        writer.add(batches, _NO_DELTAS)
        writer.end_block()
    table, parts = writer.finish(pages)
    new = replace(
        directory,
        options=options,
        data=None if pages is None else StoredObject(data_key, file.size, file.crc32c),
        summary=summary.build(
            directory.summary.open_transactions,
            parser.transaction_conflicts > 0,
            verbatim=False,
            pending=None if pages is None else pending,
        ),
        blocks=table,
        first_written_ms=written_ms,
    )
    return encode_index(new, files, None if pages is None else file.footer, parts)[0]


def marked_as_late(index: Buffer, written_ms: int) -> bytes:
    """The index of a segment whose rows came into the table late: `has_added_rows` is true of it from now on.

    Args:
        index: the whole index object.
        written_ms: when the segment's first index was written.

    Raises:
        SegmentError: `corrupt_object`: the index is damaged.
    """
    view = memoryview(index).cast("B")
    directory, _ = decode_index(index)
    files = kafka_files(directory, index)
    footers = [
        None if part is None else footer_bytes(directory, view[part.offset :][: part.size], tail=tail)
        for tail, part in ((False, directory.footer), (True, directory.tail_footer))
    ]
    places = [block_section(directory, number) for number in range(len(directory.blocks))]
    blocks = [bytes(view[part.offset :][: part.size]) for part in places]
    kept = (*directory.summary.kept, CauseCount(cause=Cause.VERBATIM, batches=0, records=0, bytes=0))
    marked = replace(directory, summary=replace(directory.summary, kept=kept), first_written_ms=written_ms)
    return encode_index(marked, files, footers[0], blocks, tail_footer=footers[1])[0]


def has_added_rows(directory: Directory) -> bool:
    """Whether rows of the segment came late: it was stored as it is first, or a repair took them from it."""
    return directory.data is not None and any(count.cause == Cause.VERBATIM for count in directory.summary.kept)


def _steps(parser: SegmentParser, kept: Iterable[Buffer]) -> Iterator[ParsedStep]:
    for piece in kept:
        yield from parser.feed(piece)
    yield from parser.finish()


def _converted(blocks: Iterable[Block], found: BatchTable) -> Iterable[BatchTable]:
    """The batch tables of the blocks, with what the parser has now made of each batch."""
    at = 0
    for block in blocks:
        batches = block.batches.copy()
        mine = found[at : at + len(batches)]
        at += len(batches)
        if not np.array_equal(mine["base_offset"], batches["base_offset"]):
            raise SegmentError("corrupt_object", "the kept bytes hold other batches than the index says")
        flags = mine["flags"] & np.uint16(0xFFFF & ~int(BatchFlag.EXACT_TIMESTAMPS))
        withheld = ((mine["flags"] & BatchFlag.KEPT) != 0) & (mine["row_count"] == 0)
        batches["flags"] = flags | np.uint16(BatchFlag.KEPT)
        batches["cause"] = np.where(withheld, mine["cause"], np.uint8(Cause.VERBATIM))
        for name in ("control_type", "row_start", "row_count"):
            batches[name] = mine[name]
        yield batches
    if at != len(found):
        raise SegmentError("corrupt_object", "the kept bytes hold more batches than the index says")
