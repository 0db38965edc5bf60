"""google.protobuf's Struct, Value and ListValue as JSON text.

One text per value, whatever order its fields came in: keys sorted, no spaces, no escapes that JSON does not need.
Numbers are doubles: whole ones below 2**53 without a point, others in the fewest digits that give the same double.

JSON text, as columns have it, back into google.protobuf's Struct, Value and ListValue.

The text does not say whether a Value was null or held nothing; here it was null. A map's entries stand in the order of
the text, which is that of deterministic writers: by the bytes of their keys.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

from google.protobuf import struct_pb2
from google.protobuf.message import Message

_TYPES: dict[str, type[Message]] = {
    "google.protobuf.Struct": struct_pb2.Struct,
    "google.protobuf.Value": struct_pb2.Value,
    "google.protobuf.ListValue": struct_pb2.ListValue,
}


def json_text(message: str, data: bytes) -> str:
    """The JSON text of a serialized message of one of the three types.

    Raises:
        google.protobuf.message.DecodeError: the bytes are no such message.
        ValueError: a number that JSON has not: infinite, or not a number.
    """
    parsed = _TYPES[message].FromString(data)
    return json.dumps(_plain(parsed), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    # Depth is bounded: the parser gives up at a hundred messages within each other.
    if isinstance(value, struct_pb2.Struct):
        return {name: _plain(item) for name, item in value.fields.items()}
    if isinstance(value, struct_pb2.ListValue):
        return [_plain(item) for item in value.values]
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    content = getattr(value, kind)
    if kind == "number_value":
        return _number(content)
    return _plain(content) if kind in {"struct_value", "list_value"} else content


def _number(value: float) -> float | int:
    if value.is_integer() and abs(value) < 2**53 and (value != 0 or math.copysign(1, value) > 0):
        return int(value)
    return value


#: Messages within each other; struct_json.py can read no more.
_DEPTH_MAX: Final = 100
_NULL, _NUMBER, _STRING, _BOOL = b"\x08\x00", b"\x11", b"\x1a", b"\x20"
_FIRST, _SECOND, _STRUCT, _LIST = b"\x0a", b"\x12", b"\x2a", b"\x32"


def json_message(message: str, text: bytes) -> bytes | None:
    """A serialized message of one of the three types.

    Args:
        message: its full name.
        text: JSON.

    Returns:
        None where the text is no JSON, or no value of this type.
    """
    try:
        value = json.loads(text.decode(), parse_int=float, parse_constant=_no_number)
        if message == "google.protobuf.Value":
            return _value(value, _DEPTH_MAX)
        if message == "google.protobuf.Struct":
            return _struct(value, _DEPTH_MAX) if isinstance(value, dict) else None
        return _list(value, _DEPTH_MAX) if isinstance(value, list) else None
    except (ValueError, RecursionError):
        return None


def _no_number(text: str) -> float:
    raise ValueError(text)


def _value(value: Any, depth: int) -> bytes:
    if depth == 0:
        raise ValueError("too deep")
    match value:
        case None:
            return _NULL
        case bool():
            return _BOOL + (b"\x01" if value else b"\x00")
        case float():
            return _NUMBER + struct.pack("<d", value)
        case str():
            return _sized(_STRING, value.encode())
        case dict():
            return _sized(_STRUCT, _struct(value, depth))
        case _:
            return _sized(_LIST, _list(value, depth))


def _struct(members: dict[str, Any], depth: int) -> bytes:
    return b"".join(
        _sized(_FIRST, _sized(_FIRST, name.encode()) + _sized(_SECOND, _value(value, depth - 1)))
        for name, value in members.items()
    )


def _list(items: list[Any], depth: int) -> bytes:
    return b"".join(_sized(_FIRST, _value(item, depth - 1)) for item in items)


def _sized(tag: bytes, content: bytes) -> bytes:
    size, out = len(content), bytearray(tag)
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + content
