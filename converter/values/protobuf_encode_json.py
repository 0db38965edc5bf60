"""JSON text, as columns have it, back into google.protobuf's Struct, Value and ListValue.

The text does not say whether a Value was null or held nothing; here it was null. A map's entries stand in the order of
the text, which is that of deterministic writers: by the bytes of their keys.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

#: Messages within each other; protobuf_json.py can read no more.
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
