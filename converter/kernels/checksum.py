"""CRC32C (Castagnoli, RFC 3720 appendix B.4) of many ranges of one buffer.

The library is fastest, but a call costs more than the checksum of a one-record batch: short ranges are done eight
bytes at a time with tables in a kernel.
"""

from __future__ import annotations

import crc32c
import numpy as np
import numpy.typing as npt

from converter import limits
from converter.kernels.kernel import kernel, u32
from converter.types import BoolArray, Int64Array, UInt8Array

UInt32Array = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # reflected


def _tables() -> UInt32Array:
    tables = np.zeros((8, 256), dtype=np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for row in range(1, 8):
        tables[row] = (tables[row - 1] >> np.uint32(8)) ^ tables[0][tables[row - 1] & np.uint32(0xFF)]
    return tables


_TABLES = _tables()


@kernel
def _short_checksums(
    data: UInt8Array, starts: Int64Array, ends: Int64Array, wanted: BoolArray, out: UInt32Array
) -> None:
    """Caller's promise: 0 <= start <= end <= len(data) for every wanted range."""
    mask = u32(0xFF)
    for i in range(len(starts)):
        if not wanted[i]:
            continue
        value = u32(0xFFFFFFFF)
        p = starts[i]
        end = ends[i]
        while end - p >= 8:
            low = value ^ (
                u32(data[p])
                | (u32(data[p + 1]) << u32(8))
                | (u32(data[p + 2]) << u32(16))
                | (u32(data[p + 3]) << u32(24))
            )
            value = (
                _TABLES[7, low & mask]
                ^ _TABLES[6, (low >> u32(8)) & mask]
                ^ _TABLES[5, (low >> u32(16)) & mask]
                ^ _TABLES[4, low >> u32(24)]
                ^ _TABLES[3, data[p + 4]]
                ^ _TABLES[2, data[p + 5]]
                ^ _TABLES[1, data[p + 6]]
                ^ _TABLES[0, data[p + 7]]
            )
            p += 8
        while p < end:
            value = u32((value >> u32(8)) ^ _TABLES[0, (value ^ u32(data[p])) & mask])
            p += 1
        out[i] = value ^ u32(0xFFFFFFFF)


def checksum(data: bytes | bytearray | memoryview) -> int:
    """CRC32C of one range."""
    return int(crc32c.crc32c(data))


def checksums(data: UInt8Array, starts: Int64Array, ends: Int64Array, wanted: BoolArray) -> UInt32Array:
    """CRC32C of data[start:end] for each wanted range; 0 for the others.

    Caller's promise: 0 <= start <= end <= len(data) for every wanted range. `data` is read-only, see kernel.readonly.
    """
    out = np.zeros(len(starts), dtype=np.uint32)
    short = wanted & (ends - starts < limits.CHECKSUM_KERNEL_BYTES_MAX)
    if short.any():
        _short_checksums(data, starts, ends, short, out)
    view = data.data
    for i in np.flatnonzero(wanted & ~short).tolist():
        out[i] = crc32c.crc32c(view[starts[i] : ends[i]])
    return out
