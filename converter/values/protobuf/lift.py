"""From the lowered arrays that both decoders give to the columns' arrays.

Rows that cannot become columns are told to a :class:`Findings`; their columns hold anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as attribute
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from converter.kernels.kernel import kernel, readonly
from converter.kernels.utf8 import valid_utf8
from converter.types import BoolArray, Int64Array, VarBytes
from converter.values.model import ValueProblem, error_text
from converter.values.protobuf.exact_rows import MALFORMED
from converter.values.protobuf.nodes import TIMESTAMP_PAIR, TIMESTAMP_TYPE, Field, ProtobufKind, ProtobufNode
from converter.values.protobuf.struct_json import json_text

#: Seconds of 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z: what a Timestamp may hold.
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799

_BAD_TEXT = error_text(ValueProblem.UNDECODABLE, "a string is not UTF-8")
_BAD_TIME = error_text(ValueProblem.OUT_OF_RANGE, "a Timestamp outside of the years 1 to 9999 or with wrong nanos")
_BAD_JSON = error_text(ValueProblem.OUT_OF_RANGE, "a number in a Struct or Value that JSON has not")


@dataclass(slots=True)
class Findings:
    """Rows that lifting could not do.

    Attributes:
        errors: row to error.
        unclear: rows that a decoder must read that knows which of several values counts.
    """

    errors: dict[int, str] = attribute(default_factory=dict)
    unclear: set[int] = attribute(default_factory=set)

    def add(self, row: int, error: str) -> None:
        """Keeps the row's first error; but that the bytes are wrong comes before what they say."""
        known = self.errors.get(row, "")
        worse = error.startswith(ValueProblem.UNDECODABLE) and not known.startswith(ValueProblem.UNDECODABLE)
        if not known or worse:
            self.errors[row] = error


#: From numbers of elements, wherever in the tree, to numbers of rows.
Rows = Callable[[Int64Array], Int64Array]


def lift(root: ProtobufNode, rows: pa.StructArray, findings: Findings) -> pa.StructArray:
    """The columns of the rows, none of them null."""
    return _Lift(findings).value(root, rows, lambda numbers: numbers)


