"""A writer's columns become the table's: picked, cast without loss, or null where the writer has none.

Rows stay rows: nothing is filtered, no value is looked at one by one. What lies under a null (Arrow leaves it open what
a null struct's children or a null list's range hold) is never seen in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from converter.values.model import Bound

#: Values of one leaf as another type.
Cast = Callable[[pa.Array, pa.DataType], pa.Array]


def project(columns: pa.StructArray, bound: Sequence[Bound], target: pa.StructType) -> pa.StructArray:
    """The table's columns of some rows.

    Args:
        columns: the writer's struct, any slice; null where a value did not decode.
        bound: one per field of `target`, in its order.
        target: the table's columns. Their metadata (Parquet field ids), nested ones too, is in the result's type.

    Returns:
        An array of the same length and of type `target`: null where `columns` is null, and null in every field that
        has no source.

    Raises:
        ValueError: the binding does not fit: it names a field the writer has not, has another shape than `target`, or
            asks for a cast that could lose something. Never because of a value.
    """
    return _struct(columns, bound, target, _widened)


def project_back(columns: pa.StructArray, bound: Sequence[Bound], target: pa.StructType) -> pa.StructArray:
    """A writer's columns from the table's, as :func:`project` would have got them.

    Raises:
        ValueError: the binding does not fit. A value that the writer's type cannot hold becomes another.
    """
    return _struct(columns, bound, target, _narrowed)


def _cast(values: pa.Array, bound: Bound, target: pa.DataType, leaf: Cast) -> pa.Array:
    source = values.type
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return _struct(values, bound.children, target, leaf)
    if pa.types.is_map(target) and pa.types.is_map(source):
        return _map(values, bound, target, leaf)
    if pa.types.is_list(target) and pa.types.is_list(source):
        return _list(values, bound, target, leaf)
    return values if source == target else leaf(values, target)


def _widened(values: pa.Array, target: pa.DataType) -> pa.Array:
    if _is_wider_decimal(values.type, target):
        # The same digits in the same 16 bytes. A checked cast could fail over what lies under a null.
        return values.view(target)
    if _is_wider_number(values.type, target):
        return values.cast(target)
    raise ValueError(f"a column of type {target} cannot be filled from {values.type}")


def _narrowed(values: pa.Array, target: pa.DataType) -> pa.Array:
    if _is_wider_decimal(target, values.type):
        return values.view(target)
    if _is_wider_number(target, values.type):
        return values.cast(target, safe=False)
    raise ValueError(f"a column of type {target} was never widened to {values.type}")


def _is_wider_decimal(source: pa.DataType, target: pa.DataType) -> bool:
    both = pa.types.is_decimal128(source) and pa.types.is_decimal128(target)
    return bool(both and source.scale == target.scale and source.precision <= target.precision)


def _is_wider_number(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(pa.types.is_int32(source) and (pa.types.is_int64(target) or pa.types.is_float64(target)))


def _struct(values: pa.StructArray, bound: Sequence[Bound], target: pa.StructType, leaf: Cast) -> pa.StructArray:
    if len(bound) != target.num_fields:
        raise ValueError(f"{len(bound)} bindings for the {target.num_fields} fields of {target}")
    children = []
    for item, wanted in zip(bound, target, strict=True):
        if item.source is None:
            children.append(pa.nulls(len(values), wanted.type))
        elif 0 <= item.source < values.type.num_fields:
            children.append(_cast(values.field(item.source), item, wanted.type, leaf))
        else:
            raise ValueError(f"column {wanted.name} is bound to field {item.source} of {values.type}")
    return _assembled(target, values, [], children)


def _list(values: pa.ListArray, bound: Bound, target: pa.ListType, leaf: Cast) -> pa.ListArray:
    element = _only_child(bound, target)
    offsets, (held,) = _window(values, [values.values])
    return _assembled(target, values, [offsets], [_cast(held, element, target.value_type, leaf)])


def _map(values: pa.MapArray, bound: Bound, target: pa.MapType, leaf: Cast) -> pa.MapArray:
    value = _only_child(bound, target)
    if values.type.key_type != target.key_type:
        raise ValueError(f"a map with keys of type {target.key_type} cannot be filled from {values.type}")
    offsets, (keys, items) = _window(values, [values.keys, values.items])
    fields = [target.key_field, target.item_field]
    entries = pa.StructArray.from_arrays([keys, _cast(items, value, target.item_type, leaf)], fields=fields)
    return _assembled(target, values, [offsets], [entries])


def _only_child(bound: Bound, target: pa.DataType) -> Bound:
    if len(bound.children) != 1:
        raise ValueError(f"{len(bound.children)} bindings for what {target} holds")
    return bound.children[0]


def _window(values: pa.Array, children: list[pa.Array]) -> tuple[pa.Buffer, list[pa.Array]]:
    """Offsets that begin with 0, and of what all lists hold the part they speak of; nothing of what a null hides."""
    if not len(values):
        return pa.py_buffer(np.zeros(1, np.int32)), [child[:0] for child in children]
    offsets = values.offsets.to_numpy()
    lengths = np.diff(offsets)
    held = [child[int(offsets[0]) : int(offsets[-1])] for child in children]
    if values.null_count and np.any(lengths[mask := _mask(values)]):
        seen = pa.array(np.repeat(~mask, lengths))
        held = [child.filter(seen) for child in held]
        lengths = np.where(mask, 0, lengths)
    return pa.py_buffer(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)), held


def _assembled(target: pa.DataType, like: pa.Array, buffers: list[pa.Buffer], children: list[pa.Array]) -> Any:
    """An array of the target's type with the nulls of `like`."""
    return pa.Array.from_buffers(target, len(like), [_validity(like), *buffers], like.null_count, children=children)


def _validity(values: pa.Array) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~_mask(values), bitorder="little")) if values.null_count else None


def _mask(values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where null."""
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
