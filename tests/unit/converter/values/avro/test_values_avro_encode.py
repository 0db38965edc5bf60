"""Columns back to Avro: the bytes they came from, or a row that says it is not valid. Hostile columns harm nobody."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.errors import SegmentError
from converter.types import VarBytes
from converter.values.avro.compile import lay_out
from converter.values.avro.decoder import avro_decoder
from converter.values.avro.encode_compile import lay_out_writing, numbered
from converter.values.avro.encode_flat import flat
from converter.values.avro.encode_kernel import STACK_COLUMNS, run
from converter.values.avro.encoder import avro_encoder
from converter.values.avro.schema import read_schema
from converter.values.model import Decoder, Encoder, Encoding
from converter.values.proof.encoders import encoder
from tests.support.any_columns import any_column
from tests.support.avro_usual import UsualEncoder, random_flat_schema, written_by_fastavro
from tests.support.avro_values import Encoder as AnyEncoder
from tests.support.avro_values import rows_of, without_logical, zigzag
from tests.support.examples import examples

SEEDS = st.integers(0, 2**63)
_MAP = {"type": "map", "values": "int"}
_ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
_POINT = {"type": "record", "name": "n.P", "fields": [{"name": "x", "type": "int"}]}
_EMPTY = {"type": "record", "name": "Z", "fields": []}
_UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
_DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
_ID = "00112233-4455-6677-8899-aabbccddeeff"


def both(schema: Any) -> tuple[Decoder, Encoder]:
    """A schema's decoder, and the encoder of what it says its encoding is."""
    decoder = avro_decoder(json.dumps(schema))
    encoding = decoder.encoding(pa.array([], pa.binary()))
    assert encoding is not None
    made = encoder(encoding)
    assert made.type.equals(decoder.type, check_metadata=True)
    return decoder, made


def sizes_of(values: list[bytes]) -> np.ndarray:
    return np.array([len(value) for value in values], np.int64)


def texts(found: VarBytes) -> list[bytes | None]:
    """What was written; None where it is not valid."""
    bounds = found.offsets.tolist()
    return [
        found.data[bounds[i] : bounds[i + 1]].tobytes() if ok else None for i, ok in enumerate(found.valid.tolist())
    ]


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


@examples(200)
@given(SEEDS)
def test_all_that_usual_writers_write_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_flat_schema(rng)
    parsed = fastavro.parse_schema(without_logical(schema))
    usual = UsualEncoder(schema, rng)
    values = [usual.value() for _ in range(6)]
    values += filter(None, [written_by_fastavro(parsed, value) for value in values])
    decoder, made = both(schema)
    decoded = decoder.decode(pa.array(values, pa.binary()))
    errors = decoded.errors.to_pylist()
    # Of bytes in a union fastavro may make a fixed decimal of their size, with more digits than that has.
    assert all(error is None or "more digits" in error for error in errors[6:])
    assert errors[:6] == [None] * 6
    told = texts(made.encode(decoded.columns, sizes_of(values)))
    assert [text for text, error in zip(told, errors, strict=True) if error is None] == [
        value for value, error in zip(values, errors, strict=True) if error is None
    ]


