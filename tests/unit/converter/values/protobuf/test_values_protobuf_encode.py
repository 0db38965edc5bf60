"""Columns back into Protobuf values: google.protobuf's deterministic writer, other writers' habits, and anything."""

from __future__ import annotations

import math
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from converter.errors import SegmentError
from converter.values.model import Decoder, Encoder, Encoding
from converter.values.proof.encoders import encoder
from converter.values.protobuf.decoder import protobuf_decoder
from converter.values.protobuf.encode_flat import flatten
from converter.values.protobuf.encode_kernel import write
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.oracle.protobuf import message_class
from tests.oracle.protobuf_messages import damage, fill, read_varint, records, rewrite, unknown, varint
from tests.property.test_values_protobuf_property import SCHEMAS
from tests.support import typed_protobuf
from tests.support.arbitrary_columns import arbitrary
from tests.support.examples import examples

EDITION = """
edition = "2023"; package p;
message M {
  int32 present = 1; int32 implicit = 2 [features.field_presence = IMPLICIT];
  repeated int32 loose = 3 [features.repeated_field_encoding = EXPANDED]; repeated fixed32 packed = 4;
  Inner framed = 5 [features.message_encoding = DELIMITED];
  repeated Inner many = 6 [features.message_encoding = DELIMITED];
}
message Inner { string s = 536870911; Inner2 i = 20000; } message Inner2 { sfixed64 x = 2047; bool y = 2048; }
"""
NAMES = [*SCHEMAS, "everything", "edition"]
Parts = tuple[Decoder, type[Message], Encoder]


@cache
def parts(name: str) -> Parts:
    text = {**SCHEMAS, "everything": typed_protobuf.WHOLE, "edition": EDITION}[name]
    return made(text, typed_protobuf.NAME if name == "everything" else "p.M")


def made(text: str, message: str) -> Parts:
    files = protobuf_schema(text)
    decoder = protobuf_decoder(files, message)
    encoding = decoder.encoding(pa.array([], pa.binary()))
    assert encoding is not None
    return decoder, message_class(files, message), encoder(encoding)


def canonical(rnd: Random, kind: type[Message]) -> bytes:
    """A random message as a deterministic writer has it, of which columns lose nothing."""
    # Read and written again: of an enum that is closed, numbers without a name come last else.
    message = kind.FromString(fill(rnd, kind()).SerializePartialToString())
    lossless(message)
    return message.SerializePartialToString(deterministic=True)


def lossless(message: Any) -> None:
    """Makes of well-known types what columns tell apart: times of the calendar, no Value without content, …"""
    name = message.DESCRIPTOR.full_name.removeprefix("google.protobuf.")
    if name == "Timestamp":
        if not -62135596800 <= message.seconds <= 253402300799 or not 0 <= message.nanos < 10**9:
            message.seconds, message.nanos = 1, 5
    elif name == "Duration":
        # Seconds and nanoseconds of one sign, below a second.
        whole, below = divmod(abs(message.seconds * 10**9 + message.nanos), 10**9)
        sign = -1 if message.seconds * 10**9 + message.nanos < 0 else 1
        message.seconds, message.nanos = sign * min(whole, 2**63 - 1), sign * below
    elif name == "Struct":
        # Of two names one of which begins with the other, this library writes the longer one first; others do not.
        message.fields.pop("", None)
    elif name == "Value":
        if message.WhichOneof("kind") in (None, "null_value"):
            message.null_value = 0
        elif message.HasField("number_value") and not math.isfinite(message.number_value):
            message.number_value = 2.5
    for field, content in message.ListFields():
        for inner in messages(field, content):
            lossless(inner)


def messages(field: Any, content: Any) -> list[Any]:
    """Of a field, with a map's values."""
    if field.message_type is None:
        return []
    if field.message_type.GetOptions().map_entry:
        return list(content.values()) if field.message_type.fields_by_number[2].message_type is not None else []
    return list(content) if field.is_repeated else [content]


def sizes_of(values: list[bytes]) -> np.ndarray:
    return np.array([len(value) for value in values], dtype=np.int64)


