"""Protobuf values: each row of docs/types.md, and the rows that a quick decoder would get wrong."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from converter.values.model import SchemaTextError, too_many_cells
from converter.values.protobuf import decoder as protobuf
from converter.values.protobuf import schema as schema_module
from converter.values.protobuf.decoder import protobuf_decoder
from converter.values.protobuf.nodes import COLUMNS_MAX, DEPTH_MAX, NUMBER
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.oracle.protobuf import message_class
from tests.oracle.protobuf_messages import varint

WKT = "google.protobuf."
TIME = pa.timestamp("us", tz="UTC")
LEAF = pa.struct([("a", pa.int64()), ("b", pa.binary())])
ANY = pa.struct([("type_url", pa.string()), ("value", pa.binary())])
ENUM = "enum E { ZERO = 0; ONE = 1; MINUS = -3; }"
NESTED = "message Leaf { uint32 a = 1; bytes b = 2; } message Nothing {}"


def schema(body: str, syntax: str = "proto3") -> bytes:
    imports = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
    lines = "".join(f'import "google/protobuf/{name}.proto";' for name in imports)
    others = ENUM + NESTED if syntax == "proto3" else ""
    return protobuf_schema(f'syntax = "{syntax}"; {lines} message M {{ {body} }} {others}')


def rows(files: bytes, values: list[bytes], message: str = "M") -> list[Any]:
    result = protobuf_decoder(files, message).decode(pa.array(values, pa.binary()))
    result.columns.validate(full=True)
    pairs = zip(result.columns.to_pylist(), result.errors.to_pylist(), strict=True)
    return [columns if error is None else error for columns, error in pairs]


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


TYPES: list[tuple[str, Any, tuple[pa.DataType, Any, Any]]] = [
        ("int32 f = 1;", -(2**31), (pa.int32(), 0, -(2**31))),
        ("sint32 f = 1;", -1, (pa.int32(), 0, -1)),
        ("sfixed32 f = 1;", -1, (pa.int32(), 0, -1)),
        ("uint32 f = 1;", 2**32 - 1, (pa.int64(), 0, 2**32 - 1)),
        ("fixed32 f = 1;", 2**32 - 1, (pa.int64(), 0, 2**32 - 1)),
        ("int64 f = 1;", -(2**63), (pa.int64(), 0, -(2**63))),
        ("sint64 f = 1;", -(2**63), (pa.int64(), 0, -(2**63))),
        ("sfixed64 f = 1;", -1, (pa.int64(), 0, -1)),
        ("uint64 f = 1;", 2**64 - 1, (pa.decimal128(20, 0), Decimal(0), Decimal(2**64 - 1))),
        ("fixed64 f = 1;", 2**63, (pa.decimal128(20, 0), Decimal(0), Decimal(2**63))),
        ("float f = 1;", 0.5, (pa.float64(), 0.0, 0.5)),
        ("double f = 1;", 0.1, (pa.float64(), 0.0, 0.1)),
        ("bool f = 1;", True, (pa.bool_(), False, True)),
        ("string f = 1;", "é", (pa.string(), "", "é")),
        ("bytes f = 1;", b"\xff", (pa.binary(), b"", b"\xff")),
        ("E f = 1;", -3, (pa.string(), "ZERO", "MINUS")),
        ("E f = 1;", 9, (pa.string(), "ZERO", "9")),
        ("optional int32 f = 1;", 0, (pa.int32(), None, 0)),
        ("optional string f = 1;", "", (pa.string(), None, "")),
        ("oneof o { int32 f = 1; string g = 2; }", 0, (pa.int32(), None, 0)),
        ("Leaf f = 1;", {}, (LEAF, None, {"a": 0, "b": b""})),
        ("Nothing f = 1;", {}, (pa.bool_(), None, True)),
        ("repeated int32 f = 1;", [1, 0], (pa.list_(pa.field("element", pa.int32())), [], [1, 0])),
        ("repeated int32 f = 1 [packed = false];", [1, 0], (pa.list_(pa.field("element", pa.int32())), [], [1, 0])),
        ("repeated Leaf f = 1;", [{"a": 1}], (pa.list_(pa.field("element", LEAF)), [], [{"a": 1, "b": b""}])),
        ("map<string, Leaf> f = 1;", {"k": {"a": 1}}, (pa.map_("string", LEAF), [], [("k", {"a": 1, "b": b""})])),
        ("map<bool, int32> f = 1;", {True: 0}, (pa.map_(pa.bool_(), pa.int32()), [], [(True, 0)])),
        ("map<uint32, E> f = 1;", {2**31: 1}, (pa.map_(pa.int64(), "string"), [], [(2**31, "ONE")])),
        ("map<uint64, bool> f = 1;", {2**63: True}, (pa.map_("string", pa.bool_()), [], [(str(2**63), True)])),
        (WKT + "Timestamp f = 1;", {"seconds": -1}, (TIME, None, EPOCH - dt.timedelta(seconds=1))),
        (WKT + "Duration f = 1;", {"seconds": -1, "nanos": -5}, (pa.decimal128(28, 9), None, Decimal("-1.000000005"))),
        (WKT + "Int32Value f = 1;", {}, (pa.int32(), None, 0)),
        (WKT + "UInt64Value f = 1;", {"value": 1}, (pa.decimal128(20, 0), None, Decimal(1))),
        (WKT + "StringValue f = 1;", {"value": "x"}, (pa.string(), None, "x")),
        (WKT + "Struct f = 1;", {"b": 2, "a": None}, (pa.string(), None, '{"a":null,"b":2}')),
        (WKT + "Value f = 1;", {"number_value": 2.5}, (pa.string(), None, "2.5")),
        (WKT + "Any f = 1;", {"value": b"x"}, (ANY, None, {"type_url": "", "value": b"x"})),
        (WKT + "Empty f = 1;", {}, (pa.bool_(), None, True)),
        (WKT + "FieldMask f = 1;", {"paths": ["a"]}, (pa.list_(pa.field("element", pa.string())), None, ["a"])),
    ]  # fmt: skip


@cache
def types() -> bytes:
    """A message T0, T1, … per row above, in one schema."""
    messages = "".join(f"message T{number} {{ {row[0]} }}" for number, row in enumerate(TYPES))
    return schema("} " + messages + "message Last {")


@pytest.mark.parametrize("number", range(len(TYPES)), ids=[row[0] for row in TYPES])
def test_a_type(number: int) -> None:
    """Type of the column, and its value where the field is unset and where it has this content."""
    _, content, wanted = TYPES[number]
    name = f"T{number}"
    full = message_class(types(), name)(f=content).SerializeToString()
    found = rows(types(), [b"", full], name)
    assert (protobuf_decoder(types(), name).type.field(0).type, found[0]["f"], found[1]["f"]) == wanted


def test_proto2_has_groups_and_presence_but_no_defaults() -> None:
    body = "required int32 r = 1; repeated group G = 2 { optional int32 a = 1; } optional bool d = 3 [default = true];"
    files = schema(body, "proto2")
    message = message_class(files, "M")(r=1, g=[{"a": 5}, {}])
    assert rows(files, [message.SerializeToString(), b""]) == [
        {"r": 1, "g": [{"a": 5}, {"a": None}], "d": None},
        {"r": None, "g": [], "d": None},
    ]


def test_nanoseconds_have_a_column_beside() -> None:
    files = schema(f"{WKT}Timestamp t = 1; int32 t__nanos = 2; repeated {WKT}Timestamp r = 3;")
    kind = message_class(files, "M")
    times = {"seconds": 1, "nanos": 2_003}
    moment = EPOCH + dt.timedelta(seconds=1, microseconds=2)
    assert rows(files, [kind(t=times, t__nanos=9, r=[times]).SerializeToString()]) == [
        {"t": moment, "t__nanos_": 3, "t__nanos": 9, "r": [{"timestamp": moment, "nanos": 3}]}
    ]


@pytest.mark.parametrize(
    "content",
    [{"seconds": 253402300800}, {"seconds": -62135596801}, {"nanos": -1}, {"nanos": 10**9}, {"seconds": 2**63 - 1}],
)
def test_no_time_of_the_calendar(content: dict[str, int]) -> None:
    files = schema(f"{WKT}Timestamp t = 1; map<int32, {WKT}Timestamp> m = 2;")
    kind = message_class(files, "M")
    values = [kind(t=content), kind(), kind(m={1: {}, 2: content})]
    found = rows(files, [value.SerializeToString() for value in values])
    assert [found[0][:12], found[2][:12]] == ["out_of_range"] * 2
    assert found[1]["m"] == []


def test_numbers_that_json_has_not() -> None:
    files = schema(f"repeated {WKT}Value v = 1;")
    kind = message_class(files, "M")
    values = [
        kind(v=[{"number_value": number}]).SerializeToString() for number in (float("inf"), float("nan"), 1e300, -0.0)
    ]
    found = rows(files, values)
    assert [row[:12] for row in found[:2]] == ["out_of_range"] * 2
    assert found[2:] == [{"v": ["1e+300"]}, {"v": ["-0.0"]}]


def test_messages_within_themselves_are_bytes() -> None:
    files = schema("string n = 1; M parent = 2; repeated M children = 3;")
    kind = message_class(files, "M")
    inner = kind(n="inner").SerializeToString()
    assert rows(files, [kind(parent=kind(n="inner"), children=[kind(), kind(n="inner")]).SerializeToString()]) == [
        {"n": "", "parent": inner, "children": [b"", inner]}
    ]


def test_a_message_without_fields() -> None:
    files = schema("")
    assert protobuf_decoder(files, "M").type == pa.struct([("value", pa.bool_())])
    assert rows(files, [b"", b"\x08\x01", b"\x08"]) == [
        {"value": True},
        {"value": True},
        "undecodable: the bytes do not follow the schema",
    ]


_PADDED_TAG = b"\xa8" + b"\x80" * 8 + b"\x00"
TWICE = schema("oneof o { int32 a = 1; string b = 2; } Leaf l = 3; map<string, int32> m = 4; int32 i = 5;")


@pytest.mark.parametrize(
    ("value", "changed"),
    [
        (b"\x08\x05\x12\x01x", {"b": "x"}),  # two members of a oneof: the last one
        (b"\x12\x01x\x08\x05", {"a": 5}),
        (b"\x1a\x02\x08\x01\x1a\x03\x12\x01y", {"l": {"a": 1, "b": b"y"}}),  # a message in two parts: joined
        (b"\x28\x01\x28\x02", {"i": 2}),
        (b"\x22\x05\x0a\x01k\x10\x01\x22\x05\x0a\x01k\x10\x02", {"m": [("k", 2)]}),  # a key twice
        (b"\x22\x02\x10\x03\x22\x03\x0a\x01k", {"m": [("", 3), ("k", 0)]}),  # entries without key, without value
        (b"\x22\x05\x0a\x01k\x18\x05", {"m": [("k", 0)]}),  # an entry with an unknown field
        (b"\x28\x81\x80\x00", {"i": 1}),  # padded
        (_PADDED_TAG + b"\x05", {"i": 5}),
        (b"\x12\x81" + b"\x80" * 8 + b"\x00x", {"b": "x"}),
        (b"\x28\xff\xff\xff\xff\x0f", {"i": -1}),  # more bits than an int32, fewer than its usual ten bytes
        (b"\x28\x01\xf8\x07\x01", {"i": 1}),  # an unknown field
        (b"\x2d\x01\x00\x00\x00", {}),  # another wire type: unknown
    ],
)
def test_what_counts_of_several(value: bytes, changed: dict[str, Any]) -> None:
    assert rows(TWICE, [value]) == [{"a": None, "b": None, "l": None, "m": [], "i": 0} | changed]


@pytest.mark.parametrize(
    "value",
    [
        b"\x28",
        b"\x12\x05ab",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01ab",
        b"\x00\x01",
        b"\x2c",
        b"\x0b\x08\x01",
        b"\x12\x02\xc3\x28",
        b"\x1a\x02\x08",
        b"\x28" + b"\xff" * 10 + b"\x01",
        b"\xff" * 30,
        b"\x28\x01" + _PADDED_TAG + b"\x05",  # a field twice: decoded slowly
    ],
)
def test_malformed_rows_leave_others_alone(value: bytes) -> None:
    good = b"\x28\x07"
    found = rows(TWICE, [good, value, good])
    assert [found[0]["i"], found[2]["i"]] == [7, 7]
    assert found[1].startswith("undecodable: ")


def test_a_library_that_gives_up_costs_speed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicError(BaseException):
        """As pyo3's panics: no Exception."""

    class Broken:
        def array_to_record_batch(self, _: pa.Array) -> None:
            raise PanicError

    decoder = protobuf_decoder(TWICE, "M")
    monkeypatch.setattr(decoder, "_handler", Broken())
    result = decoder.decode(pa.array([b"\x28\x07", b"\x28"], pa.binary()))
    assert result.columns.field("i").to_pylist()[0] == 7
    assert result.errors.is_valid().to_pylist() == [False, True]


