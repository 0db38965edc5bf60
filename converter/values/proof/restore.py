"""Values from columns: for the proof when a segment is converted, and for every fetch of what was proven.

Both use the same function over the same kind of arrays, so what was equal once stays equal; and a fetch compares the
checksum of the batch besides.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from converter.errors import SegmentError
from converter.kernels.kernel import kernel, readonly
from converter.kernels.memory import copy, same
from converter.limits import REBUILD_BYTES_MAX
from converter.types import BoolArray, Int64Array, UInt8Array, VarBytes
from converter.values.model import Encoder
from converter.values.project import project_back
from converter.values.proof.proven import ProvenValues, ValueEncoding
from converter.values.rows import bound_by_id

_NOTHING = np.empty(0, dtype=np.uint8)


def written(encoding: ValueEncoding, encoder: Encoder, columns: pa.StructArray, sizes: Int64Array) -> VarBytes:
    """Values without headers.

    Args:
        encoding: how they are written.
        encoder: its encoder.
        columns: of n rows, with field ids; more than the encoder takes, in any order, in types widened or not.
        sizes: bytes of each value with its header; -1: it is not wanted.

    Returns:
        n values; valid where they have that size.

    Raises:
        ValueError: the columns are none that the encoder's can have come to be.
    """
    mine = project_back(columns, bound_by_id(columns.type, encoding.columns), encoding.columns)
    return encoder.encode(mine, np.where(sizes >= len(encoding.header), sizes - len(encoding.header), -1))


def equal_rows(values: pa.BinaryArray, header: bytes, back: VarBytes) -> BoolArray:
    """Where a value is exactly the header with what came back behind it."""
    equal = np.zeros(len(values), dtype=np.bool_)
    _, offsets, data = values.buffers()
    if len(values) == 0 or data is None:
        return equal
    places = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    _equal(
        readonly(places, np.int64),
        readonly(np.frombuffer(data, dtype=np.uint8), np.uint8),
        readonly(np.asarray(values.is_valid().to_numpy(zero_copy_only=False)), np.bool_),
        readonly(np.frombuffer(header, dtype=np.uint8), np.uint8),
        readonly(back.offsets, np.int64),
        readonly(back.data, np.uint8),
        readonly(back.valid, np.bool_),
        equal,
    )
    return equal


@kernel
def _equal(
    offsets: Int64Array,
    data: UInt8Array,
    valid: BoolArray,
    header: UInt8Array,
    back_offsets: Int64Array,
    back: UInt8Array,
    back_valid: BoolArray,
    equal: BoolArray,
) -> None:
    """Caller's promise: both columns are consistent and have as many rows as `equal`."""
    front = len(header)
    for i in range(len(equal)):
        size = back_offsets[i + 1] - back_offsets[i]
        start = offsets[i]
        equal[i] = (
            valid[i]
            and back_valid[i]
            and offsets[i + 1] - start == front + size
            and same(data, start, header, 0, front)
            and same(data, start + front, back, back_offsets[i], size)
        )


def restored(
    stored: VarBytes, encoders: Int64Array, sizes: Int64Array, columns: pa.StructArray, proven: ProvenValues
) -> VarBytes:
    """The values of n rows, some of which are columns alone.

    Args:
        stored: the bytes of the others; null where there are none.
        encoders: per row the number of its encoding, from 1; 0: its bytes are stored.
        sizes: bytes of each value.
        columns: as written() takes them.
        proven: of the segment.

    Returns:
        n values. One that does not come back from its columns is null, which the batch's checksum will not bear.

    Raises:
        SegmentError: `corrupt_object`: an encoding that is not there, or that columns do not fit.
    """
    if len(encoders) != len(sizes) or len(stored) != len(sizes):
        raise SegmentError("corrupt_object", "encoders are not of the same rows as their columns")
    lost = encoders > 0
    stored_sizes = np.diff(stored.offsets)
    wanted = np.where(lost, sizes, stored_sizes)
    if (wanted < 0).any() or int(wanted.sum()) > REBUILD_BYTES_MAX:
        raise SegmentError("corrupt_object", "the sizes of values are not to be believed")
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(wanted, out=offsets[1:])
    out = VarBytes(offsets, np.empty(int(offsets[-1]), dtype=np.uint8), stored.valid & ~lost)
    rows = np.flatnonzero(~lost)
    _place(out, rows, _NOTHING, stored.offsets[rows], stored.data, stored_sizes[rows])
    for number in np.unique(encoders[lost]).tolist():
        encoding, encoder = proven.numbered(number)
        rows = np.flatnonzero(encoders == number)
        taken = columns if len(rows) == len(encoders) else columns.take(pa.array(rows))
        try:
            back = written(encoding, encoder, taken, sizes[rows])
        except (ValueError, pa.ArrowException) as error:
            raise SegmentError("corrupt_object", f"columns do not fit their encoding: {error}") from error
        came = np.flatnonzero(back.valid)
        header = np.frombuffer(encoding.header, dtype=np.uint8)
        _place(out, rows[came], header, back.offsets[came], back.data, np.diff(back.offsets)[came])
        out.valid[rows[came]] = True
    return out


def _place(
    out: VarBytes, rows: Int64Array, header: UInt8Array, starts: Int64Array, data: UInt8Array, sizes: Int64Array
) -> None:
    """Writes values, each a header and sizes[i] bytes of `data` from starts[i] on: what rows[i] has room for."""
    _put(
        readonly(rows, np.int64),
        readonly(header, np.uint8),
        readonly(starts, np.int64),
        readonly(data, np.uint8),
        readonly(sizes, np.int64),
        readonly(out.offsets, np.int64),
        out.data,
    )


@kernel
def _put(
    rows: Int64Array,
    header: UInt8Array,
    starts: Int64Array,
    data: UInt8Array,
    sizes: Int64Array,
    offsets: Int64Array,
    out: UInt8Array,
) -> None:
    """Caller's promise: row rows[i] has room for the header and sizes[i] bytes of data from starts[i] on."""
    front = len(header)
    for i in range(len(rows)):
        to = offsets[rows[i]]
        copy(out, to, header, 0, front)
        copy(out, to + front, data, starts[i], sizes[i])