@examples(100)
@given(SEEDS)
def test_what_others_write_comes_back_or_is_not_valid(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_flat_schema(rng)
    strange, usual = AnyEncoder(schema, rng), UsualEncoder(schema, rng)
    values = [one.value() for _ in range(6) for one in (strange, usual)]
    decoder, made = both(schema)
    columns = decoder.decode(pa.array(values, pa.binary())).columns
    found = texts(made.encode(columns, sizes_of(values)))
    assert found[1::2] == values[1::2]
    for i, (written, value) in enumerate(zip(found, values, strict=True)):
        if written is not None and written != value:  # as long, of the same columns: the CRC tells them apart
            again = decoder.decode(pa.array([written], pa.binary())).columns
            assert repr(rows_of(again)) == repr(rows_of(columns.slice(i, 1)))


@examples(100)
@given(SEEDS)
def test_only_the_right_size_is_valid_and_slices_are_the_same(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_flat_schema(rng)
    usual = UsualEncoder(schema, rng)
    values = [usual.value() for _ in range(12)]
    decoder, made = both(schema)
    columns = decoder.decode(pa.array(values, pa.binary())).columns
    right = sizes_of(values)
    wrong = np.array([rng.choice([size, size - 1, size + 1, -1, 0, 2 * size, size + 300]) for size in right.tolist()])
    found = made.encode(columns, wrong)
    assert found.offsets.tolist() == [0, *np.cumsum(np.maximum(wrong, 0)).tolist()]
    assert texts(found) == [value if len(value) == size else None for value, size in zip(values, wrong, strict=True)]
    start = rng.randint(0, 12)
    length = rng.randint(0, 12 - start)
    part = slice(start, start + length)
    assert texts(made.encode(columns.slice(start, length), right[part])) == values[part]


@examples(200)
@given(SEEDS)
def test_any_columns_are_written_as_they_are_or_not_at_all(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_flat_schema(rng)
    decoder, made = both(schema)
    array = any_column(made.type, 30, rng)
    sizes = np.array([rng.choice([-1, 0, 1, 2, 5, 20, 60, rng.randint(0, 400)]) for _ in range(30)], np.int64)
    found = texts(made.encode(array, sizes))
    rows = rows_of(array)
    for row, written, size in zip(rows, found, sizes.tolist(), strict=True):
        if written is not None:
            assert len(written) == size
            decoded = decoder.decode(pa.array([written], pa.binary()))
            [error] = decoded.errors.to_pylist()
            if error != "undecodable: a map with a key twice":
                assert (error, repr(rows_of(decoded.columns))) == (None, repr([row]))


@examples(100)
@given(SEEDS, st.booleans())
def test_nothing_is_written_outside_of_a_row(seed: int, hostile: bool) -> None:
    """Every second row is not wanted, but has room that must stay as it is."""
    rng = random.Random(seed)
    schema = random_flat_schema(rng)
    root, names = read_schema(json.dumps(schema), {})
    layout = lay_out(root, names)
    kind = layout.columns.settle()
    usual = UsualEncoder(schema, rng)
    values = [usual.value() for _ in range(20)]
    decoded = avro_decoder(json.dumps(schema)).decode(pa.array(values, pa.binary())).columns
    array = any_column(kind, 20, rng) if hostile else decoded
    offsets = np.cumsum([rng.choice([0, 1, 3, 10, max(len(values[i - 1]) - 1, 0)]) for i in range(21)])
    wanted = np.arange(20) % 2 == 0
    program, depth = lay_out_writing(root, names, layout)
    columns = numbered(layout.columns)
    symbols = {one: pa.array(one.symbols, pa.string()) for one in columns}
    out = np.full(int(offsets[-1]) + 50, 0xA5, np.uint8)
    valid = np.zeros(20, np.bool_)
    stack = np.zeros((depth + 1, STACK_COLUMNS), np.int64)
    run(program, flat(layout.columns, array, len(columns), symbols), stack, out, offsets, wanted, valid)
    outside = np.ones(len(out), np.bool_)
    for i in np.flatnonzero(wanted).tolist():
        outside[offsets[i] : offsets[i + 1]] = False
    assert (out[outside] == 0xA5).all()
    assert not valid[~wanted].any()


def of_int64(values: list[int], kind: pa.DataType) -> pa.Array:
    """Their 64 bits as a type of doubles, or, twice each, of decimals."""
    data = np.array(values, np.int64)
    return pa.Array.from_buffers(kind, len(data) * 8 // kind.byte_width, [None, pa.py_buffer(data)])


def of_type(kind: Any, values: list[Any]) -> pa.Array:
    return pa.array(values, avro_decoder(json.dumps(record(kind))).type.field("a").type)


def decimal(precision: int, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": min(precision, 2), **more}


_FIXED_DECIMAL = {"type": "fixed", "name": "F", "size": 20}
UNWRITABLE: list[tuple[Any, Any]] = [
    *((kind, [None]) for kind in ("boolean", "int", "long", "float", "double", "bytes", "string", _ENUM, _POINT)),
    *((kind, [None]) for kind in (_EMPTY, _MAP, _UUID, _DURATION, decimal(4), decimal(50), ["int", "string"])),
    ("null", ["x"]),
    (["null"], ["x"]),
    (_EMPTY, [False]),
    (_ENUM, ["C", "a", "", "AB"]),
    (_POINT, [{"x": None}]),
    ({"type": "array", "items": "int"}, [[1, None], None]),
    ({"type": "array", "items": "null"}, [["x"], [None] * 100]),
    (_MAP, [[("k", None)]]),
    (["int", "string"], [{"int": None, "string": None}, {"int": 1, "string": ""}]),
    (["null", "int", "string"], [{"int": None, "string": None}, {"int": 1, "string": "a"}]),
    ({"type": "fixed", "name": "F", "size": 3}, [b"", b"ab", b"abcd"]),
    (_UUID, ["", _ID.upper(), _ID[:-1], _ID + "0", _ID.replace("-", ""), _ID.replace("-", "_"), "g" + _ID[1:]]),
    (_UUID, [_ID[:i] + "x" + _ID[i + 1 :] for i in range(36)]),
    (_DURATION, [{"months": 0, "days": -1, "millis": 0}, {"months": 2**32, "days": 0, "millis": 0}]),
    (_DURATION, [{"months": 0, "days": 0, "millis": None}]),
    ({"type": "int", "logicalType": "time-millis"}, [1, -1, 999, 1500, 2**31 * 1000, -(2**31) * 1000 - 1000]),
    ({"type": "long", "logicalType": "timestamp-millis"}, [1, -1, -999, 1001, 2**63 - 1, -(2**63)]),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, [1, -1]),
    ("float", [0.1, 1e300, -1e300, 5e-324, 2**24 + 1.0, 3.4028235677973366e38]),
    ("float", of_int64([0x7FF0000000000001, 0x7FF4000020000000, 0x7FF8000000000001], pa.float64())),
    (decimal(4), of_int64([10000, 0, -10000, -1, 0, 1, 2**63 - 1, 2**63 - 1], pa.decimal128(4, 2))),
    ({**decimal(4), **_FIXED_DECIMAL}, of_int64([10000, 0, -10000, -1, 0, -(2**63)], pa.decimal128(4, 2))),
    (
        decimal(40),
        ["", "1", "1.5", "1.500", "01.50", "-0.00", "+1.00", "1e2", " 1.00", "1.00\n", "--1.00", "x", "1_0.00"],
    ),
    (decimal(40), ["\u0661.00", "NaN", ".50", "1.", "9" * 39 + ".00", "9" * 5000 + ".00", "-" + "9" * 39 + ".00"]),
    ({**decimal(40), **_FIXED_DECIMAL}, ["1", "9" * 39 + ".00", "9" * 4000 + ".00"]),
]


@pytest.mark.parametrize(("kind", "values"), UNWRITABLE, ids=lambda one: str(one)[:50])
def test_what_the_schema_cannot_write_is_not_valid_of_any_size(kind: Any, values: Any) -> None:
    _, made = both(record(kind))
    array = values if isinstance(values, pa.Array) else of_type(kind, values)
    columns = pa.StructArray.from_arrays([array], fields=list(made.type))
    for size in range(50):
        assert not made.encode(columns, np.full(len(array), size, np.int64)).valid.any()


def test_a_field_of_null_rows_structs_and_lists_is_not_looked_at() -> None:
    item = {"type": "array", "items": ["null", _POINT]}
    _, made = both(record(item))
    points = pa.StructArray.from_arrays([pa.array([7, 8], pa.int32())], ["x"], mask=pa.array([True, False]))
    items = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), points, mask=pa.array([False, True]))
    columns = pa.StructArray.from_arrays([items], fields=list(made.type))
    sizes = np.array([5, 0], np.int64)
    assert texts(made.encode(columns, sizes)) == [b"\4\0\2\x10\0", None]
    hidden = pa.StructArray.from_arrays([items], fields=list(made.type), mask=pa.array([True, False]))
    assert texts(made.encode(hidden, sizes)) == [None, None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", b"\x82\x00"),
        ("string", b"\x82\x00a"),
        (["null", "int"], b"\x80\x00"),
        ({"type": "array", "items": "int"}, zigzag(-2) + zigzag(2) + b"\2\4\0"),
        ({"type": "array", "items": "int"}, b"\2\2\2\4\0"),
        ({"type": "array", "items": "int"}, b"\x82\x00\2\0"),
        (_MAP, zigzag(-1) + zigzag(3) + b"\2k\2\0"),
        (decimal(4), b"\4\0\1"),
        (decimal(4), b"\4\xff\xff"),
        (decimal(40), b"\4\0\1"),
        (decimal(4), b"\0"),
    ],
    ids=str,
)
def test_longer_or_other_forms_are_not_valid(kind: Any, value: bytes) -> None:
    decoder, made = both(record(kind))
    decoded = decoder.decode(pa.array([value], pa.binary()))
    assert decoded.errors.to_pylist() == [None]
    assert texts(made.encode(decoded.columns, sizes_of([value]))) == [None]


def test_a_quiet_nan_keeps_its_payload() -> None:
    decoder, made = both(record(["float", "double"]))
    values = [b"\0\x01\0\xc0\x7f", b"\0\xff\xff\xff\xff", b"\2\1\0\0\0\0\0\xf0\x7f", b"\2" + b"\xff" * 8]
    columns = decoder.decode(pa.array(values, pa.binary())).columns
    assert texts(made.encode(columns, sizes_of(values))) == values


def test_decimals_have_the_fewest_bytes() -> None:
    decoder, made = both(record(decimal(38)))
    numbers = [sign * (2**bits + more) for bits in range(126) for more in (-1, 0, 1) for sign in (1, -1)]
    numbers = [number for number in numbers if abs(number) < 10**38]
    data = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in numbers]
    values = [zigzag(len(one)) + one for one in data]
    columns = decoder.decode(pa.array(values, pa.binary())).columns
    assert [row["a"].scaleb(2) for row in columns.to_pylist()[:200]] == [Decimal(number) for number in numbers[:200]]
    assert texts(made.encode(columns, sizes_of(values))) == values


