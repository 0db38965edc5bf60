"""google.protobuf's Struct, Value and ListValue as JSON text.

One text per value, whatever order its fields came in: keys sorted, no spaces, no escapes that JSON does not need.
Numbers are doubles: whole ones below 2**53 without a point, others in the fewest digits that give the same double.
"""

from __future__ import annotations

import json
import math
from typing import Any

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