def test_a_library_that_decodes_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder: Any = protobuf_decoder(TWICE, "M")
    real = decoder._handler

    class Wrong:
        def array_to_record_batch(self, values: pa.Array) -> pa.RecordBatch:
            return real.array_to_record_batch(pa.array([b"\x28\x09"] * len(values), pa.binary()))

        def record_batch_to_array(self, batch: pa.RecordBatch) -> pa.Array:
            return real.record_batch_to_array(batch)

    monkeypatch.setattr(decoder, "_handler", Wrong())
    values = [b"\x28\x07", b"\x28\x09", b"\x28\x07\x08\x01"]
    assert decoder.decode(pa.array(values, pa.binary())).columns.field("i").to_pylist() == [7, 9, 7]


@pytest.mark.parametrize("count", [3, 200])
def test_slow_rows_come_back_to_their_places(count: int) -> None:
    values = [b"\x28" + varint(i) for i in range(count)]
    for place in range(0, count, 90):
        values[place] = b"\x28\x01" + values[place]
    values[1] = b"\x28"
    found = rows(TWICE, values)
    assert found[1].startswith("undecodable")
    assert [row["i"] for i, row in enumerate(found) if i != 1] == [i for i in range(count) if i != 1]


def test_few_bytes_do_not_become_many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "CELLS_MAX", 1_000)
    files = schema("repeated Leaf l = 1;")
    found = rows(files, [b"\x0a\x00" * 400, b"\x0a\x00" * 100])
    assert found[0].startswith("out_of_range: takes more than ")
    assert len(found[1]["l"]) == 100


