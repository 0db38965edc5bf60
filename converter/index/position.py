"""Served positions, and our own sparse OFFSET index (KIP-405 `fetchIndex`).

A broker finds bytes of a remote segment by *position*: it looks an offset up in the OFFSET index, asks for the segment
from that position on, and computes from positions which aborted transactions a reader must be told of. It never
compares positions with the bytes it gets. What must hold, for ever:

* A stream may start earlier than asked, never later: the position of a batch is at most the number of bytes served
  before it, and a fetch at position p starts at the first batch that could hold it.
* Between two batches the position grows by no more than the bytes served between them. Were it to grow faster, a
  broker that reads n bytes would believe to be further back than it is and leave out aborted transactions.
* The last position is at most 2^30, since Kafka adds the fetch size to it as a 32-bit int.

So a batch counts min(original size, served size), and in a segment of more than 1 GiB positions are scaled down by
2^30 / segment size, which only makes them grow more slowly; adding a clamp instead would send every reader of the
segment's second half to one and the same place.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from converter.errors import SegmentError
from converter.kernels.kernel import kernel, readonly
from converter.limits import OFFSET_INDEX_INTERVAL_BYTES, POSITION_MAX
from converter.types import BatchTable, BoolArray, Int64Array

_LOG_OVERHEAD: Final = 12  # base offset and length, which batchLength does not count
_INT32_MAX: Final = 2**31 - 1
_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])


def original_sizes(batches: BatchTable) -> Int64Array:
    """Size in bytes each batch had in the broker's segment."""
    return batches["length"].astype(np.int64) + _LOG_OVERHEAD


def last_offsets(batches: BatchTable) -> Int64Array:
    """Last offset of each batch, inclusive."""
    return batches["base_offset"] + batches["last_offset_delta"].astype(np.int64)


class PositionAssigner:
    """Gives batches their positions, in order, and collects the sparse OFFSET index.

    Args:
        start_offset: first offset of the segment; index entries are relative to it.
        segment_size_bytes: size the broker announced; positions are scaled when it exceeds POSITION_MAX.
    """

    def __init__(self, start_offset: int, segment_size_bytes: int) -> None:
        self._start_offset = start_offset
        self._scale = max(segment_size_bytes, POSITION_MAX)
        self._counted = 0
        self._last_entry = 0
        self._entries: list[bytes] = []

    def assign(self, batches: BatchTable) -> Int64Array:
        """Positions of the next batches; raises SegmentError("invalid_segment") for more bytes than were announced."""
        if not len(batches):
            return np.empty(0, dtype=np.int64)
        sizes = np.minimum(original_sizes(batches), batches["served_size"].astype(np.int64))
        ends = np.cumsum(sizes) + self._counted
        if ends[-1] > self._scale:
            raise SegmentError("invalid_segment", f"batches hold more than the announced {self._scale} bytes")
        # At most 2^31 * 2^30: no overflow.
        positions: Int64Array = (ends - sizes) * POSITION_MAX // self._scale
        self._counted = int(ends[-1])
        self._collect(last_offsets(batches) - self._start_offset, positions)
        return positions

    def offset_index(self) -> bytes:
        """The OFFSET index so far: Kafka's 8-byte big-endian entries (relative last offset, position)."""
        return b"".join(self._entries)

    def _collect(self, relative: Int64Array, positions: Int64Array) -> None:
        if relative.min() < 0 or relative.max() > _INT32_MAX:
            raise SegmentError("invalid_segment", "offset is not within 2^31 of the segment's start")
        chosen = np.empty(len(positions), dtype=np.bool_)
        self._last_entry = _choose(readonly(positions, np.int64), self._last_entry, chosen)
        entries = np.empty(int(chosen.sum()), dtype=_ENTRY)
        entries["offset"] = relative[chosen]
        entries["position"] = positions[chosen]
        self._entries.append(entries.tobytes())


@kernel
def _choose(positions: Int64Array, last: int, chosen: BoolArray) -> int:
    """Mark positions at least an interval after the one marked before; returns the last one marked."""
    for i in range(len(positions)):
        chosen[i] = positions[i] - last >= OFFSET_INDEX_INTERVAL_BYTES
        if chosen[i]:
            last = positions[i]
    return last
