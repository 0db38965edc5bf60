"""JSON values into columns: each type of docs/types.md, what does not fit, and that good rows take the fast way."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from converter.values.json import decoder as json_decode
from converter.values.json import gather as json_gather
from converter.values.json import hashing, proof, scan
from converter.values.json import split as json_split
from converter.values.json.decoder import json_decoder
from converter.values.json.gather import gather
from converter.values.json.nodes import DEPTH_MAX, make_plan
from converter.values.json.schema.infer import infer_schema
from converter.values.json.schema.parse import parse_schema
from converter.values.json.split import split
from converter.values.model import DOC, Decoded, SchemaTextError
from converter.values.proof.warmup import warm_json

INT, N, S, B = {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "boolean"}
MOMENT, DAY = {"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}
COUNTS, NOTHING = {"type": "object", "additionalProperties": INT}, {"type": "object", "additionalProperties": False}
LIST = {"type": "array"}
BIG = {"type": "integer", "maximum": 10**30}


def closed(**properties: object) -> str:
    return json.dumps({"type": "object", "properties": properties, "additionalProperties": False})


def opened(**properties: object) -> str:
    return json.dumps({"type": "object", "properties": properties})


def decode(schema: str, *values: str | bytes) -> Decoded:
    array = pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary())
    decoded = json_decoder(schema).decode(array)
    decoded.columns.validate(full=True)
    return decoded


def one(schema: object, text: str) -> object:
    """The column `f` of one value."""
    decoded = decode(closed(f=schema), f'{{"f":{text}}}')
    error = decoded.errors[0].as_py()
    if error is not None:
        assert decoded.columns[0].as_py() is None
        return error
    got = decoded.columns.field(0)
    return dict(got[0].as_py()) if pa.types.is_map(got.type) else got[0].as_py()


@pytest.mark.parametrize(
    ("schema", "text", "wanted"),
    [
        (INT, "12", 12),
        (INT, "-0", 0),
        (INT, str(2**63 - 1), 2**63 - 1),
        (INT, str(-(2**63)), -(2**63)),
        (INT, str(2**63), "out_of_range: $.f: an integer beyond 64 bits"),
        (INT, "1" + "0" * 5000, "out_of_range: $.f: an integer of more than 38 digits"),
        (INT, "1.0", 1),
        (INT, "12e1", 120),
        (INT, "1.5", "type_mismatch: $.f: a number with a fraction, not an integer"),
        (INT, "1e-999999999999999999999", "type_mismatch: $.f: a number with a fraction, not an integer"),
        (INT, '"1"', "type_mismatch: $.f: a string, not an integer"),
        (INT, "true", "type_mismatch: $.f: a boolean, not an integer"),
        (BIG, str(2**64), Decimal(2**64)),
        (BIG, "-" + "9" * 38, Decimal("-" + "9" * 38)),
        (BIG, "1" + "0" * 38, "out_of_range: $.f: an integer of more than 38 digits"),
        (N, "0.1", 0.1),
        (N, "12", 12.0),
        (N, "-1.5e-7", -1.5e-7),
        (N, str(2**53), float(2**53)),
        (N, str(2**53 + 1), "out_of_range: $.f: an integer beyond 2^53, which a double may not hold"),
        (N, str(-(2**53) - 1), "out_of_range: $.f: an integer beyond 2^53, which a double may not hold"),
        (N, "1e308", 1e308),
        (N, "1e309", "out_of_range: $.f: a number beyond the largest double"),
        (N, "NaN", "undecodable: no JSON value where one is expected"),
        (N, "-Infinity", "undecodable: no JSON value where one is expected"),
        (N, "01", "undecodable: an object without , or } behind a value"),
        (B, "true", True),
        (B, "false", False),
        (B, "null", None),
        (B, "1", "type_mismatch: $.f: a number, not a boolean"),
        (S, r'"a\u00e9\ud83d\ude00\n\/"', "aé\U0001f600\n/"),
        (S, '"\0"', "undecodable: a string that does not end, or with a bad escape or control character"),
        (S, r'"\u0000"', "\0"),
        (S, r'"\ud800"', "undecodable: a string with half of a surrogate pair"),
        (S, r'"\ude00\ud83d"', "undecodable: a string with half of a surrogate pair"),
        (S, "true", "type_mismatch: $.f: a boolean, not a string"),
        ({"type": "string", "format": "uuid"}, '"0-0"', "0-0"),
        ({"type": "string", "format": "time"}, '"12:00:00Z"', "12:00:00Z"),
        ({"enum": ["a", "b", None]}, '"c"', "c"),
        ({"const": 3}, "4", 4),
        (MOMENT, '"2024-03-05T12:00:00.5+01:30"', datetime(2024, 3, 5, 10, 30, 0, 500000, UTC)),
        (MOMENT, '"2024-03-05t12:00:00z"', datetime(2024, 3, 5, 12, 0, 0, 0, UTC)),
        (MOMENT, '"2024-03-05T12:00:00.123456000Z"', datetime(2024, 3, 5, 12, 0, 0, 123456, UTC)),
        (MOMENT, '"2024-03-05T12:00:00.1234567Z"', "out_of_range: $.f: a date-time finer than a microsecond"),
        (MOMENT, '"2016-12-31T23:59:60Z"', "out_of_range: $.f: a leap second"),
        (MOMENT, '"2024-03-05T12:00:00"', "type_mismatch: $.f: a date-time without offset"),
        (MOMENT, '"2023-02-29T12:00:00Z"', "type_mismatch: $.f: a string, not a date-time"),
        (MOMENT, '"9999-12-31T23:59:59-01:00"', "out_of_range: $.f: an instant outside the years 0001 to 9999"),
        (DAY, '"2024-02-29"', date(2024, 2, 29)),
        (DAY, '"0000-02-29"', "out_of_range: $.f: the year 0000"),
        (DAY, '"2024-2-9"', "type_mismatch: $.f: a string, not a date"),
        ({"type": "array", "items": INT}, "[1,null,3]", [1, None, 3]),
        ({"type": "array", "items": INT}, '[1,"2"]', "type_mismatch: $.f[]: a string, not an integer"),
        ({"type": "array", "items": INT}, "{}", "type_mismatch: $.f: an object, not an array"),
        ({"type": "array"}, "[1, {}]", "[1, {}]"),
        (COUNTS, '{"b":1,"":null}', {"b": 1, "": None}),
        (COUNTS, '{"b":true}', "type_mismatch: $.f.*: a boolean, not an integer"),
        ({"type": "object"}, '{"x": [1,2]}', '{"x": [1,2]}'),
        (NOTHING, "{ }", True),
        (NOTHING, '{"a":1}', "type_mismatch: $.f: an object, not an object without members"),
        ({"type": ["string", "integer"]}, '"12"', '"12"'),
        (True, "12.50", "12.50"),
        ({"oneOf": [{"type": "null"}, INT]}, "5", 5),
        (json.loads(opened(a=INT)), '{"a":1}', {"a": 1, "_additional": None}),
    ],
)  # fmt: skip
def test_one_value_of_each_type(schema: object, text: str, wanted: object) -> None:
    got = one(schema, text)
    assert got == wanted
    assert type(got) is type(wanted)


def test_types_of_columns() -> None:
    schema = opened(
        i=INT, big=BIG, n=N, b=B, s=S, t=MOMENT, d=DAY, l={"items": INT, "type": "array"}, o=json.loads(closed(x=S))
    )
    struct = json_decoder(schema).type
    assert {field.name: field.type for field in struct} == {
        "i": pa.int64(),
        "big": pa.decimal128(38, 0),
        "n": pa.float64(),
        "b": pa.bool_(),
        "s": pa.string(),
        "t": pa.timestamp("us", "UTC"),
        "d": pa.date32(),
        "l": pa.list_(pa.int64()),
        "o": pa.struct([pa.field("x", pa.string())]),
        "_additional": pa.string(),
    }
    assert all(field.nullable for field in struct)


def test_members_the_schema_does_not_know_are_kept() -> None:
    inner = json.loads(opened(x=INT))
    schema = opened(a=INT, o=inner, _additional=S)
    decoded = decode(
        schema, r'{ "z\u00e9" : [1, 2.50], "a":1,"_additional":"s","o":{"y":null, "x":2,"w":{}},"a2":"\n"}', '{"a":2}'
    )
    assert decoded.errors.to_pylist() == [None, None]
    assert decoded.columns.to_pylist() == [
        {
            "a": 1,
            "o": {"x": 2, "_additional": '{"y":null,"w":{}}'},
            "_additional": "s",
            "_additional_": r'{"z\u00e9" : [1, 2.50],"a2":"\n"}',
        },
        {"a": 2, "o": None, "_additional": None, "_additional_": None},
    ]
    error = decode(closed(a=INT), '{"a":1,"b":2}').errors[0].as_py()
    assert error == "type_mismatch: $: a member the schema does not allow"


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}', '{"a":null,"a":1}', '{"a":null,"a":null}', '{"z":1,"z":1}', r'{"a":1,"\u0061":1}',
        '{"z":{"y":null,"y":2}}', '{"m":{"k":1,"k":2}}', '{"t":[{"k":1,"k":2}]}', r'{"m":{"k":null,"\u006b":null}}',
    ],
)  # fmt: skip
def test_two_members_of_one_name_have_no_agreed_meaning(text: str) -> None:
    schema = opened(a=INT, m={"type": "object", "additionalProperties": INT}, t={})
    assert decode(schema, text).errors[0].as_py() == "undecodable: an object with two members of one name"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "undecodable: the text ends before its value does"),
        (b"{", "undecodable: an object without a name where one is expected"),
        (b'{"a":1} x', "undecodable: more text behind the JSON value"),
        (b'{"a":1}{"a":2}', "undecodable: more text behind the JSON value"),
        (b'{"a":1,}', "undecodable: an object without a name where one is expected"),
        (b'\xef\xbb\xbf{"a":1}', "undecodable: begins with a byte order mark"),
        (b'{"a":"\xff"}', "invalid_utf8: the value is not UTF-8"),
        (b'{"z":"\xed\xa0\x80"}', "invalid_utf8: the value is not UTF-8"),
        (b"[1]", "type_mismatch: $: an array, not an object"),
        (b"null", "type_mismatch: $: null, not an object"),
        (b'{"z":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}", "undecodable: nested more than 100 deep"),
        (b"[" * 100_000, "undecodable: nested more than 100 deep"),
    ],
)
def test_damaged_values_leave_their_neighbours_alone(data: bytes, error: str) -> None:
    decoded = decode(opened(a=INT), '{"a":1}', data, '{"a":3}', data)
    assert decoded.errors.to_pylist() == [None, error, None, error]
    assert [row and row["a"] for row in decoded.columns.to_pylist()] == [1, None, 3, None]


def test_deep_values_within_the_limit_and_many_names() -> None:
    deep = "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)
    many = json.dumps({f"k{i}": i for i in range(5000)})
    decoded = decode(opened(a=INT), f'{{"z":{deep}}}', many)
    assert decoded.errors.to_pylist() == [None, None]
    assert decoded.columns[0]["_additional"].as_py() == f'{{"z":{deep}}}'
    assert json.loads(decoded.columns[1]["_additional"].as_py()) == json.loads(many)


def test_schemas_that_are_no_records() -> None:
    for schema, text, value in [
        (json.dumps(INT), "5", 5),
        (json.dumps(S), "null", None),
        ('{"type":"array","items":{"type":"string"}}', '["a"]', ["a"]),
        ("true", " [1] ", "[1]"),
        ("{}", '{"a": 1}', '{"a": 1}'),
        ('{"type":"object","additionalProperties":false}', "{}", True),
    ]:
        decoded = decode(schema, text, "}")
        assert decoded.columns.to_pylist() == [{"value": value}, None]
        assert [error is None for error in decoded.errors.to_pylist()] == [True, False]


def test_good_rows_never_take_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> object:
        raise AssertionError("the slow decoder was called")

    monkeypatch.setattr(json_decode, "decode_row", never)
    schema = opened(
        i=INT, n=N, s=S, b=B, t=MOMENT, d=DAY, big=BIG, x={}, l={"type": "array", "items": json.loads(opened(q=N))},
        m={"type": "object", "additionalProperties": S},
    )  # fmt: skip
    row = {
        "i": -5, "n": 1.25e-5, "s": 'é"\n', "b": True, "t": "2024-01-01T00:00:00.5+02:00", "d": "2024-01-01",
        "big": 10**20,
        "x": [{}], "l": [{"q": 0.1}, {"r": 1}, None], "m": {"k": "v", "ü": None}, "more": {"a": [None]},
    }  # fmt: skip
    texts = [
        json.dumps(row, ensure_ascii=ascii_only, indent=indent) for ascii_only in (True, False) for indent in (None, 2)
    ]
    decoded = decode(schema, *texts, json.dumps(dict(reversed(row.items()))))
    assert decoded.errors.null_count == 5
    assert decoded.columns[0]["l"].as_py() == [
        {"q": 0.1, "_additional": None}, {"q": None, "_additional": '{"r": 1}'}, None,
    ]  # fmt: skip


def test_the_proof_finds_every_changed_byte() -> None:
    root = parse_schema(opened(i=INT, s=S, m={"additionalProperties": S, "type": "object"}, l={**LIST, "items": INT}))
    plan = make_plan(root)
    value = b'{"i":12,"s":"ab","m":{"k":"v"},"l":[1,2,34],"z":true}'
    data, offsets = np.frombuffer(value, dtype=np.uint8), np.array([0, len(value)], dtype=np.int32)
    data.setflags(write=False)
    offsets.setflags(write=False)
    tape, slots, good, _ = split(data, offsets, np.ones(1, dtype=np.bool_), plan.arrays)
    column = gather(data, tape, slots, plan, root, 1)
    assert proof.proved(data, offsets, good, column).tolist() == [True]
    leaves = [column.children[0], column.children[1], *column.children[2].children, column.children[3].children[0]]
    for leaf in leaves:
        for at in range(int(leaf.offsets[-1])):
            leaf.data[at] ^= 1
            assert proof.proved(data, offsets, good, column).tolist() == [False]
            leaf.data[at] ^= 1
    for part in (column, *column.children):
        part.present[0] ^= True
        assert proof.proved(data, offsets, good, column).tolist() == [False]
        part.present[0] ^= True


def test_several_threads_share_a_decoder() -> None:
    decoder = json_decoder(opened(a=INT, s=S))
    arrays = [pa.array([json.dumps({"a": k * i, "s": "x" * (i % 7)}).encode() for i in range(3000)]) for k in range(6)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda array: decoder.decode(array).columns.to_pylist(), arrays))
    assert found == [decoder.decode(array).columns.to_pylist() for array in arrays]
    assert [row["a"] for row in found[5]] == [5 * i for i in range(3000)]


def test_nothing_is_compiled_after_the_warm_up() -> None:
    kernels = [
        value
        for module in (json_split, json_gather, proof, hashing, scan)
        for value in vars(module).values()
        if hasattr(value, "signatures")
    ]
    warm_json()
    before = [len(kernel.signatures) for kernel in kernels]
    schema = opened(
        a=INT, s=S, x={}, l=LIST, d=DAY, t=MOMENT, m=COUNTS, o=json.loads(opened(q={**LIST, "items": COUNTS}))
    )
    decoded = decode(schema, '{"a":1,"x":[],"m":{"k":1},"o":{"q":[{}]},"z":0}', "{}", "[")
    decode(json.dumps(COUNTS), '{"k":1}')
    decode("true", "1")
    assert decoded.errors.null_count == 2
    assert len(kernels) > 20
    assert [len(kernel.signatures) for kernel in kernels] == before


def test_no_values() -> None:
    decoder = json_decoder(opened(a=INT))
    decoded = decoder.decode(pa.array([], pa.binary()))
    assert len(decoded.columns) == len(decoded.errors) == 0
    assert decoded.columns.type == decoder.type


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ("{", "#"),
        ('{"type":"object","type":"array"}', "#"),
        ("3", "#"),
        ('{"properties":{"a/b":{"type":"int"}}}', "#/properties/a~1b/type"),
        ('{"properties":{"a":3}}', "#/properties/a"),
        ('{"type":"object","properties":[]}', "#/properties"),
        ('{"properties":{"\\ud800":{}}}', "#/properties"),
        ('{"properties":{"a":{"$ref":"other.json#/x"}}}', "#/properties/a/$ref"),
        ('{"properties":{"a":{"$ref":"#/definitions/x"}}}', "#/properties/a/$ref"),
        ('{"$ref":"#"}', "#"),
        ('{"anyOf":[]}', "#/anyOf"),
        ('{"type":"integer","minimum":"1"}', "#/minimum"),
        ('{"type":"object","additionalProperties":3}', "#/additionalProperties"),
        ("[" * 100_000, "#"),
    ],
)
def test_schemas_that_cannot_be_used_name_the_place(schema: str, place: str) -> None:
    with pytest.raises(SchemaTextError) as error:
        json_decoder(schema)
    assert str(error.value).split(": ")[0] == place


def test_references_recursion_and_descriptions() -> None:
    schema = {
        "$defs": {"x": {"type": "integer", "description": "a number"}, "y": {"$ref": "#/$defs/x"}},
        "properties": {"a": {"$ref": "#/$defs/y"}, "again": {"$ref": "#"}, "p": {"$ref": "#/properties/a"}},
    }
    struct = json_decoder(json.dumps(schema)).type
    assert [str(field.type) for field in struct] == ["int64", "string", "int64", "string"]
    assert struct.field("a").metadata == {DOC: b"a number"}


def test_patterns() -> None:
    text = {"type": "object", "patternProperties": {"^x": INT}}
    assert one({**text, "additionalProperties": False}, '{"x1":2}') == {"x1": 2}
    assert one(text, '{"x1":2}') == '{"x1":2}'


def test_inference() -> None:
    rows = [
        {
            "id": 1,
            "n": 1,
            "t": "2024-01-01T00:00:00Z",
            "o": {"a": None},
            "l": [],
            "mixed": 1,
            "big": 2**64,
            "nothing": None,
        },
        {"id": 2, "n": 1.5, "o": {"b": True}, "l": [[{"q": 1}]], "mixed": "x", "e": {}, "huge": 10**40, "wide": 2**60},
        {"wide": 0.5},
    ]
    values = [b"nothing", b"[1]", None, *(json.dumps(row).encode() for row in rows)]
    schema = infer_schema(pa.array(values, pa.binary()))
    assert schema is not None
    assert json.loads(schema)["properties"] == {
        "id": {"type": "integer"},
        "n": {"type": "number"},
        "t": {"type": "string"},
        "o": {"type": "object", "properties": {"a": {}, "b": {"type": "boolean"}}},
        "l": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "integer"}}}},
        },
        "mixed": {},
        "big": {"type": "integer", "minimum": -(10**38) + 1, "maximum": 10**38 - 1},
        "nothing": {},
        "e": {},
        "huge": {},
        "wide": {},
    }
    assert infer_schema(pa.array([b"[]", b"{", None], pa.binary())) is None


def test_inference_of_wide_objects() -> None:
    wide = {f"k{i}": i for i in range(1500)}
    schema = infer_schema(pa.array([json.dumps({"inner": wide, **wide}).encode()], pa.binary()))
    assert schema is not None
    properties = json.loads(schema)["properties"]
    assert len(properties) == 1000
    assert properties["inner"] == {}