class _Lift:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def value(self, node: ProtobufNode, array: pa.Array, rows: Rows) -> pa.Array:
        """An array of `node.type`; nulls stay null."""
        match node.kind:
            case ProtobufKind.PLAIN:
                return _widen(array, node.type)
            case ProtobufKind.TEXT:
                return self._text(array, rows)
            case ProtobufKind.ENUM:
                return _names(node, array)
            case ProtobufKind.STRUCT:
                return self._struct(node, array, rows)
            case ProtobufKind.EMPTY:
                return pc.if_else(array.is_valid(), True, pa.scalar(None, pa.bool_()))
            case ProtobufKind.TIMESTAMP:
                times, nanos = self._timestamp(array, rows)
                return pa.StructArray.from_arrays([times, nanos], fields=list(TIMESTAMP_PAIR), mask=array.is_null())
            case ProtobufKind.DURATION:
                return _duration(array)
            case ProtobufKind.WRAPPER | ProtobufKind.FIELD_MASK:
                content = self._field(node.fields[0], array, rows)[0]
                return pc.if_else(array.is_valid(), content, pa.scalar(None, content.type))
            case ProtobufKind.JSON:
                return self._json(node, array, rows)

    def _struct(self, node: ProtobufNode, array: pa.StructArray, rows: Rows) -> pa.StructArray:
        children = [column for field in node.fields for column in self._field(field, array, rows)]
        if not children:
            children = [pa.repeat(pa.scalar(True), len(array))]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(node.type), mask=mask)

    def _field(self, field: Field, array: pa.StructArray, rows: Rows) -> list[pa.Array]:
        """The columns of one field: two for a timestamp beside others, one for all else."""
        child = array.field(field.lowered_name)
        if field.key is not None:
            return [self._map(field, field.key, child, rows)]
        if field.repeated:
            values = self.value(field.node, child.values, _elements(child, rows))
            return [_list(child.offsets, values)]
        if field.default is not None:
            child = _fill(child, field.default)
        if field.has_pair:
            return list(self._timestamp(child, rows))
        return [self.value(field.node, child, rows)]

    def _map(self, field: Field, key: ProtobufNode, array: pa.ListArray, rows: Rows) -> pa.MapArray:
        inner = _elements(array, rows)
        entries = array.values
        keys = _fill(entries.field("f1"), False if pa.types.is_boolean(key.lowered) else _zero(key))
        values = entries.field("f2")
        if field.default is not None:
            values = _fill(values, field.default)
        else:
            self._unclear(_bools(values.is_null()), inner)
        doubled = has_duplicates(array.offsets, keys)
        self._unclear(doubled, rows)
        lifted = self.value(key, keys, inner)
        # A null key is no key: an error of its row is known.
        if lifted.null_count:
            lifted = _fill(lifted, "")
        return pa.MapArray.from_arrays(array.offsets, lifted, self.value(field.node, values, inner))

    def _text(self, array: pa.BinaryArray, rows: Rows) -> pa.StringArray:
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            ok = valid_utf8(_var_bytes(array)) | _bools(array.is_null())
            self._error(~ok, rows, _BAD_TEXT)
            return pc.if_else(pa.array(ok), array, pa.scalar(None, pa.binary())).cast(pa.string())

    def _timestamp(self, array: pa.StructArray, rows: Rows) -> tuple[pa.Array, pa.Array]:
        """Microseconds, and the nanoseconds below them, [0, 999]."""
        seconds, nanos, absent = _seconds_nanos(array)
        bad = (seconds < _SECONDS_MIN) | (seconds > _SECONDS_MAX) | (nanos < 0) | (nanos > 999_999_999)
        self._error(bad & ~absent, rows, _BAD_TIME)
        seconds = np.where(bad, 0, seconds)
        times = pa.array(seconds * 1_000_000 + nanos // 1_000, mask=absent).view(TIMESTAMP_TYPE)
        return times, pa.array((nanos % 1_000).astype(np.int32), mask=absent)

    def _json(self, node: ProtobufNode, array: pa.BinaryArray, rows: Rows) -> pa.StringArray:
        distinct = array.dictionary_encode()
        texts: list[str | None] = []
        errors: dict[int, str] = {}
        for number, data in enumerate(distinct.dictionary.to_pylist()):
            text = None
            try:
                text = json_text(node.message, data)
            except DecodeError:
                errors[number] = MALFORMED
            except ValueError:
                errors[number] = _BAD_JSON
            texts.append(text)
        codes = np.asarray(distinct.indices.fill_null(-1))
        for number, error in errors.items():
            self._error(codes == number, rows, error)
        return pa.array(texts, pa.string()).take(distinct.indices)

    def _error(self, bad: BoolArray, rows: Rows, error: str) -> None:
        if bad.any():
            for row in np.unique(rows(np.flatnonzero(bad))).tolist():
                self._findings.add(row, error)

    def _unclear(self, bad: BoolArray, rows: Rows) -> None:
        if bad.any():
            self._findings.unclear.update(rows(np.flatnonzero(bad)).tolist())


_NANO = pa.scalar(Decimal("0.000000001"), pa.decimal128(10, 9))


def _elements(array: pa.ListArray, rows: Rows) -> Rows:
    """Rows of a list's elements."""
    return lambda numbers: rows(np.searchsorted(np.asarray(array.offsets), numbers, side="right") - 1)


def _widen(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type == wanted else array.cast(wanted)


def _zero(node: ProtobufNode) -> Any:
    return b"" if pa.types.is_binary(node.lowered) else 0


def _fill(array: pa.Array, default: Any) -> pa.Array:
    return array.fill_null(pa.scalar(default, array.type)) if array.null_count else array


def _list(offsets: pa.Int32Array, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(pa.field("element", values.type)))


def _bools(array: pa.BooleanArray) -> BoolArray:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _seconds_nanos(array: pa.StructArray) -> tuple[Int64Array, Int64Array, BoolArray]:
    seconds = np.asarray(array.field("f1").fill_null(0), dtype=np.int64)
    nanos = np.asarray(array.field("f2").fill_null(0), dtype=np.int64)
    return seconds, nanos, _bools(array.is_null())


def _duration(array: pa.StructArray) -> pa.Array:
    """Seconds with nine digits after the point; they hold any Duration exactly."""
    seconds, nanos, absent = _seconds_nanos(array)
    whole = pa.array(seconds, mask=absent).cast(pa.decimal128(19, 0))
    parts = pc.multiply(pa.array(nanos).cast(pa.decimal128(19, 0)), _NANO)
    return pc.add(whole, parts).cast(pa.decimal128(28, 9))


def _names(node: ProtobufNode, array: pa.Int32Array) -> pa.StringArray:
    """Names of the numbers; a number without a name as decimal text."""
    known = sorted(node.names)
    numbers = np.array([number for number, _ in known], dtype=np.int32)
    values = np.asarray(array.fill_null(0), dtype=np.int32)
    places = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
    valid = _bools(array.is_valid())
    named = pa.array([name for _, name in known], pa.string()).take(pa.array(places, mask=~valid))
    unknown = valid & (numbers[places] != values)
    if unknown.any():
        named = pc.if_else(pa.array(unknown), array.cast(pa.string()), named)
    return named


def _var_bytes(array: pa.BinaryArray) -> VarBytes:
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return VarBytes(places, np.frombuffer(data, dtype=np.uint8), _bools(array.is_valid()))


_PAIRWISE_MAX = 16


def has_duplicates(offsets: pa.Int32Array, keys: pa.Array) -> BoolArray:
    """Per map, whether a key occurs more than once in it.

    Args:
        offsets: of n maps, n + 1 of them.
        keys: of all maps; bool, any integer or binary, without nulls.
    """
    places = np.asarray(offsets)
    out = np.zeros(max(len(places) - 1, 0), dtype=np.bool_)
    if len(keys):
        _find(readonly(places, np.int64), readonly(_codes(keys), np.int64), out)
    return out


def _codes(keys: pa.Array) -> Int64Array:
    """Numbers that are equal where the keys are."""
    if pa.types.is_binary(keys.type):
        keys = keys.dictionary_encode().indices
    numbers = np.asarray(keys.to_numpy(zero_copy_only=False))
    # Numbers beyond 2**63 become negative ones, each its own.
    return numbers.astype(np.int64)


@kernel
def _find(offsets: Int64Array, codes: Int64Array, out: BoolArray) -> None:
    for i in range(len(out)):
        start, end = offsets[i], offsets[i + 1]
        if end - start > _PAIRWISE_MAX:
            ordered = np.sort(codes[start:end])
            for k in range(1, len(ordered)):
                if ordered[k] == ordered[k - 1]:
                    out[i] = True
                    break
            continue
        for a in range(start + 1, end):
            for b in range(start, a):
                if codes[a] == codes[b]:
                    out[i] = True
