"""Compact columns of the rows of a step, as the kernels fill them and as Arrow takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.batches.records import HEADER_KEY_BYTES, HEADER_VALUE_BYTES, HEADERS, KEY_BYTES, VALUE_BYTES
from converter.kernels.kernel import kernel, readonly
from converter.kernels.memory import copy
from converter.kernels.utf8 import replace_invalid, valid_utf8
from converter.parquet import columns
from converter.parquet.columns import row_schema
from converter.types import BoolArray, Int64Array, RowBuffers, UInt8Array, ValueFormat, VarBytes


def _empty_column(count: int, size: int) -> VarBytes:
    offsets = np.empty(count + 1, dtype=np.int64)
    offsets[0] = 0
    return VarBytes(offsets, np.empty(size, dtype=np.uint8), np.empty(count, dtype=np.bool_))


@dataclass(slots=True)
class StepRows:
    """Rows of one step. `buffers` is what rebuild() takes; the timestamp type is no part of that."""

    buffers: RowBuffers
    timestamp_types: npt.NDArray[np.int32]

    @classmethod
    def allocate(cls, count: int, sums: Int64Array) -> StepRows:
        """Columns for `count` rows; `sums` are the measures of records.py, added up over the batches."""
        header_offsets = np.empty(count + 1, dtype=np.int64)
        header_offsets[0] = 0
        buffers = RowBuffers(
            offsets=np.empty(count, dtype=np.int64),
            timestamps_us=np.empty(count, dtype=np.int64),
            timestamps_valid=np.empty(count, dtype=np.bool_),
            keys=_empty_column(count, int(sums[KEY_BYTES])),
            values=_empty_column(count, int(sums[VALUE_BYTES])),
            header_offsets=header_offsets,
            header_keys=_empty_column(int(sums[HEADERS]), int(sums[HEADER_KEY_BYTES])),
            header_values=_empty_column(int(sums[HEADERS]), int(sums[HEADER_VALUE_BYTES])),
        )
        return cls(buffers, np.empty(count, dtype=np.int32))

    def replace_bad_header_names(self) -> None:
        """Header names are a string column: make the names that are not UTF-8 readable. Such batches are kept."""
        names = self.buffers.header_keys
        ok = valid_utf8(names)
        if not ok.all():
            self.buffers.header_keys = replace_invalid(names, ok)

    def record_batch(self, partition: int, value_format: ValueFormat) -> pa.RecordBatch:
        """The rows in the schema of columns.py. Byte buffers are shared, not copied."""
        rows = self.buffers
        count = len(rows.offsets)
        values = rows.values
        sizes = np.diff(values.offsets).astype(np.int32)
        headers = _list(rows.header_offsets, rows.header_keys, rows.header_values)
        arrays: dict[str, pa.Array] = {
            columns.PARTITION: _fixed(pa.int32(), np.full(count, partition, dtype=np.int32)),
            columns.OFFSET: _fixed(pa.int64(), rows.offsets),
            columns.TIMESTAMP: _fixed(pa.timestamp("us", tz="UTC"), rows.timestamps_us, rows.timestamps_valid),
            columns.TIMESTAMP_TYPE: _fixed(pa.int32(), self.timestamp_types),
            columns.KEY: binary_array(pa.binary(), rows.keys),
            columns.HEADERS: headers,
            columns.RAW_VALUE: binary_array(pa.binary(), values),
            columns.VALUE_SIZE: _fixed(pa.int32(), sizes, values.valid),
        }
        if value_format == "string":
            text, other, error = split_values(values)
            arrays[columns.VALUE] = binary_array(pa.string(), text)
            arrays[columns.RAW_VALUE] = binary_array(pa.binary(), other)
            arrays[columns.ERROR] = error
        schema = row_schema(value_format)
        return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def split_values(values: VarBytes) -> tuple[VarBytes, VarBytes, pa.Array]:
    """(valid UTF-8, the rest, errors): the columns `value`, `_kafka_value` and `_kafka_error` of the string rule."""
    ok = valid_utf8(values)
    if ok.all():
        return values, _all_null(len(values)), pa.nulls(len(values), pa.string())
    bad = ~ok
    word = np.frombuffer(columns.ERROR_INVALID_UTF8.encode(), dtype=np.uint8)
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(np.where(bad, len(word), 0), out=offsets[1:])
    # Not pa.array(): given numpy arrays it imports pandas, which takes seconds.
    error = binary_array(pa.string(), VarBytes(offsets, np.tile(word, int(bad.sum())), bad))
    return _masked(values, ok), _masked(values, bad), error


def merge_values(first: VarBytes, second: VarBytes) -> VarBytes:
    """Inverse of split_values(): of two columns of which at most one has a value in a row, whichever has it.

    Caller's promise: both are consistent and equally long. Where both are valid, the first is taken.
    """
    second_only = second.valid & ~first.valid
    if not second_only.any():
        return first
    data = np.concatenate([first.data, second.data])
    starts = np.where(second_only, second.offsets[:-1] + len(first.data), first.offsets[:-1])
    ends = np.where(second_only, second.offsets[1:] + len(first.data), first.offsets[1:])
    return _gathered(data, starts, ends, first.valid | second.valid)


def _masked(column: VarBytes, keep: BoolArray) -> VarBytes:
    """The column, null where `keep` is False."""
    ends = np.where(keep, column.offsets[1:], column.offsets[:-1])
    return _gathered(column.data, column.offsets[:-1], ends, column.valid & keep)


def _gathered(data: UInt8Array, starts: Int64Array, ends: Int64Array, valid: BoolArray) -> VarBytes:
    """A compact column of the ranges [start, end) of data."""
    sizes = np.where(valid, ends - starts, 0)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    _copy_ranges(readonly(data, np.uint8), readonly(starts, np.int64), readonly(offsets, np.int64), out)
    return VarBytes(offsets, out, valid)


@kernel
def _copy_ranges(data: UInt8Array, starts: Int64Array, offsets: Int64Array, out: UInt8Array) -> None:
    """Caller's promise: `out` has the bytes that `offsets` says, and data has as many from each start on."""
    for i in range(len(starts)):
        size = offsets[i + 1] - offsets[i]
        if size > 0:
            copy(out, offsets[i], data, starts[i], size)


