"""The batch table of a segment that is stored as it is: framing and checksums only.

Either by choice (`mode: verbatim`) or because converting it raised an error of ours. Control batches are still
recognised, as far as that takes no decompression: the transactions of other segments may wait for their markers.
"""

from __future__ import annotations

import numpy as np

from converter.codecs import NONE
from converter.framing import CODEC_MASK, CONTROL, HEADER_BYTES, LENGTH_PREFIX_BYTES
from converter.kernel import readonly
from converter.rebuild import served_checksums
from converter.records import EXTENT_DTYPE, control_types
from converter.types import BatchFlag, BatchTable, Cause, UInt8Array


def describe_verbatim(batches: BatchTable, raw: UInt8Array, kept_start: int, cause: Cause) -> None:
    """Fill everything but `position` of framed batches that are kept whole.

    Args:
        batches: framed batches, consecutive.
        raw: their bytes.
        kept_start: kept bytes of the segment before them.
        cause: VERBATIM, or INTERNAL, which also flags the batches QUARANTINED: nobody asked for their rows to be
            withheld.
    """
    sizes = batches["length"].astype(np.int64) + LENGTH_PREFIX_BYTES
    ends = np.cumsum(sizes)
    starts = ends - sizes
    data = readonly(raw, np.uint8)
    batches["served_size"] = sizes
    batches["served_crc"] = served_checksums(batches, data, starts, ends)
    intact = (batches["magic"] == 2) & (batches["served_crc"] == batches["crc"])
    control = intact & ((batches["attributes"] & CONTROL) != 0)
    withheld = BatchFlag.KEPT | BatchFlag.QUARANTINED if cause == Cause.INTERNAL else BatchFlag.KEPT
    batches["flags"] = np.where(control, np.uint16(BatchFlag.KEPT | BatchFlag.CONTROL), np.uint16(withheld))
    legacy = (batches["magic"] == 0) | (batches["magic"] == 1)
    batches["flags"] |= np.where(legacy, np.uint16(BatchFlag.LEGACY), np.uint16(0))
    batches["cause"] = cause
    batches["row_start"] = 0
    batches["row_count"] = 0
    batches["kept_start"] = kept_start + starts
    batches["timestamps_start"] = -1
    batches["control_type"] = -1
    extents = np.zeros(len(batches), dtype=EXTENT_DTYPE)
    extents["start"] = np.minimum(starts + HEADER_BYTES, ends)
    extents["end"] = ends
    readable = control & ((batches["attributes"] & CODEC_MASK) == NONE)
    control_types(data, data, batches, readonly(extents, EXTENT_DTYPE), readable)
