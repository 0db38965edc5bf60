"""Arrow arrays of any type that value columns may have, holding anything: nulls everywhere, edges, noise."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

_INTS = [0, 1, -1, 127, 128, 300, 999, 1000, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63)]
_TEXTS = ["", "a", "é", "😀", "ZERO", "ONE", "77", "-5", "-0", "007", str(2**64 - 1), str(2**64), "1" * 21]
_JSONS = [
    "{}",
    "[]",
    "null",
    '{"a":[1,2.5,null,true,"x"]}',
    "[[[{}]]]",
    "NaN",
    '"\\ud800"',
    "[" * 300,
    "1" * 5_000,
    "{",
]


def arbitrary(rnd: Random, kind: pa.DataType, count: int, nulls: float) -> pa.Array:
    """`count` values of a type, each null with the probability `nulls`; what is below a null is anything, too."""
    gone = np.array([rnd.random() < nulls for _ in range(count)], dtype=np.bool_)
    if pa.types.is_struct(kind):
        children = [arbitrary(rnd, field.type, count, nulls) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(gone))
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        offsets = np.cumsum([0, *(rnd.choice([0, 0, 1, 2, 9]) for _ in range(count))]).astype(np.int32)
        return _list(rnd, kind, offsets, gone, nulls)
    values = [None if lost else _one(rnd, kind) for lost in gone]
    return pa.array(values, kind)


def _list(rnd: Random, kind: pa.DataType, offsets: Any, gone: Any, nulls: float) -> pa.Array:
    """From its buffers: a null list may have elements. Keys are never null: Arrow itself ends the process for that."""
    bits = pa.py_buffer(np.packbits(~gone, bitorder="little"))
    size = int(offsets[-1])
    if pa.types.is_map(kind):
        parts = [arbitrary(rnd, kind.key_type, size, 0.0), arbitrary(rnd, kind.item_type, size, nulls)]
        values = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
    else:
        values = arbitrary(rnd, kind.value_type, size, nulls)
    return pa.Array.from_buffers(kind, len(gone), [bits, pa.py_buffer(offsets)], children=[values])


def _one(rnd: Random, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return rnd.random() < 0.5
    if pa.types.is_binary(kind):
        return rnd.randbytes(rnd.choice([0, 1, 5, 200]))
    if pa.types.is_string(kind):
        return rnd.choice([*_TEXTS, *_JSONS])
    if pa.types.is_decimal(kind):
        return pa.scalar(rnd.choice([*_INTS, 2**64 - 1]), pa.decimal128(38, 0)).as_py().scaleb(-kind.scale)
    if pa.types.is_floating(kind):
        return rnd.choice([0.0, -0.0, 0.1, 1e300, struct.unpack("<d", rnd.randbytes(8))[0]])
    low = -(2**31) if pa.types.is_int32(kind) or pa.types.is_date(kind) else -(2**63)
    number = max(low, min(-low - 1, rnd.choice([*_INTS, rnd.randint(low, -low - 1)])))
    return pa.scalar(number, pa.int32() if low == -(2**31) else pa.int64()).cast(kind)
