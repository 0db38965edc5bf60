"""Random Arrow arrays of a type, as no decoder would make them: nulls anywhere, offsets, data beneath nulls."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

_TEXTS = ["", "A", "B", "CC", "é", "🦆", "0", "-1", "1.5", "x" * 200, "12345678-1234-1234-1234-123456789abc", "0" * 36]
_WHOLE = [0, 1, -1, 63, 64, 1000, -1000, 2**31 - 1, -(2**31)]
_LONG = [*_WHOLE, 86_400_000_000, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
_DOUBLES = [0.0, -0.0, 1.5, 0.1, 1e300, 5e-324, float("inf"), float("nan")]


def any_column(kind: pa.DataType, size: int, rng: random.Random) -> pa.Array:
    """An array of this many values, a slice of a longer one."""
    before, after = rng.choice([0, 1, 9]), rng.choice([0, 3])
    return _array(kind, before + size + after, rng, rng.choice([0.0, 0.0, 0.0, 0.1, 0.7, 1.0])).slice(before, size)


def _array(kind: pa.DataType, size: int, rng: random.Random, share: float) -> pa.Array:
    mask = np.array([rng.random() < share for _ in range(size)], np.bool_)
    valid = None if not mask.any() else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    if pa.types.is_struct(kind):
        children = [any_column(field.type, size, rng) for field in kind]
        return pa.StructArray.from_buffers(kind, size, [valid], children=children)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        lengths = [rng.choice([0, 1, 2, rng.randint(0, 20)] if size < 100 else [0, 0, 1, 2]) for _ in range(size)]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32) + rng.choice([0, 2])
        inner = int(offsets[-1])
        if pa.types.is_list(kind):
            children = [any_column(kind.value_type, inner, rng)]
        else:
            entries = pa.struct([kind.key_field, kind.item_field])
            # Arrow ends the process where a key is null.
            parts = [_array(kind.key_type, inner, rng, 0.0), any_column(kind.item_type, inner, rng)]
            children = [pa.StructArray.from_buffers(entries, inner, [None], children=parts)]
        return type(pa.array([], kind)).from_buffers(kind, size, [valid, pa.py_buffer(offsets)], children=children)
    return pa.array(_leaves(kind, size, rng), kind, mask=mask)


def _leaves(kind: pa.DataType, size: int, rng: random.Random) -> Any:
    if pa.types.is_boolean(kind):
        return np.array([rng.random() < 0.7 for _ in range(size)], np.bool_)
    if pa.types.is_integer(kind):
        edges = _WHOLE if kind == pa.int32() else _LONG
        return np.array([rng.choice(edges) for _ in range(size)], np.int64)
    if pa.types.is_timestamp(kind):
        return np.array([rng.choice(_LONG[:-1]) for _ in range(size)], "datetime64[us]")
    if pa.types.is_date(kind):
        return np.array([rng.choice(_WHOLE) for _ in range(size)], "datetime64[D]")
    if pa.types.is_float64(kind):
        return np.array([rng.choice(_DOUBLES) for _ in range(size)], np.float64)
    if pa.types.is_decimal(kind):
        limit = 10**kind.precision - 1
        numbers = [0, 1, -1, limit, -limit, rng.randint(-limit, limit)]
        exact = [Decimal(f"{number}e-{kind.scale}") for number in numbers]
        return np.array([rng.choice(exact) for _ in range(size)], object)
    choice = [rng.choice([*_TEXTS, str(rng.getrandbits(200))]) for _ in range(size)]
    return np.array([text.encode() if pa.types.is_binary(kind) else text for text in choice], object)
