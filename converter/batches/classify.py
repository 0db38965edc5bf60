"""What a batch is, by its header and its CRC alone: the first column of the table in parser.py.

The batch table of a segment that is stored as it is: framing and checksums only.

Either by choice (`mode: verbatim`) or because converting it raised an error of ours. Control batches are still
recognised, as far as that takes no decompression: the transactions of other segments may wait for their markers.
"""

from __future__ import annotations

import zlib

import numpy as np

from converter.batches.codecs import NONE, ZSTD
from converter.batches.framing import CODEC_MASK, CONTROL, HEADER_BYTES, LENGTH_PREFIX_BYTES, TRANSACTIONAL
from converter.batches.rebuild import served_checksums
from converter.batches.records import EXTENT_DTYPE, control_types
from converter.batches.transactions import ABORTED, PEEKED, UNDECIDED, Transactions
from converter.kernels.kernel import readonly
from converter.types import BatchFlag, BatchTable, BoolArray, Cause, Int64Array, UInt8Array

_LEGACY_CRC_START = 16


def is_control(batches: BatchTable) -> BoolArray:
    """Batches flagged CONTROL."""
    control: BoolArray = (batches["flags"] & BatchFlag.CONTROL) != 0
    return control


def _flag(batches: BatchTable, mask: BoolArray, flags: BatchFlag, cause: Cause) -> None:
    batches["flags"] = np.where(mask, batches["flags"] | np.uint16(flags), batches["flags"])
    batches["cause"] = np.where(mask, np.uint8(cause), batches["cause"])


def classify(
    batches: BatchTable, raw: UInt8Array, starts: Int64Array, ends: Int64Array, transactions: Transactions
) -> BoolArray:
    """Fill flags, cause, control_type, served_size and served_crc as far as headers and CRCs tell.

    Batch i of `batches` is raw[starts[i]:ends[i]].

    Returns:
        the batches whose records should become rows; all others are KEPT.
    """
    batches["control_type"] = -1
    batches["served_size"] = ends - starts
    batches["served_crc"] = served_checksums(batches, readonly(raw, np.uint8), starts, ends)
    current = batches["magic"] == 2
    legacy = (batches["magic"] == 0) | (batches["magic"] == 1)
    damaged = current & (batches["served_crc"] != batches["crc"])
    _flag(batches, ~current, BatchFlag.KEPT | BatchFlag.QUARANTINED, Cause.UNDECODABLE)
    if legacy.any():
        _flag(batches, legacy, BatchFlag.LEGACY, Cause.LEGACY_MAGIC)
        damaged |= _damaged_legacy(batches, legacy, raw, starts, ends)
    _flag(batches, damaged, BatchFlag.KEPT | BatchFlag.QUARANTINED, Cause.BAD_CRC)
    good = current & ~damaged
    control = good & ((batches["attributes"] & CONTROL) != 0)
    _flag(batches, control, BatchFlag.KEPT | BatchFlag.CONTROL, Cause.NO_ROWS)
    data = good & ~control
    empty = data & (batches["count"] == 0)
    _flag(batches, empty, BatchFlag.KEPT, Cause.NO_ROWS)
    unknown = data & ~empty & (((batches["attributes"] & CODEC_MASK) > ZSTD) | (batches["count"] < 0))
    _flag(batches, unknown, BatchFlag.KEPT | BatchFlag.QUARANTINED, Cause.UNDECODABLE)
    wanted: BoolArray = data & ~empty & ~unknown
    transactional = np.flatnonzero(wanted & ((batches["attributes"] & TRANSACTIONAL) != 0))
    if len(transactional):
        picked = batches[transactional]
        decisions = np.zeros(len(batches), dtype=np.uint8)
        decisions[transactional] = transactions.decide(picked["producer_id"], picked["base_offset"])
        _flag(batches, decisions == ABORTED, BatchFlag.KEPT | BatchFlag.ABORTED, Cause.NO_ROWS)
        _flag(batches, decisions == UNDECIDED, BatchFlag.UNDECIDED, Cause.NONE)
        _flag(batches, decisions == PEEKED, BatchFlag.PEEKED, Cause.NONE)
        wanted &= decisions != ABORTED
    return wanted


def _damaged_legacy(
    batches: BatchTable, legacy: BoolArray, raw: UInt8Array, starts: Int64Array, ends: Int64Array
) -> BoolArray:
    """Legacy batches whose CRC-32 (of all from the magic byte on) is wrong."""
    damaged = np.zeros(len(batches), dtype=np.bool_)
    view = raw.data
    for i in np.flatnonzero(legacy).tolist():
        found = zlib.crc32(view[starts[i] + _LEGACY_CRC_START : ends[i]])
        damaged[i] = found != int(batches["crc"][i])
    return damaged


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