def test_references_are_part_of_the_encoding() -> None:
    schema = json.dumps(record({"type": "array", "items": "n.P"}))
    references = {"n.P": json.dumps({**_POINT, "fields": [{"name": "e", "type": "n.E"}]}), "n.E": json.dumps(_ENUM)}
    references["n.E"] = json.dumps({**_ENUM, "name": "n.E"})
    decoder = avro_decoder(schema, references)
    values = pa.array([b"\4\0\2\0"], pa.binary())
    encoding = decoder.encoding(values)
    assert encoding is not None
    assert all(isinstance(text, str) for text in encoding.parameters.values())
    made = encoder(encoding)
    assert texts(made.encode(decoder.decode(values).columns, np.array([4], np.int64))) == [b"\4\0\2\0"]


def test_a_record_within_itself_has_no_encoding() -> None:
    node = record(["null", "R"])
    assert avro_decoder(json.dumps(node)).encoding(pa.array([], pa.binary())) is None
    with pytest.raises(SegmentError, match=r"no encoder of avro can be made: .*within itself"):
        encoder(Encoding("avro", 1, {"schema": json.dumps(node), "references": "{}"}))


@pytest.mark.parametrize(
    "parameters",
    [{}, {"schema": '"int"'}, {"schema": "", "references": "{}"}, {"schema": '"int"', "references": "["}],
    ids=str,
)
def test_parameters_that_make_no_encoder_are_an_error_of_the_segment(parameters: dict[str, str]) -> None:
    with pytest.raises(SegmentError) as raised:
        encoder(Encoding("avro", 1, parameters))
    assert raised.value.kind == "corrupt_object"


def test_nothing_at_all_and_as_many_sizes_as_rows() -> None:
    for schema in ('"null"', '"string"', json.dumps(record(_MAP)), json.dumps(_EMPTY)):
        made = avro_encoder({"schema": schema, "references": "{}"})
        found = made.encode(pa.array([], made.type), np.empty(0, np.int64))
        assert (found.offsets.tolist(), len(found.data), len(found.valid)) == ([0], 0, 0)
        with pytest.raises(ValueError, match="1 sizes for 2 rows"):
            made.encode(pa.nulls(2, made.type), np.zeros(1, np.int64))
        assert not made.encode(pa.nulls(2, made.type), np.zeros(2, np.int64)).valid.any()
