"""Columns back into JSON: forms of numbers and times, escapes, order of members, nulls, the real flights."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from converter.errors import SegmentError
from converter.values.json import encode_kernel, encode_scalars, encode_text
from converter.values.json.decoder import json_decoder
from converter.values.json.encoder import json_encoder
from converter.values.json.schema.infer import infer_schema
from converter.values.json.style import NUMBER_FORMS, Style, TimeForm, parse_style, style_text
from converter.values.json.style_sample import member_order
from converter.values.model import Encoding
from converter.values.proof.encoders import encoder
from converter.values.proof.warmup import warm_json
from tests.support.json_writing import rewritten, sizes_of, texts
from tests.support.typed_json import SCHEMA as EVERY_TYPE
from tierberg.demo.events import flights

GOLDEN = Path(__file__).parents[4] / "golden" / "values_json_1.json"
MOMENT, DAY = {"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}
S, N, INT = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def opened(**properties: object) -> str:
    return json.dumps({"type": "object", "properties": properties})


def style_of(schema: str, *values: str) -> Style:
    encoding = json_decoder(schema).encoding(pa.array([value.encode() for value in values], pa.binary()))
    assert encoding is not None
    return parse_style(encoding.parameters["style"])


def comes_back(schema: str, *values: str, sample: int = 1000) -> list[bool]:
    data = [value.encode() for value in values]
    _, back = rewritten(schema, data, sample)
    return [text == value for text, value in zip(texts(back), data, strict=True)]


def doubles(form: str, values: np.ndarray, wanted: list[str]) -> list[str | None]:
    made = json_encoder({"schema": json.dumps(N), "style": style_text(Style(number=form))})
    back = made.encode(pa.array([{"value": value} for value in values.tolist()], made.type), sizes_of_texts(wanted))
    return [None if text is None else text.decode() for text in texts(back)]


def sizes_of_texts(values: list[str]) -> np.ndarray:
    return sizes_of([value.encode() for value in values])


def test_doubles_of_any_bits_are_as_python_and_orjson_write_them() -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(-(2**63), 2**63 - 1, 200_000).view(np.float64)
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    tens = np.array([float(f"1e{power}") for power in range(-323, 309)])
    near = [np.nextafter(some, side) for some in (powers, tens) for side in (0.0, np.inf)]
    whole = rng.integers(-(10**17), 10**17, 20_000).astype(np.float64)
    values = np.concatenate([values, powers, tens, *near, whole, whole / 100, rng.normal(0, 1, 20_000)])
    values = values[np.isfinite(values)]
    wanted = [repr(value) for value in values.tolist()]
    assert doubles("python", values, wanted) == wanted
    wanted = [orjson.dumps(value).decode() for value in values.tolist()]
    assert doubles("orjson", values, wanted) == wanted


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("python", "0.0 -0.0 1.0 100.5 0.0001 1e-05 1.5e-07 1000000000000000.0 1e+16 1.5e+300 5e-324"),
        ("orjson", "0.0 -0.0 1.0 100.5 0.0001 0.00001 1e-6 1000000000000000.0 1e+16 1.5e+300 5e-324"),
        ("rust", "0.0 -0.0 1.0 100.5 0.0001 0.00001 1e-6 1000000000000000.0 1e16 1.5e300 5e-324"),
        ("java", "0.0 -0.0 1.0 100.5 0.001 1.0E-4 1.5E-7 9999999.0 1.0E7 1.2345678E7 1.5E300"),
        ("javascript", "0 1 100.5 0.0001 0.000001 1e-7 1.5e-7 10000000000000000 100000000000000000000 1e+21 1.5e+300"),
        ("go", "0 -0 1 100.5 0.000001 1e-7 100000000000000000000 1e+21 1.5e+300"),
        ("dotnet", "0 -0 1 100.5 0.0001 1E-05 1.5E-07 100000000000000 1E+15 1.5E+300 5E-324"),
    ],
)
def test_forms_of_numbers(form: str, written: str) -> None:
    wanted = written.split()
    assert doubles(form, np.array(list(map(float, wanted))), wanted) == wanted
    # Whole numbers beyond 2^53 have no columns.
    rows = [f'{{"a":{text},"b":1.5}}' for text in wanted if not (text.isdecimal() and len(text) > 15)]
    style = style_of(opened(a=N, b=N), *rows)
    assert {style.number, *style.numbers.values()} == {form}
    assert all(comes_back(opened(a=N, b=N), *rows))


def test_members_may_have_other_forms_of_numbers() -> None:
    rows = [f'{{"whole":{i},"half":{i}.0,"list":[{i}.0,null]}}' for i in range(20)]
    schema = opened(whole=N, half=N, list={"type": "array", "items": N})
    assert all(comes_back(schema, *rows))


def test_numbers_no_json_has() -> None:
    assert doubles("python", np.array([np.nan, np.inf, -np.inf]), ["nan", "inf", "-inf"]) == [None, None, None]


def test_every_day() -> None:
    days = np.arange(-719_162, 2_932_897, 7, dtype=np.int64)
    days = np.concatenate([days, [2_932_896, -719_163, 2_932_897, -(2**31), 2**31 - 1]])
    made = json_encoder({"schema": json.dumps(DAY), "style": style_text(Style())})
    column = pa.array(days.astype(np.int32)).cast(pa.date32())
    back = made.encode(pa.StructArray.from_arrays([column], fields=list(made.type)), np.full(len(days), 12))
    wanted = [f'"{day}"'.encode() for day in np.datetime_as_string(days[:-4].astype("M8[D]")).tolist()]
    assert texts(back) == [*wanted, None, None, None, None]


@pytest.mark.parametrize(
    ("form", "moments"),
    [
        (TimeForm(), ["2024-02-29T23:59:59.000001Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]),
        (TimeForm(fraction="3"), ["2024-02-29T23:59:59.120Z", "1970-01-01T00:00:00.000Z"]),
        (TimeForm(fraction="0", zone="-00:00"), ["2024-02-29T23:59:59-00:00"]),
        (TimeForm(fraction="6"), ["9999-12-31T23:59:59.999999Z", "2024-03-01T00:00:00.000000Z"]),
        (TimeForm(fraction="9", zone="+00:00"), ["2024-02-29T23:59:59.123456000+00:00"]),
        (TimeForm(fraction="7"), ["2024-02-29T23:59:59.1234560Z"]),
        (TimeForm(fraction="1"), ["2024-02-29T23:59:59.0Z", "2024-02-29T23:59:59.9Z"]),
        (TimeForm(fraction="groups"),
         ["2024-03-01T00:00:00Z", "2024-02-29T00:00:00.120Z", "2024-02-29T00:00:00.123400Z"]),
        (TimeForm(fraction="shortest"),
         ["2024-02-29T23:59:59Z", "2024-02-29T23:59:59.12Z", "2024-02-29T23:59:59.12345Z"]),
        (TimeForm(" ", "micros", "+05:30"), ["2024-03-01 01:29:59+05:30", "1970-01-01 00:00:00.500000+05:30"]),
        (TimeForm(zone="-23:59"), ["2024-02-29T23:59:59-23:59"]),
        (TimeForm("t", "micros", "z"), ["2024-02-29t23:59:59z"]),
    ],
)  # fmt: skip
def test_forms_of_times(form: TimeForm, moments: list[str]) -> None:
    rows = [f'{{"t":"{moment}"}}' for moment in moments]
    found = style_of(opened(t=MOMENT), *rows).time
    assert (found.separator, found.zone) == (form.separator, form.zone)
    assert all(comes_back(opened(t=MOMENT), *rows))
    made = json_encoder({"schema": opened(t=MOMENT), "style": style_text(Style(time=form))})
    columns = json_decoder(opened(t=MOMENT)).decode(pa.array([row.encode() for row in rows], pa.binary())).columns
    assert texts(made.encode(columns, sizes_of_texts(rows))) == [row.encode() for row in rows]


def test_times_of_another_form_do_not_come_back_wrong() -> None:
    rows = ['{"t":"2024-02-29T23:59:59.120Z"}'] * 9 + ['{"t":"2024-02-29T23:59:59.1Z"}']
    assert comes_back(opened(t=MOMENT), *rows) == [True] * 9 + [False]


@pytest.mark.parametrize(
    "strings",
    [
        [r"a\/b", "<>&='", r"\/"],
        [r"\u003cb\u003e \u0026 '=", r"\u0008\u000c\n", "é\\u2028"],
        [r"\u003d\u0027", r"\u003c é \u2029", "+"],
        [r"\u0022\u0026\u002B\u0060", r"\u00E9\uD83D\uDE00\u007F", "=/"],
        [r"\u001F é", "\x7f"],
        ["\u2028\u2029 é\U0001f600", r"\b\t\n\f\r\"\\"],
    ],
)
def test_escapes_of_many_libraries(strings: list[str]) -> None:
    rows = [f'{{"s":"{text}"}}' for text in strings for _ in range(2)]
    assert all(comes_back(opened(s=S), *rows))


def test_libraries_are_known_by_some_of_their_escapes() -> None:
    assert comes_back(opened(s=S), r'{"s":"\u003c"}', r'{"s":"\u0026\u003e\u2028"}', sample=1) == [True, True]
    assert comes_back(opened(s=S), r'{"s":"\u003d"}', r'{"s":"\u0026\u0027"}', sample=1) == [True, True]
    assert comes_back(opened(s=S), r'{"s":"\u002B"}', r'{"s":"\u0022\u0060"}', sample=1) == [True, True]
    assert comes_back(opened(s=S), '{"s":"<"}', r'{"s":"\u003c"}', sample=1) == [True, False]


def test_names_are_escaped_as_texts_are() -> None:
    schema = opened(**{"é": S, 'q"\n': INT})
    assert all(comes_back(schema, json.dumps({"é": "ü", 'q"\n': 1}), json.dumps({"é": None, 'q"\n': 1})))


def test_nulls_are_written_or_left_out_member_by_member() -> None:
    schema = opened(a=INT, b=INT, c=INT)
    rows = ['{"a":1,"b":null}', '{"a":null}', '{"a":null,"b":2,"c":3}', '{"a":1,"b":null}']
    assert comes_back(schema, *rows) == [True, False, True, True]
    style = style_of(schema, *rows)
    assert [style.skips_null(node) for node in (1, 2, 3)] == [False, False, True]


def test_unseen_members_follow_the_others_in_what_becomes_of_nulls() -> None:
    assert comes_back(opened(a=INT, b=INT), '{"a":1,"b":2}', '{"a":null,"b":2}', sample=2) == [True, True]
    assert style_of(opened(a=INT, b=INT), '{"a":1}').skip_nulls
    assert not style_of(opened(a=INT, b=INT), '{"a":1,"b":null}').skip_nulls


def test_other_members_are_where_the_sample_has_them() -> None:
    schema = opened(a=INT, b=INT)
    rows = ['{"a":1,"x":[1,{"y":","}],"z":"\\"},","b":2}', '{"a":1,"b":2}', '{"a":1,"x":{},"b":2}']
    assert all(comes_back(schema, *rows))
    spaced = [json.dumps(json.loads(row)) for row in rows]
    assert all(comes_back(schema, *spaced))


@pytest.mark.parametrize(
    ("seen", "names", "order"),
    [
        ({}, "abc", (0, 1, 2, 3)),
        ({(2, 1): 1}, "abc", (0, 2, 1, 3)),
        ({(2, 0): 5, (0, 2): 4}, "abc", (1, 2, 0, 3)),
        ({(0, 3, 1): 1}, "abc", (0, 2, 3, 1)),
        ({(1, 2): 1, (0, 2): 1, (0, 1): 1}, "abc", (0, 1, 2, 3)),
        ({(2, 0): 1, (1, 2): 1}, "acb", (1, 2, 0, 3)),
        ({(2, 0): 1}, "cba", (2, 1, 0, 3)),
        ({(): 3, (1,): 2}, "ab", (0, 1, 2)),
    ],
)
def test_order_of_members(seen: Mapping[tuple[int, ...], int], names: str, order: tuple[int, ...]) -> None:
    assert member_order(len(names) + 1, Counter(dict(seen)), list(names)) == order


def test_flights_of_the_demo() -> None:
    values = [flight.json() for flight in itertools.islice(flights(), 20_000)]
    schema = infer_schema(pa.array(values[:1000], pa.binary()))
    assert schema is not None
    _, back = rewritten(schema, values)
    assert texts(back) == values


def test_no_values_and_no_sample() -> None:
    decoder = json_decoder(opened(a=INT))
    encoding = decoder.encoding(pa.array([b"no JSON", None], pa.binary()))
    assert encoding is not None
    back = encoder(encoding).encode(pa.array([], decoder.type), np.empty(0, dtype=np.int64))
    assert len(back) == 0
    assert back.offsets.tolist() == [0]


def test_a_style_is_read_as_it_was_stored() -> None:
    style = Style(
        comma=", ",
        colon=": ",
        escapes={"/": "\\/", "<": "\\u"},
        ascii=True,
        lines=True,
        upper=True,
        skip_nulls=True,
        nulls_differ=frozenset({3, 1}),
        number="java",
        numbers={2: "go"},
        time=TimeForm(" ", "9", "-05:00"),
        times={4: TimeForm()},
        orders={0: (1, 0)},
    )
    assert parse_style(style_text(style)) == style


@pytest.mark.parametrize(
    "change",
    [
        {"comma": ";"}, {"colon": ""}, {"escapes": {"é": "\\u"}}, {"escapes": {"a": "b"}}, {"escapes": []},
        {"number": "c"},
        {"numbers": {"x": "go"}}, {"time": ["T", "10", "Z"]}, {"time": ["T", "3", "+1:00"]}, {"time": None},
        {"orders": {"0": [0, 0]}}, {"orders": {"0": [0]}}, {"nulls_differ": None},
    ],
)  # fmt: skip
def test_a_damaged_style_makes_no_encoder(change: dict[str, Any]) -> None:
    style = json.dumps(json.loads(style_text(Style())) | change)
    with pytest.raises(SegmentError, match="no encoder of json"):
        encoder(Encoding("json", 1, {"schema": opened(a=INT), "style": style}))


def test_stored_encodings_write_what_they_always_wrote() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    with pa.ipc.open_stream(bytes.fromhex(golden["columns"])) as stream:
        columns = stream.read_all().column("value").combine_chunks()
    assert {json.loads(case["style"])["number"] for case in golden["cases"]} == NUMBER_FORMS.keys()
    for case in golden["cases"]:
        made = encoder(
            Encoding(golden["kind"], golden["version"], {"schema": golden["schema"], "style": case["style"]})
        )
        values = [None if value is None else bytes.fromhex(value) for value in case["values"]]
        assert columns.type == made.type
        assert len(values) - values.count(None) > 4
        sizes = np.array([-1 if value is None else len(value) for value in values], dtype=np.int64)
        assert texts(made.encode(columns, sizes)) == values


def test_every_type_in_one_schema() -> None:
    inner = {"a": 1, "times": ["2024-02-29T23:59:59.999999Z", None]}
    document = {
        "whole": -(2**63), "big": 10**38 - 1, "number": 0.1, "flag": False, "text": "né\0\u2028", "uuid": "0-0",
        "at": "2024-02-29T23:59:59.000001Z", "day": "9999-12-31", "maybe": None, "inner": inner,
        "scores": {"x": 1.5, "": None}, "nothing": {}, "lines": [inner, None, {"a": None, "times": []}],
        "several": "1", "any": [1, {"b": None}], "size": "S", "new": {"é": 1},
    }  # fmt: skip
    values = [json.dumps(document), json.dumps(dict.fromkeys(document)), json.dumps(document, separators=(",", ":"))]
    assert comes_back(json.dumps(EVERY_TYPE), *values) == [True, True, False]


def test_nothing_is_compiled_after_the_warm_up() -> None:
    kernels = [
        value
        for module in (encode_kernel, encode_scalars, encode_text)
        for value in vars(module).values()
        if hasattr(value, "signatures")
    ]
    warm_json()
    before = [len(kernel.signatures) for kernel in kernels]
    assert all(comes_back(opened(a=INT, t=MOMENT, n=N, s=S), '{"a":1,"s":"é","x":1}', "{}"))
    assert all(comes_back(json.dumps(DAY), '"2024-01-01"'))
    assert all(comes_back(json.dumps({"type": "array", "items": {}}), "[1,null]"))
    assert len(kernels) > 10
    assert [len(kernel.signatures) for kernel in kernels] == before
