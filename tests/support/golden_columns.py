"""Columns as JSON, exactly: for files of columns and the bytes they are encoded as.

Structs are objects, maps lists of pairs; binary is hexadecimal, so are the eight bytes of a double; decimals are texts,
points in time and dates the numbers they are made of.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa


def to_json(array: pa.Array) -> list[Any]:
    """The values of an array."""
    return [None if gone else value for gone, value in zip(array.is_null().to_pylist(), _values(array), strict=True)]


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        children = [to_json(array.field(i)) for i in range(kind.num_fields)]
        return [dict(zip(kind.names, (child[i] for child in children), strict=True)) for i in range(len(array))]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        inner = to_json(array.values)
        inner = [list(pair.values()) for pair in inner] if pa.types.is_map(kind) else inner
        bounds = array.offsets.to_pylist()
        return [inner[bounds[i] : bounds[i + 1]] for i in range(len(array))]
    if pa.types.is_float64(kind):
        return [f"{bits & (2**64 - 1):016x}" for bits in array.fill_null(0.0).view(pa.int64()).to_pylist()]
    if pa.types.is_binary(kind):
        return [(value or b"").hex() for value in array.to_pylist()]
    if pa.types.is_decimal(kind):
        return [str(value) for value in array.to_pylist()]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return list(array.view(pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).to_pylist())
    return list(array.to_pylist())


def of_json(values: list[Any], kind: pa.DataType) -> pa.Array:
    """What to_json() was given, of this type."""
    gone = pa.array([value is None for value in values], pa.bool_())
    if pa.types.is_struct(kind):
        children = [of_json([value and value[field.name] for value in values], field.type) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=gone)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = pa.array(np.concatenate(([0], np.cumsum([len(value or []) for value in values]))), pa.int32())
        items = [item for value in values for item in value or []]
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(offsets, of_json(items, kind.value_type), type=kind, mask=gone)
        keys, inner = of_json([k for k, _ in items], kind.key_type), of_json([v for _, v in items], kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, inner, type=kind, mask=gone)
    if pa.types.is_float64(kind):
        bits = np.array([int(value or "0", 16) for value in values], np.uint64)
        return pa.array(bits.view(np.float64), mask=gone.to_numpy(zero_copy_only=False))
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else bytes.fromhex(value) for value in values], kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.array(values, pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).view(kind)
    return pa.array(values, kind)
