"""Whether two segment indexes are of one and the same copied segment, however each of them stores it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converter.index.codec import Buffer, decode_index
from converter.index.model import Block, Directory
from converter.types import BATCH_DTYPE, BatchFlag, BatchTable, IndexType

#: A batch's checksum covers all of its bytes but these fields, which it stands beside.
_IDENTITY = ("base_offset", "length", "leader_epoch", "magic", "crc")


def same_segment(one: Buffer, other: Buffer) -> bool:
    """Whether both index objects tell of the same log bytes, Kafka indexes, offsets and leader epochs.

    Attempts, keys, the form a batch is stored in, and places in data files may differ: after a merge, or when one of
    the copies stored the segment as it is. The OFFSET index is our own and not compared. Log bytes are compared by
    place, size and checksum of each batch; a batch whose own checksum is wrong is kept, and compared by ours.

    Raises:
        SegmentError: `corrupt_object`, `unsupported_version`: one of them cannot be read.
    """
    (first, first_blocks), (second, second_blocks) = decode_index(one), decode_index(other)
    if _described(first) != _described(second):
        return False
    return _same_batches(_all_batches(first_blocks), _all_batches(second_blocks))


def _described(directory: Directory) -> object:
    """What Kafka said of the segment; who sent it, and when, is not the segment's."""
    metadata = replace(directory.metadata, broker_id=0, event_timestamp_ms=0, custom_metadata=b"")
    files = {
        kind: (section.size, section.crc32c)
        for kind, section in directory.files.items()
        if kind is not IndexType.OFFSET
    }
    return metadata, files


def _all_batches(blocks: Sequence[Block]) -> BatchTable:
    return np.concatenate([np.empty(0, dtype=BATCH_DTYPE), *(block.batches for block in blocks)])


def _same_batches(first: BatchTable, second: BatchTable) -> bool:
    if len(first) != len(second) or any(not np.array_equal(first[name], second[name]) for name in _IDENTITY):
        return False
    kept = (first["flags"] & second["flags"] & BatchFlag.KEPT) != 0
    return np.array_equal(first["served_crc"][kept], second["served_crc"][kept])
