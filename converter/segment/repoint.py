"""The index of a segment whose rows have come to lie in another data file too, at other places, in the same order.

Nothing else of the segment changes: batches, blocks and positions stay what a broker may have cached, kept bytes stay
where they are. Only row numbers and the page table are written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from converter.errors import SegmentError
from converter.index.block_writer import BlockWriter
from converter.index.codec import Buffer, decode_index, encode_index, kafka_files
from converter.index.model import Block, StoredObject
from converter.types import PageTable
from converter.values.proof.proven import moved


def first_row_of(blocks: Sequence[Block]) -> int | None:
    """Number of the segment's first row in the data file its index names; None: it has no rows."""
    for block in blocks:
        holders = np.flatnonzero(block.batches["row_count"] > 0)
        if len(holders):
            return int(block.batches["row_start"][holders[0]])
    return None


def repoint(
    index: Buffer, data: StoredObject, pages: PageTable, rows: pa.Schema, first_row: int, written_ms: int
) -> bytes:
    """The segment's index, naming another data file.

    Args:
        index: the whole index object.
        data: the file that holds the segment's rows next to each other, in their order; others beside them.
        pages: that file's page table.
        rows: its schema.
        first_row: number of the segment's first row in it.
        written_ms: when the segment's first index was written.

    Raises:
        SegmentError: `corrupt_object`: the index is damaged, or names no rows.
    """
    directory, blocks = decode_index(index)
    old = first_row_of(blocks)
    if old is None:
        raise SegmentError("corrupt_object", "an index without rows is to name a data file")
    writer = BlockWriter()
    for block in blocks:
        batches = block.batches.copy()
        batches["row_start"] += first_row - old
        writer.add(batches, block.deltas, block.encoders if len(block.encoders) else None)
        writer.end_block()
    table, parts = writer.finish(pages)
    files = kafka_files(directory, index)
    proven = moved(directory.proven, rows) if directory.proven else b""
    renewed = replace(directory, data=data, tail=None, blocks=table, proven=proven, first_written_ms=written_ms)
    return encode_index(renewed, files, None, parts)[0]