def written(made: Encoder, columns: pa.StructArray, sizes: Any) -> list[bytes | None]:
    """Per row the bytes, None where they are not valid."""
    out = made.encode(columns, np.asarray(sizes, dtype=np.int64))
    assert out.offsets.tolist() == np.cumsum([0, *np.maximum(sizes, 0)]).tolist()
    assert len(out.valid) == len(columns)
    data = out.data.tobytes()
    return [data[out.offsets[i] : out.offsets[i + 1]] if out.valid[i] else None for i in range(len(columns))]


def decoded(decoder: Decoder, values: list[bytes]) -> pa.StructArray:
    return decoder.decode(pa.array(values, pa.binary())).columns


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_those_of_the_decoder(name: str) -> None:
    decoder, _, encoder_ = parts(name)
    assert encoder_.type.equals(decoder.type, check_metadata=True)


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**40))
@examples(40)
def test_every_canonical_value_comes_back(name: str, seed: int) -> None:
    rnd = Random(seed)
    decoder, kind, encoder_ = parts(name)
    values = [canonical(rnd, kind) for _ in range(rnd.choice([1, 8]))]
    result = decoder.decode(pa.array(values, pa.binary()))
    assert result.errors.null_count == len(values)
    assert written(encoder_, result.columns, sizes_of(values)) == values


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**40))
@examples(20)
def test_slices(name: str, seed: int) -> None:
    rnd = Random(seed)
    decoder, kind, encoder_ = parts(name)
    values = [canonical(rnd, kind) for _ in range(12)]
    start = rnd.randrange(12)
    count = rnd.randrange(12 - start)
    columns = decoded(decoder, values)
    wanted = values[start : start + count]
    assert written(encoder_, columns.slice(start, count), sizes_of(wanted)) == wanted
    rows = rnd.choices(range(12), k=5)
    taken = pa.concat_arrays([columns.take(pa.array(rows)), columns]).slice(0, 5)
    assert written(encoder_, taken, sizes_of([values[row] for row in rows])) == [values[row] for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_no_rows(name: str) -> None:
    decoder, _, encoder_ = parts(name)
    assert written(encoder_, decoded(decoder, []), []) == []
    assert written(encoder_, pa.array([None, None], decoder.type), [0, -1]) == [None, None]
    assert written(encoder_, decoded(decoder, [b""] * 3), [0, -1, 1]) == [b"", None, None]


@pytest.mark.parametrize("name", ["proto3", "recursive", "everything"])
@given(seed=st.integers(0, 2**40))
@examples(40)
def test_other_values_say_the_same_or_are_not_valid(name: str, seed: int) -> None:
    rnd = Random(seed)
    decoder, kind, encoder_ = parts(name)
    values = []
    for _ in range(8):
        one, other = (fill(rnd, kind()).SerializePartialToString() for _ in range(2))
        values.append(damage(rnd, one) if rnd.random() < 0.2 else rewrite(rnd, one, other))
    columns = decoded(decoder, values)
    back = written(encoder_, columns, sizes_of(values))
    rows = [row for row, value in enumerate(back) if value is not None]
    assert not any(columns[row].as_py() is None for row in rows)
    again = decoded(decoder, [value for value in back if value is not None])
    assert repr(again.to_pylist()) == repr([columns[row].as_py() for row in rows])


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**40))
@examples(20)
def test_wrong_sizes_touch_no_other_row(name: str, seed: int) -> None:
    rnd = Random(seed)
    decoder, kind, encoder_ = parts(name)
    values = [canonical(rnd, kind) for _ in range(10)]
    columns = decoded(decoder, values)
    sizes = [rnd.choice([len(v), len(v), -1, 0, len(v) + 1, len(v) - 1, len(v) // 2, len(v) * 3]) for v in values]
    sizes = [max(size, -1) for size in sizes]
    wanted = [value if size == len(value) else None for value, size in zip(values, sizes, strict=True)]
    assert written(encoder_, columns, sizes) == wanted


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**40))
@examples(40)
def test_any_columns_raise_nothing_and_stay_in_their_place(name: str, seed: int) -> None:
    """Every second row is not written: whatever the others hold, its bytes stay as they were."""
    rnd = Random(seed)
    decoder, _, encoder_ = parts(name)
    whole = arbitrary(rnd, decoder.type, 14, rnd.choice([0.0, 0.02, 0.3]))
    columns = whole.slice(rnd.randrange(5), rnd.randrange(10))
    sizes = [rnd.choice([-1, 0, 1, 40, 400, 2_000, 20_000]) for _ in range(len(columns))]
    written(encoder_, columns, sizes)
    compiled: Any = encoder_._compiled  # type: ignore[attr-defined]
    room = np.maximum(sizes, 0)
    starts = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    out = np.full(int(starts[-1]), 0xA5, dtype=np.uint8)
    good = np.arange(len(columns)) % 2 == 0
    stack = np.zeros((compiled.program.depth, 2), dtype=np.int64)
    write(compiled.program.code, flatten(compiled, columns), starts, out, stack, good)
    for row in range(1, len(columns), 2):
        assert (out[starts[row] : starts[row + 1]] == 0xA5).all()


LISTS = """syntax = "proto3";
message M { repeated int32 a = 1; int32 b = 2; repeated int32 c = 3 [packed = false]; bytes d = 4; }"""


@pytest.mark.parametrize(
    "value",
    [
        b"\x10\x05\x0a\x01\x07",  # out of order
        b"\x10\x85\x00",  # a long number
        b"\x10\x00",  # a default
        b"\x08\x07",  # not packed
        b"\x0a\x00",  # packed, and empty
        b"\x1a\x01\x07",  # packed
        b"\x10\x05\x10\x05",
        b"\x0a\x01\x07\x0a\x01\x07",
        b"\x10\x05" + unknown(Random(1)),
        b"\x10\xfb\xff\xff\xff\x0f",  # a negative number in five bytes
    ],
)
def test_values_of_other_forms_are_not_what_is_written(value: bytes) -> None:
    decoder, _, encoder_ = made(LISTS, "M")
    (back,) = written(encoder_, decoded(decoder, [value]), [len(value)])
    assert back != value


@pytest.mark.parametrize("count", [0, 1, 127, 128, 16_383, 16_384, 2_100_000])
def test_lengths_of_lengths(count: int) -> None:
    decoder, kind, encoder_ = made(LISTS, "M")
    value = kind(a=[1] * min(count, 20_000), b=-1, c=[2] * 3, d=b"x" * count).SerializeToString()
    assert written(encoder_, decoded(decoder, [value]), [len(value)]) == [value]


def test_as_deep_as_messages_go() -> None:
    deep = "".join(f"message D{i} {{ map<int32, D{i + 1}> d = 1; repeated int32 l = 2; }}" for i in range(19))
    text = f'syntax = "proto3"; {deep} message D19 {{ int32 i = 1; }}'
    decoder, _, encoder_ = made(text, "D0")
    value = b"\x08\x01"
    for _ in range(19):  # 58 of 60 levels
        entry = b"\x08\x07\x12" + varint(len(value)) + value
        value = (b"\x0a" + varint(len(entry)) + entry) * 1 + b"\x12\x01\x05"
    assert written(encoder_, decoded(decoder, [value]), [len(value)]) == [value]


HABITS = """syntax = "proto3";
message Leaf { int32 x = 1; }
message M {
  int32 first = 1; oneof o { string near = 2; int32 far = 9; Leaf farther = 19; } int32 last = 5;
  map<string, int32> numbers = 6; map<int32, bytes> texts = 7; map<bool, Leaf> leaves = 8; oneof p { int32 q = 20; }
}"""


def sparse(value: bytes) -> bytes:
    """Without defaults in entries of the maps 6, 7 and 8, but for messages."""
    out = b""
    for record in records(value):
        number = read_varint(record, 0)[0] >> 3
        if number in (6, 7, 8):
            _, content = read_varint(record, 1)
            entry = b"".join(
                one
                for one in records(record[content:])
                if one[1:] != b"\0" or (number == 8 and one[0] == 0x12)  # the empty text and zero look the same
            )
            record = record[:1] + varint(len(entry)) + entry
        out += record
    return out


def first(value: bytes) -> bytes:
    """With the members 9 and 19 where 2 would be."""

    def place(record: bytes) -> int:
        number = read_varint(record, 0)[0] >> 3
        return 2 if number in (9, 19) else number

    parted = sorted(records(value), key=place)
    return b"".join(parted)


@pytest.mark.parametrize("map_entries", ["complete", "sparse"])
@pytest.mark.parametrize("oneofs", ["by_number", "at_first"])
def test_habits_of_writers_are_learned_from_a_sample(map_entries: str, oneofs: str) -> None:
    decoder, kind, _ = made(HABITS, "M")
    rnd = Random(3)
    values = [fill(rnd, kind()).SerializeToString(deterministic=True) for _ in range(200)]
    if map_entries == "sparse":
        values = [sparse(value) for value in values]
    if oneofs == "at_first":
        values = [first(value) for value in values]
    encoding = decoder.encoding(pa.array(values[:20], pa.binary()))
    assert encoding is not None
    assert (encoding.parameters["map_entries"], encoding.parameters["oneofs"]) == (map_entries, oneofs)
    assert written(encoder(encoding), decoded(decoder, values), sizes_of(values)) == values


def test_no_habits_where_the_schema_leaves_no_choice() -> None:
    files = protobuf_schema('syntax = "proto3"; message M { oneof o { int32 a = 1; int32 b = 2; } int32 c = 3; }')
    encoding = protobuf_decoder(files, (0,)).encoding(pa.array([b"\xff"], pa.binary()))
    assert encoding is not None
    assert (encoding.kind, encoding.version, encoding.parameters["message"]) == ("protobuf", 1, "M")


@pytest.mark.parametrize(
    "text",
    [
        """syntax = "proto2"; package google.protobuf; message Int32Value { optional int32 value = 1; }
        message M { optional Int32Value w = 1; }""",
        """syntax = "proto2"; package google.protobuf;
        message Duration { optional int64 seconds = 1; optional int32 nanos = 2; }
        message M { repeated Duration w = 1; }""",
        """edition = "2023"; package google.protobuf; import "google/protobuf/struct.proto";
        message M { Struct s = 1 [features.message_encoding = DELIMITED]; }""",
    ],
)
def test_columns_that_do_not_say_enough(text: str) -> None:
    decoder = protobuf_decoder(protobuf_schema(text), "google.protobuf.M")
    assert decoder.encoding(pa.array([b""], pa.binary())) is None


def test_a_stored_encoding_that_makes_no_encoder() -> None:
    encoding = protobuf_decoder(protobuf_schema(LISTS), "M").encoding(pa.array([], pa.binary()))
    assert encoding is not None
    parameters = dict(encoding.parameters)
    for wrong in ({"files": "?"}, {"files": "AAAA"}, {"message": "X"}, {"oneofs": "sorted"}):
        with pytest.raises(SegmentError, match="no encoder of protobuf"):
            encoder(Encoding("protobuf", 1, parameters | wrong))
    with pytest.raises(SegmentError, match="no encoder of protobuf"):
        encoder(Encoding("protobuf", 1, {}))
    with pytest.raises(SegmentError, match="protobuf 2"):
        encoder(Encoding("protobuf", 2, parameters))


COLUMNS = """syntax = "proto3"; import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto"; enum E { ZERO = 0; ONE = 1; }
message M {
  uint32 u = 1; uint64 v = 2; E e = 3; google.protobuf.Timestamp t = 4; map<uint64, E> m = 5; repeated int32 r = 6;
  google.protobuf.Struct s = 7; google.protobuf.UInt32Value w = 8; repeated string l = 9;
}"""


@pytest.mark.parametrize(
    "column",
    [
        {"u": -1},
        {"u": 2**32},
        {"v": -1},
        {"v": 2**64},
        {"e": "TWO"},
        {"e": "01"},
        {"e": "-0"},
        {"e": "2147483648"},
        {"t": 5, "t__nanos": None},
        {"t": 5, "t__nanos": 1_000},
        {"m": [("01", "ONE")]},
        {"m": [("", "ONE")]},
        {"m": [(str(2**64), "ONE")]},
        {"m": [("1", None)]},
        {"r": [1, None]},
        {"l": [None]},
        {"s": "[]"},
        {"s": "NaN"},
        {"w": -1},
    ],
    ids=repr,
)
def test_what_no_value_can_say_is_not_valid(column: dict[str, Any]) -> None:
    decoder, _, encoder_ = made(COLUMNS, "M")
    base = decoded(decoder, [b""]).to_pylist()[0]
    columns = pa.array([base | column, base], decoder.type)
    for size in range(64):
        assert written(encoder_, columns, [size, 0]) == [None, b""]
