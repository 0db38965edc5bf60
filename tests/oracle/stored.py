"""A whole copy and its fetches without a store: parse, write, index; then plan, read by range, replay."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property

from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.index.codec import block_section, decode_block, decode_directory
from converter.index.model import Block, Directory, StoredObjects
from converter.parquet.columns import row_schema
from converter.segment.reader import plan_read, replay
from converter.segment.writer import SegmentWriter
from converter.types import ConvertOptions, IndexType, SegmentMetadata

OBJECTS = StoredObjects(bytes(range(16)), "data/x.parquet", "kept/x.kept", "data/x-tail.parquet")


@dataclass(frozen=True)
class Copied:
    """The objects of one copy as the store would have them; `data` is data file and tail, one behind the other."""

    index: bytes
    data: bytes
    kept: bytes

    @cached_property
    def directory(self) -> Directory:
        size = int.from_bytes(self.index[8:12], "little")
        return decode_directory(self.index[:size])

    def blocks(self) -> list[Block]:
        directory = self.directory
        out = []
        for number in range(len(directory.blocks)):
            section = block_section(directory, number)
            out.append(decode_block(directory, number, self.index[section.offset : section.offset + section.size]))
        return out

    def fetch(self, block: Block, first: int, last: int) -> bytes:
        """Served bytes of batches [first, last] of the segment, which lie in the block."""
        directory = self.directory
        plan = plan_read(directory, block, first, last)
        data = [self.data[part.start : part.start + part.length] for part in plan.data]
        kept = [self.kept[part.start : part.start + part.length] for part in plan.kept]
        return replay(directory, block, plan, data, kept).tobytes()

    def fetch_all(self) -> bytes:
        return b"".join(
            self.fetch(block, block.first_batch, block.first_batch + len(block.batches) - 1) for block in self.blocks()
        )


def copy_segment(
    data: bytes, metadata: SegmentMetadata, transactions: Transactions, options: ConvertOptions | None = None
) -> Copied:
    """Convert a segment as a copy does."""
    options = options or ConvertOptions()
    parser = SegmentParser(metadata, options, transactions)
    rows, kept, tail = io.BytesIO(), io.BytesIO(), io.BytesIO()
    writer = SegmentWriter(metadata, options, row_schema(options.value_format), rows, kept, tail)
    for steps in (parser.feed(data), parser.finish()):
        for step in steps:
            writer.add(step)
    written = writer.finish(
        {IndexType.PRODUCER_SNAPSHOT: b"snapshot"},
        transactions,
        OBJECTS,
        transaction_conflicts=parser.transaction_conflicts,
    )
    return Copied(written.index, rows.getvalue() + tail.getvalue(), kept.getvalue())
