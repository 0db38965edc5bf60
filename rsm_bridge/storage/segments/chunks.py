"""How a segment is cut into chunks of about 1 MiB of served bytes: the unit that is decoded and cached.

Chunks never span two blocks of the index, and their borders follow from the batch table alone, so that every reader
finds the same ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from converter.errors import SegmentError
from converter.index.model import Block
from rsm_bridge.limits import FETCH_CHUNK_BYTES, FETCH_CHUNK_BYTES_MAX, READ_AHEAD_BYTES


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """Where chunks begin in a block; both tuples have one more entry than there are chunks.

    Attributes:
        starts: chunk i holds batches [starts[i], starts[i + 1]) of the block.
        bytes_at: and bytes [bytes_at[i], bytes_at[i + 1]) of what the block is served as.
    """

    starts: tuple[int, ...]
    bytes_at: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def chunk_of(self, batch: int) -> int:
        """The chunk that holds the block's batch number `batch`."""
        return bisect_right(self.starts, batch) - 1

    def row(self, first: int) -> range:
        """Chunks from `first` on that a reader who goes forward gets in one go: less work for each than one by one."""
        end = first + 1
        while end < len(self) and self.bytes_at[end + 1] - self.bytes_at[first] <= READ_AHEAD_BYTES:
            end += 1
        return range(first, end)


def cut(block: Block) -> ChunkPlan:
    """Cuts a block; a chunk ends with the batch that brings it to 1 MiB or more.

    Raises:
        SegmentError: `corrupt_object`: a batch has a size that none can have.
    """
    sizes = block.batches["served_size"].astype(np.int64)
    if len(sizes) and not 0 < sizes.min() <= sizes.max() <= FETCH_CHUNK_BYTES_MAX - FETCH_CHUNK_BYTES:
        raise SegmentError(
            "corrupt_object", f"batches of {sizes.min()} to {sizes.max()} bytes", batch=block.first_batch
        )
    starts, bytes_at = [0], [0]
    ends = np.cumsum(sizes)
    while starts[-1] < len(sizes):
        # The first batch at which the chunk has its bytes.
        end = int(np.searchsorted(ends, bytes_at[-1] + FETCH_CHUNK_BYTES, side="left")) + 1
        end = min(end, len(sizes))
        starts.append(end)
        bytes_at.append(int(ends[end - 1]))
    return ChunkPlan(tuple(starts), tuple(bytes_at))


def split(data: memoryview, ends: Sequence[int]) -> list[memoryview]:
    """Copies of data[ends[i]:ends[i + 1]]: a cached chunk must not keep its neighbours in memory."""
    if len(ends) == 2:
        return [data]
    served = np.frombuffer(data, dtype=np.uint8)  # its copies, other than those of a memoryview, let other threads run
    return [served[start:end].copy().data for start, end in pairwise(ends)]
