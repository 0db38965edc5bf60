"""The rows of a step as kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from converter.errors import SegmentError
from converter.kernels.kernel import readonly
from converter.types import BoolArray, Int64Array, RowBuffers, UInt8Array, VarBytes


class ByteStrings(NamedTuple):
    """A column of byte strings: value i is data[offsets[i]:offsets[i + 1]], null where valid[i] is False."""

    offsets: Int64Array
    data: UInt8Array
    valid: BoolArray


class RowArrays(NamedTuple):
    """The fields of RowBuffers, with their meaning."""

    offsets: Int64Array
    timestamps_us: Int64Array
    timestamps_valid: BoolArray
    keys: ByteStrings
    values: ByteStrings
    header_offsets: Int64Array
    header_keys: ByteStrings
    header_values: ByteStrings


def row_arrays(rows: RowBuffers, *, fill: bool = False) -> RowArrays:
    """The arrays of rows: read-only, or those of the rows themselves, to be filled.

    Nothing is checked: for rows that this process makes.
    """

    def array(given: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return given if fill else readonly(given, dtype)

    def column(values: VarBytes) -> ByteStrings:
        return ByteStrings(array(values.offsets, np.int64), array(values.data, np.uint8), array(values.valid, np.bool_))

    return RowArrays(
        offsets=array(rows.offsets, np.int64),
        timestamps_us=array(rows.timestamps_us, np.int64),
        timestamps_valid=array(rows.timestamps_valid, np.bool_),
        keys=column(rows.keys),
        values=column(rows.values),
        header_offsets=array(rows.header_offsets, np.int64),
        header_keys=column(rows.header_keys),
        header_values=column(rows.header_values),
    )


def checked_arrays(rows: RowBuffers) -> RowArrays:
    """As :func:`row_arrays`, of rows that came from a store.

    Raises:
        SegmentError: corrupt_object, lengths or offsets of the arrays disagree.
    """
    arrays = row_arrays(rows)
    _check_column(arrays.keys, "keys")
    _check_column(arrays.values, "values")
    _check_column(arrays.header_keys, "header keys")
    _check_column(arrays.header_values, "header values")
    header_offsets, headers = arrays.header_offsets, len(arrays.header_keys.valid)
    columns = (arrays.timestamps_us, arrays.timestamps_valid, arrays.keys.valid, arrays.values.valid)
    lengths = {len(column) for column in columns} | {len(header_offsets) - 1}
    if lengths != {len(arrays.offsets)} or headers != len(arrays.header_values.valid):
        raise SegmentError("corrupt_object", "columns have different numbers of rows")
    if header_offsets[0] < 0 or header_offsets[-1] > headers or (np.diff(header_offsets) < 0).any():
        raise SegmentError("corrupt_object", "headers lie outside their columns")
    return arrays


def _check_column(column: ByteStrings, name: str) -> None:
    """Raises SegmentError unless every value lies inside the data."""
    offsets, data, valid = column
    if len(offsets) != len(valid) + 1 or offsets[0] < 0 or offsets[-1] > len(data) or (np.diff(offsets) < 0).any():
        raise SegmentError("corrupt_object", f"{name} lie outside their data")
