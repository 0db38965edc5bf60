"""Protobuf values of every type, written by google.protobuf's messages; what columns they are says tests/oracle."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.oracle.protobuf import expected, message_class
from tests.oracle.protobuf_messages import fill
from tests.support.typed_case import Kind

NAME = "shop.Everything"
MONEY_PATH = "shop/money.proto"
_MONEY = "message Money { int64 units = 1; sint32 nanos = 2; }\n"
MONEY = f'syntax = "proto3";\npackage shop;\n{_MONEY}'
_WELL_KNOWN = ("duration", "field_mask", "struct", "timestamp", "wrappers")
_HEAD = 'syntax = "proto3";\npackage shop;\n' + "".join(
    f'import "google/protobuf/{name}.proto";\n' for name in _WELL_KNOWN
)
_BODY = """
enum Suit { NONE = 0; CLUBS = 1; OWED = -3; }
message Leaf { uint32 a = 1; bytes b = 2; }
message Nothing {}
message Everything {
  int32 i32 = 1; sint32 s32 = 2; sfixed32 f32 = 3; uint32 u32 = 4; fixed32 x32 = 5;
  int64 i64 = 6; sint64 s64 = 7; sfixed64 f64 = 8; uint64 u64 = 9; fixed64 x64 = 10;
  float single = 11; double twice = 12; bool flag = 13; string text = 14; bytes raw = 15;
  Suit suit = 16; Leaf leaf = 17; Nothing nothing = 18; Money price = 19;
  optional int32 maybe = 20; optional string maybe_text = 21;
  oneof choice { int32 number = 22; string word = 23; Leaf grown = 24; }
  repeated sint64 packed = 25; repeated int32 loose = 26 [packed = false];
  repeated string words = 27; repeated Leaf leaves = 28; repeated Suit suits = 29;
  map<string, double> scores = 30; map<int32, Leaf> by_number = 31; map<bool, bytes> by_flag = 32;
  map<uint64, string> by_unsigned = 33; map<string, Suit> by_text = 34;
  google.protobuf.Timestamp at = 35; google.protobuf.Duration took = 36; google.protobuf.FieldMask mask = 37;
  google.protobuf.Struct document = 38; google.protobuf.Value anything = 39; google.protobuf.ListValue listed = 40;
  google.protobuf.Int32Value int32_wrapped = 41; google.protobuf.UInt64Value uint64_wrapped = 42;
  google.protobuf.StringValue text_wrapped = 43; google.protobuf.BoolValue flag_wrapped = 44;
  google.protobuf.DoubleValue double_wrapped = 45; google.protobuf.BytesValue bytes_wrapped = 46;
  repeated google.protobuf.Timestamp moments = 47; map<string, google.protobuf.Timestamp> by_moment = 48;
  Everything within = 49;
  message Inner { message Deep { repeated uint64 much = 1; } Deep deep = 1; map<string, Deep> more = 2; }
  Inner inner = 50;
}
"""
#: In one file, after a message of another: of no use without its name, or the wire format's index path.
WHOLE = f"{_HEAD}{_MONEY}{_BODY}"
#: The same message, first of its file, which imports the other.
IMPORTING = f'{_HEAD}import "{MONEY_PATH}";\n{_BODY}'
#: Index paths of the wire format as zigzag varints: how many, and each number. [3] of IMPORTING, [4] of WHOLE.
_INDEXES = {IMPORTING: b"\x02\x04", WHOLE: b"\x02\x06"}


def values(count: int) -> list[bytes]:
    """The first is empty, so that each field is absent once."""
    rnd = Random(37)
    message = _message()
    made = [b""]
    while len(made) < count:
        value = fill(rnd, message(), 2).SerializeToString()
        if not isinstance(expected(message, value), str):
            made.append(value)
    return made


@cache
def _message() -> Any:
    return message_class(protobuf_schema(WHOLE), NAME)


def columns(value: bytes) -> dict[str, Any]:
    """Maps are plain dicts here; agree() of tests/oracle/protobuf.py takes them so."""
    found = expected(_message(), value)
    assert isinstance(found, dict), found
    return found


def protobuf(*, importing: bool) -> Kind:
    """`importing`: with a schema of two files, which a rule cannot hold."""
    schema, imports = (IMPORTING, {MONEY_PATH: MONEY}) if importing else (WHOLE, {})
    return Kind("protobuf", schema, values(60), columns, imports, _INDEXES[schema], NAME)