def _all_null(count: int) -> VarBytes:
    return VarBytes(np.zeros(count + 1, dtype=np.int64), np.empty(0, dtype=np.uint8), np.zeros(count, dtype=np.bool_))


def _validity(valid: BoolArray | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _fixed(kind: pa.DataType, values: npt.NDArray[Any], valid: BoolArray | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [_validity(valid), pa.py_buffer(values)])


def binary_array(kind: pa.DataType, column: VarBytes) -> pa.Array:
    """A column as an array of strings or byte strings; bytes are shared."""
    offsets = pa.py_buffer(column.offsets.astype(np.int32))
    buffers = [_validity(column.valid), offsets, pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, len(column), buffers)


def _list(offsets: Int64Array, names: VarBytes, values: VarBytes) -> pa.Array:
    """Headers; a record without headers has an empty list, never null."""
    kind = row_schema("raw").field(columns.HEADERS).type
    struct = pa.StructArray.from_arrays(
        [binary_array(pa.string(), names), binary_array(pa.binary(), values)], fields=list(kind.value_type)
    )
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32))], children=[struct]
    )


def row_buffers(rows: pa.RecordBatch) -> RowBuffers:
    """The buffers of rows in the schema of columns.py, either value format.

    Raises:
        KeyError: a column is missing.
        pyarrow.ArrowInvalid: a column has another type.
    """
    headers = rows.column(columns.HEADERS)
    # Offsets of a sliced list start anywhere; entries before the first are cut off below.
    list_offsets = np.asarray(headers.offsets, dtype=np.int64)
    entries = headers.values.slice(int(list_offsets[0]), int(list_offsets[-1] - list_offsets[0]))
    values = var_bytes(rows.column(columns.RAW_VALUE))
    if columns.VALUE in rows.schema.names:
        values = merge_values(var_bytes(rows.column(columns.VALUE)), values)
    timestamps = rows.column(columns.TIMESTAMP)
    return RowBuffers(
        offsets=_numbers(rows.column(columns.OFFSET)),
        timestamps_us=_numbers(timestamps.cast(pa.timestamp("us")).view(pa.int64())),
        timestamps_valid=_valid(timestamps),
        keys=var_bytes(rows.column(columns.KEY)),
        values=values,
        header_offsets=list_offsets - list_offsets[0],
        header_keys=var_bytes(entries.field(0)),
        header_values=var_bytes(entries.field(1)),
    )


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(array.fill_null(0), dtype=np.int64)


def _valid(array: pa.Array) -> BoolArray:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def var_bytes(array: pa.Array) -> VarBytes:
    """A column of byte strings or strings; buffers are shared where they can be."""
    binary = array.cast(pa.large_binary())
    _, offsets_buffer, data = binary.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[binary.offset : binary.offset + len(binary) + 1]
    if len(offsets) == 0:
        offsets = np.zeros(1, dtype=np.int64)
    content = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return VarBytes(offsets, content, _valid(binary))
