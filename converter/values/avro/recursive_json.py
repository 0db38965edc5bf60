"""Avro's JSON encoding (specification 1.12, "JSON Encoding") of values whose type lies within itself.

Reads bytes that the kernel has checked: nothing is checked again. One Python step per value. Bytes are texts of
U+0000 to U+00FF, a union's value is null or an object with the branch's name, the numbers JSON lacks are the texts
"NaN", "Infinity" and "-Infinity". Logical types are left out: what is written is the value below.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Final

from converter.values.avro.schema import AvroType, Kind, Names

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class Json:
    """Writes values of one schema's types as JSON texts. Immutable."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def text(self, node: AvroType, value: bytes) -> str:
        """One value of type `node`, whose encoding is exactly `value`."""
        parts: list[str] = []
        self._write(node, value, 0, parts)
        return "".join(parts)

    def _write(self, node: AvroType, data: bytes, p: int, out: list[str]) -> int:
        """Adds the value at p to `out`; returns the position after it."""
        node = self._names.resolve(node)
        match node.kind:
            case Kind.RECORD:
                return self._record(node, data, p, out)
            case Kind.UNION:
                return self._union(node, data, p, out)
            case Kind.ARRAY | Kind.MAP:
                return self._blocks(node, data, p, out)
            case Kind.BYTES | Kind.STRING:
                size, p = _varint(data, p)
                return _sized(node, data, p, size, out)
            case Kind.FIXED:
                return _sized(node, data, p, node.size, out)
            case Kind.FLOAT:
                out.append(_number(_FLOAT.unpack_from(data, p)[0]))
                return p + 4
            case Kind.DOUBLE:
                out.append(_number(_DOUBLE.unpack_from(data, p)[0]))
                return p + 8
            case _:
                return _word(node, data, p, out)

    def _record(self, node: AvroType, data: bytes, p: int, out: list[str]) -> int:
        out.append("{")
        for i, member in enumerate(node.members):
            out.append(f"{',' if i else ''}{_quoted(member.name)}:")
            p = self._write(member.type, data, p, out)
        out.append("}")
        return p

    def _union(self, node: AvroType, data: bytes, p: int, out: list[str]) -> int:
        branch, p = _varint(data, p)
        part = self._names.resolve(node.parts[branch])
        if part.kind is Kind.NULL:
            out.append("null")
            return p
        out.append(f"{{{_quoted(part.name or part.kind.value)}:")
        p = self._write(part, data, p, out)
        out.append("}")
        return p

    def _blocks(self, node: AvroType, data: bytes, p: int, out: list[str]) -> int:
        first = True
        out.append("[" if node.kind is Kind.ARRAY else "{")
        while True:
            count, p = _varint(data, p)
            if count == 0:
                break
            if count < 0:
                _, p = _varint(data, p)
            for _ in range(abs(count)):
                if not first:
                    out.append(",")
                first = False
                if node.kind is Kind.MAP:
                    size, p = _varint(data, p)
                    out.append(f"{_quoted(data[p : p + size].decode())}:")
                    p += size
                p = self._write(node.parts[0], data, p, out)
        out.append("]" if node.kind is Kind.ARRAY else "}")
        return p


def _word(node: AvroType, data: bytes, p: int, out: list[str]) -> int:
    """null, boolean, int, long, enum."""
    if node.kind is Kind.NULL:
        out.append("null")
        return p
    if node.kind is Kind.BOOLEAN:
        out.append("true" if data[p] else "false")
        return p + 1
    value, p = _varint(data, p)
    out.append(_quoted(node.symbols[value]) if node.kind is Kind.ENUM else str(value))
    return p


def _sized(node: AvroType, data: bytes, p: int, size: int, out: list[str]) -> int:
    encoding = "utf-8" if node.kind is Kind.STRING else "iso-8859-1"
    out.append(_quoted(data[p : p + size].decode(encoding)))
    return p + size


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _varint(data: bytes, p: int) -> tuple[int, int]:
    raw = shift = 0
    while data[p] > 0x7F:
        raw |= (data[p] & 0x7F) << shift
        shift += 7
        p += 1
    raw = (raw | data[p] << shift) & (2**64 - 1)
    return (raw >> 1) ^ -(raw & 1), p + 1
