"""JSON values that only the slow decoder reads: which they are, what they are counted, and what a file has room for."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from converter.limits import EXCESS_CELLS_MAX, FILE_CELLS_MAX, MIB, SLOW_STEPS_MAX, VALUE_CELLS_MAX
from converter.values import allowance as module
from converter.values.allowance import Allowance
from converter.values.json import decoder as json_decode
from converter.values.json.count import most
from converter.values.json.decoder import json_decoder
from converter.values.json.exact_reader import BadValue, Value, parse
from converter.values.json.exact_rows import decode_row
from converter.values.json.nodes import LIST, MAP, Node, make_plan
from converter.values.json.schema.parse import parse_schema
from converter.values.model import Decoder, no_room_in_file, too_many_cells
from tests.property import json_world

WIDE = {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(900)}}
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "much": {"type": "integer", "maximum": 1e30},
    "number": {"type": "number"},
    "when": {"type": "string", "format": "date-time"},
    "items": {"type": "array", "items": WIDE},
    "tags": {"type": "array", "items": {"type": "integer"}},
    "lists": {"type": "array", "items": {"type": "array", "items": WIDE}},
    "named": {"type": "object", "additionalProperties": WIDE},
    "any": {},
}
SCHEMA = json.dumps({"type": "object", "properties": PROPERTIES})
#: An integer that is whole, and that only the slow decoder reads.
SLOW = b'"id":0e99'
ITEM = b"{" + b",".join(b'"p%d":%d' % (n, n) for n in range(20)) + b"}"


def decoder() -> Decoder:
    return json_decoder(SCHEMA)


def taken(value: bytes) -> tuple[int, int]:
    """Cells and steps of a value that decodes."""
    given = Allowance()
    found = decoder().decode(pa.array([value], pa.binary()), allowance=given)
    assert found.errors.to_pylist() == [None]
    return FILE_CELLS_MAX - given.left[1], SLOW_STEPS_MAX - given.left[2]


QUICK = [
    b'{"id":1.0}',
    b'{"id":-0.000}',
    b'{"id":1e3,"much":1E+3}',
    b'{"id":10e-1,"much":1.50e1}',
    b'{"tags":[5,5,1.0,9223372036854775807]}',
    b'{"tags":[1.0,9007199254740991,-9007199254740991.0]}',
    b'{"tags":[1.0,9007199254740992,-9007199254740993,9999999999999e5]}',
    b'{"when":"2024-01-01T00:00:00.123456000Z"}',
    b'{"when":"2024-01-01t00:00:00.5z"}',
    b'{"when":"2024-01-01 00:00:00.0000000-01:30"}',
    b'{"number":1e-100}',
    b'{"number":-1.5E+200}',
    b'{"named":{' + b",".join(b'"%d":null' % n for n in range(3000)) + b"}}",
    b'{"any":{' + b",".join(b'"%d":1' % n for n in range(3000)) + b"}}",
]


@pytest.mark.parametrize("value", QUICK)
def test_ordinary_ways_to_write_a_value_are_quick_to_read(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    made, root = decoder(), parse_schema(SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(json_decode, "decode_row", None)
        found = made.decode(pa.array([b'{"id":1,"when":"2024-01-01T00:00:00Z"}', value, b"{}"], pa.binary()))
    assert found.errors.null_count == 3
    assert found.columns[1] == pa.array([decode_row(value, root)], made.type)[0]


EXPONENTS = ["0", "1", "3", "9", "17", "18", "19", "00", "05", "99", "260", "261", "308", "400"]


def number(rng: random.Random) -> str:
    digits = "".join(rng.choice("0000123456789") for _ in range(rng.choice([1, 1, 2, 5, 17, 18, 19, 38]))).lstrip("0")
    text = rng.choice(["", "-"]) + (digits or "0")
    if rng.random() < 0.6:
        text += "." + rng.choice(["0", "000000", "5", "50", "".join(rng.choices("01", k=rng.choice([1, 6, 18, 20])))])
    if rng.random() < 0.5:
        text += rng.choice("eE") + rng.choice(["", "+", "-"]) + rng.choice(EXPONENTS)
    return text


def time(rng: random.Random) -> str:
    fraction = rng.choice(["", ".1", ".123456", ".1234560", ".123456000", ".1234567", ".000000000", ".0000000000001"])
    day = rng.choice(["2024-02-29", "2023-02-29", "0001-01-01", "9999-12-31", "1969-12-31"])
    clock = rng.choice(["00:00:00", "23:59:59", "24:00:00", "12:59:60"])
    return f'"{day}{rng.choice("Tt _")}{clock}{fraction}{rng.choice(["Z", "z", "+00:00", "-23:59", "", "Zz"])}"'


def test_numbers_and_times_are_what_the_slow_decoder_reads() -> None:
    # Of the columns that are asked about alone: a row of all of them is thousands of cells.
    names = ["id", "much", "number", "when"]
    schema = json.dumps({"type": "object", "properties": {name: PROPERTIES[name] for name in names}})
    rng, made, root = random.Random(5), json_decoder(schema), parse_schema(schema)
    values = [
        f'{{"{name}":{time(rng) if name == "when" else number(rng)}}}'.encode() for name in rng.choices(names, k=6000)
    ]
    found = made.decode(pa.array(values, pa.binary()))
    for value, column, error in zip(values, found.columns, found.errors.to_pylist(), strict=True):
        try:
            row = decode_row(value, root)
        except BadValue:
            assert error is not None, value
        else:
            assert (error, repr(column)) == (None, repr(pa.array([row], made.type)[0])), value


def test_lists_take_what_they_hold_and_what_is_beside_them_nothing_of_it() -> None:
    """Eight items of 900 columns, and a value beside them that is slow to read."""
    items = b'"items":[' + b",".join([ITEM] * 8) + b"]"
    quick, _ = taken(b'{"id":1,' + items + b"}")
    slow, steps = taken(b"{" + SLOW + b"," + items + b"}")
    assert quick < slow < 2 * quick
    assert steps < 500
    tags = b'"tags":[' + b",".join([b"5"] * 1000) + b"]"
    assert taken(b"{" + SLOW + b"," + tags + b"}")[0] < 20_000
    assert taken(b"{" + SLOW + b',"any":{"items":[' + b",".join([b"5"] * 1000) + b"]}}")[0] < 20_000
    for wide in (b'"items":[%s]', b'"lists":[[],[%s]]'):
        assert taken(b"{" + SLOW + b"," + wide % (b",".join([b"{}"] * 100)) + b"}")[0] > 100 * 900
    assert taken(b"{" + SLOW + b',"named":{' + b",".join(b'"%d":{}' % n for n in range(100)) + b"}}")[0] > 100 * 900
    # The same name, written with an escape.
    assert taken(b"{" + SLOW + b',"it\\u0065ms":[' + b",".join([b"{}"] * 100) + b"]}")[0] > 100 * 900


def test_ordinary_rows_with_a_wide_list_and_a_slow_value_have_room() -> None:
    row = b'{"id":0e99,"items":[' + b",".join([ITEM] * 8) + b"]}"
    given = Allowance()
    found = decoder().decode(pa.array([row] * 500, pa.binary()), allowance=given)
    assert found.errors.null_count == 500
    assert given.left[0] == EXCESS_CELLS_MAX


def takes(node: Node | None, value: Value) -> tuple[int, int]:
    """Values of a text, and cells of its lists and maps by the schema."""
    content, values, cells = value.content, 1, 0
    inner: list[tuple[Node | None, Value]] = []
    if isinstance(content, dict):
        is_map = node is not None and node.kind == MAP
        cells += node.item_cells * len(content) if node is not None and is_map else 0
        for name, member in content.items():
            inner.append(
                (node.children[1] if node and is_map else node.named.get(name) if node else None, member.value)
            )
    elif isinstance(content, list):
        is_list = node is not None and node.kind == LIST
        cells += node.item_cells * len(content) if node is not None and is_list else 0
        inner = [(node.children[0] if node and is_list else None, item) for item in content]
    for child, item in inner:
        more = takes(child, item)
        values, cells = values + more[0], cells + more[1]
    return values, cells


@pytest.mark.parametrize("number", range(40))
def test_no_value_takes_more_than_is_counted(number: int) -> None:
    world = json_world.World(number)
    spec = world.spec()
    root = parse_schema(json.dumps(json_world.schema_of(spec)))
    texts = [text for text in world.values(spec, 60) if text]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    cells, steps = most(data, offsets, np.arange(len(texts)), make_plan(root).arrays)
    for text, counted, step in zip(texts, cells.tolist(), steps.tolist(), strict=True):
        try:
            values, items = takes(root, parse(text))
        except BadValue:
            continue
        assert counted >= 16 * values + items, text
        assert step >= values, text


def test_what_is_read_slowly_of_one_file_ends() -> None:
    """Each value as before, but all of them together no more than minutes of Python."""
    values, seconds = SLOW_STEPS_MAX, 5e-6
    assert 4 * values * seconds < 3600 / 2
    # A segment of 1 GiB, every row of it slow: 510 bytes, 16 columns.
    _, steps = taken(b"{" + SLOW + b',"any":[' + b",".join([b"5"] * 15) + b'],"much":1,"tags":[]}' + b" " * 420)
    assert steps * (1024 * MIB // 510) < SLOW_STEPS_MAX


def test_a_row_beyond_the_steps_of_its_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = b"{" + SLOW + b',"tags":[' + b"5," * 500 + b"5]}", b'{"tags":[5]}'
    _, steps = taken(slow)
    assert steps > 500
    monkeypatch.setattr(module, "SLOW_STEPS_MAX", 2 * steps)
    found = decoder().decode(pa.array([slow, quick, slow, slow, quick], pa.binary()), allowance=Allowance())
    assert found.errors.to_pylist() == [None, None, None, no_room_in_file(), None]
    assert f"{SLOW_STEPS_MAX} slow steps" in no_room_in_file()


def test_a_value_says_whether_its_columns_or_the_slow_decoder_take_too_much() -> None:
    """300,000 numbers are 300,000 cells: that they are decoded slowly is what takes more."""
    tags = b'"tags":[' + b"5," * 300_000 + b"5]"
    items = b'{"items":[' + b"{}," * 5_000 + b"{}]}"
    found = decoder().decode(pa.array([b"{" + tags + b"}", b"{" + SLOW + b"," + tags + b"}", items], pa.binary()))
    assert found.errors.to_pylist() == [None, too_many_cells(slow=True), too_many_cells()]
    assert too_many_cells(slow=True).endswith(f"decoded slowly, which may take more than {VALUE_CELLS_MAX} cells")
