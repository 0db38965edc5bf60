"""Rows from Arrow back to the buffers rebuild() takes: for rows that did not come through the page reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter import columns
from converter.rows import merge_values
from converter.types import BoolArray, RowBuffers, VarBytes


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