@pytest.mark.parametrize("tail", [b"", b"\x10\x00\x10\x00"], ids=["quick", "slow"])
def test_a_packed_byte_may_stand_for_a_long_name(tail: bytes) -> None:
    """235 bytes of zstd were 4 GiB of names. The second tail sets a singular field twice, which is the slow path."""
    names = f"enum E {{ A = 0; {'x' * 900} = 1; }} repeated E e = 1; int32 i = 2;"
    count = protobuf.CELLS_MAX // (1 + 900 // 8)
    few, many = (b"\x0a" + varint(size) + b"\x01" * size + tail for size in (count // 20, count + 1))
    found = rows(schema(names), [few, many])
    assert len(found[0]["e"]) == count // 20
    assert found[1] == too_many_cells(slow=bool(tail))


def test_a_number_may_be_the_last_there_is() -> None:
    """The quick decoder would take eight gigabytes for it, and end the process where it does not get them."""
    body = (
        f"int32 a = {2**29 - 1}; repeated string s = {2**29 - 2}; repeated int32 b = 2047; Leaf l = 2048; int32 f = 1;"
    )
    files = schema(body)
    decoder: Any = protobuf_decoder(files, "M")
    quick = schema_module._descriptor(decoder._root, quick=True)
    assert sorted(field.number for field in quick.fields) == [1, 2, 3, 4, 2047]
    kind = message_class(files, "M")
    given: list[dict[str, Any]] = [{"f": 1, "b": [1, 2]}, {"a": 3, "f": 2}, {"s": ["x", "y" * 50]}, {"l": {}}, {}]
    found = rows(files, [kind(**fields).SerializeToString() for fields in given])
    nothing: dict[str, Any] = {"f": 0, "b": [], "a": 0, "s": [], "l": None}
    assert [{**row, "l": row["l"] and {}} for row in found] == [{**nothing, **fields} for fields in given]


@pytest.mark.parametrize("inner", [False, True])
def test_what_the_schema_does_not_know_is_no_field_of_a_high_number(inner: bool) -> None:
    """An older writer's field 1, a card number, is not the newer schema's 5000, whatever stands for that inside."""
    files = schema("Leaf leaf = 2; string note = 5000; message Leaf { int64 amount = 2; string note = 5000; }")
    leaf = b"\x0a\x041234" + b"\x10\x2a"
    value = b"\x12" + bytes([len(leaf)]) + leaf if inner else leaf[:6]
    wanted = {"amount": 42, "note": ""} if inner else None
    assert rows(files, [value, b"", value]) == [{"leaf": row, "note": ""} for row in (wanted, None, wanted)]


def test_long_texts_of_a_high_number_are_no_lists_of_numbers() -> None:
    text = "x" * (protobuf.CELLS_MAX // 8)
    files = schema(f"repeated string s = {2**29 - 1};")
    assert rows(files, [message_class(files, "M")(s=[text]).SerializeToString()]) == [{"s": [text]}]


def test_field_numbers_are_metadata() -> None:
    fields = protobuf_decoder(schema("int32 a = 5; oneof o { string b = 3; }"), "M").type
    assert [(field.name, field.metadata[NUMBER]) for field in fields] == [("a", b"5"), ("b", b"3")]


def test_which_message() -> None:
    files = protobuf_schema(
        'syntax = "proto3"; package p; message A { int32 a = 1; }'
        "message B { map<int32, int32> m = 1; message C { int32 c = 1; message D { int32 d = 1; } } }"
    )
    names = {(0,): "a", (1,): "m", (1, 0): "c", (1, 0, 0): "d"}
    for path, name in names.items():
        assert protobuf_decoder(files, path).type.field(0).name == name
    assert protobuf_decoder(files, "p.B.C").type.field(0).name == "c"
    for wrong in ((), (2,), (1, 1), (0, 0), (-1,), "p.X", "A"):
        with pytest.raises(SchemaTextError):
            protobuf_decoder(files, wrong)


@pytest.mark.parametrize(
    "body",
    [
        "enum E { A = 0; %s = 1; } E e = 1;",
        "message R { R r = 1; int32 %s = 2; } R r = 1;",
        "message R { R r = 1; enum E { A = 0; %s = 1; } E e = 2; } R r = 1;",
    ],
    ids=["symbol", "field of JSON", "symbol of JSON"],
)
def test_a_name_that_each_row_would_have_is_short(body: str) -> None:
    """Two bytes of a value stand for it: it is no column, or each row takes as long as its name."""
    assert protobuf_decoder(schema(body % ("x" * 1024)), "M").type.num_fields == 1
    with pytest.raises(SchemaTextError, match="has 1025 characters; names and symbols have 1024 at most"):
        protobuf_decoder(schema(body % ("x" * 1025)), "M")


def test_schemas_that_cannot_be_columns() -> None:
    with pytest.raises(SchemaTextError, match="no FileDescriptorSet"):
        protobuf_decoder(b"\xff", "M")
    with pytest.raises(SchemaTextError, match="has no file"):
        protobuf_decoder(b"", "M")
    many = "".join(f"int32 f{i} = {i + 1};" for i in range(COLUMNS_MAX + 1))
    with pytest.raises(SchemaTextError, match="columns"):
        protobuf_decoder(schema(many), "M")
    deep = "".join(f"message D{i} {{ D{i + 1} d = 1; }}" for i in range(DEPTH_MAX + 1))
    text = f'syntax = "proto3"; {deep} message D{DEPTH_MAX + 1} {{ int32 i = 1; }}'
    with pytest.raises(SchemaTextError, match="within each other"):
        protobuf_decoder(protobuf_schema(text), "D0")
    # Ten fields of ten fields of ten …: few lines, a million columns.
    wide = "".join(f"message W{i} {{ {''.join(f'W{i + 1} f{k} = {k + 1};' for k in range(10))} }}" for i in range(6))
    with pytest.raises(SchemaTextError, match="columns"):
        protobuf_decoder(protobuf_schema(f'syntax = "proto3"; {wide} message W6 {{ int32 i = 1; }}'), "W0")


def test_nothing_to_decode() -> None:
    decoder = protobuf_decoder(TWICE, "M")
    result = decoder.decode(pa.array([], pa.binary()))
    assert len(result.columns) == len(result.errors) == 0
    assert result.columns.type == decoder.type
