"""Values of one file may take so many cells together beyond what their bytes pay for, each below its own limit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from converter import limits
from converter.limits import (
    CELLS_PER_BYTE,
    EXCESS_CELLS_MAX,
    FILE_CELLS_MAX,
    RECORD_BYTES,
    SLOW_STEPS_MAX,
    VALUE_CELLS_MAX,
)
from converter.types import Int64Array
from converter.values import allowance as module
from converter.values import rows as rows_module
from converter.values.allowance import Allowance
from converter.values.by_writer import Part, Parted, Route, Writer, columns_of
from converter.values.model import Bound, Decoded, Decoder, no_room_in_file
from converter.values.rows import made_in_pieces
from rsm_bridge.values.typed.table import KeyDecoder
from tests.unit.converter.values.test_values_cells import FORMS, SLOW, avro, avro_long, json_wide, protobuf

#: Items of a value: more cells than its bytes pay for.
ITEMS = 500


def longs(*numbers: int) -> Int64Array:
    return np.array(numbers, dtype=np.int64)


def decoded(decoder: Decoder, values: list[bytes], given: Allowance) -> list[Decoded]:
    """As a copy decodes them: in pieces, which are made again where they take too much at once."""
    rows = pa.record_batch([pa.array(values, pa.binary())], ["v"])

    def make(piece: pa.RecordBatch, cells_max: int, left: Allowance) -> Decoded:
        return decoder.decode(piece.column("v"), cells_max, left)

    return list(made_in_pieces(rows, rows.schema, make, given))


def said(pieces: list[Decoded]) -> list[str | None]:
    return [text for piece in pieces for text in piece.errors.to_pylist()]


def excess_of(decoder: Decoder, value: bytes) -> int:
    given = Allowance()
    decoder.decode(pa.array([value], pa.binary()), allowance=given)
    return EXCESS_CELLS_MAX - given.left[0]


@pytest.mark.parametrize("beyond", [0, 1])
def test_what_the_values_of_a_file_may_take(beyond: int) -> None:
    paid = CELLS_PER_BYTE * (10 + RECORD_BYTES)
    given = Allowance()
    assert given.left == (EXCESS_CELLS_MAX, FILE_CELLS_MAX, SLOW_STEPS_MAX)
    cells, sizes = longs(paid, paid + EXCESS_CELLS_MAX + beyond, paid, paid + 1), longs(10, 10, 10, 10)
    assert given.refused(cells, sizes).tolist() == [False, bool(beyond), False, not beyond]
    given = Allowance()
    all_of_it = longs(FILE_CELLS_MAX - 5, 5 + beyond, 5)
    assert given.refused(all_of_it, longs(2**31, 10, 10)).tolist() == [False, bool(beyond), not beyond]


def test_what_is_given_back_is_there_again() -> None:
    given = Allowance()
    before = given.left
    given.refused(longs(1_000_000), longs(10))
    assert given.left < before
    given.back_to(before)
    assert given.left == before


def test_a_file_has_room_for_many_values_and_few_seconds() -> None:
    """A value that has all its cells for nothing still fits; ordinary ones are never counted against it."""
    assert EXCESS_CELLS_MAX >= 64 * VALUE_CELLS_MAX
    doubles, objects = (1_000_000, 8_000_000), (190 * 1000, 1000 * len('{"c1":1},'))
    sizes = longs(doubles[1], objects[1])
    given = Allowance()
    given.refused(longs(doubles[0], objects[0]), sizes)
    assert given.left[0] == EXCESS_CELLS_MAX
    assert limits.FILE_CELLS_MAX > 1024 * limits.VALUE_CELLS_MAX


@pytest.mark.parametrize("piece", [None, 100_000])
@pytest.mark.parametrize("name", FORMS)
def test_values_beyond_it_say_so_and_others_keep_their_columns(
    name: str, piece: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CELLS_PER_BYTE", 1)
    form = FORMS[name]
    decoder = form.decoder()
    bomb, plain = form.value(ITEMS), b"\0" if name.startswith("avro") else b"{}" if name.startswith("json") else b""
    one = excess_of(decoder, bomb)
    assert one > 0
    monkeypatch.setattr(module, "EXCESS_CELLS_MAX", 3 * one)
    if piece is not None:
        monkeypatch.setattr(rows_module, "PIECE_CELLS_MAX", piece)
    given = Allowance()
    found = decoded(decoder, [plain, bomb, bomb, plain, bomb, bomb, plain, bomb], given)
    assert [index for index, text in enumerate(said(found)) if text] == [5, 7]
    assert {text for text in said(found) if text} == {no_room_in_file()}
    assert no_room_in_file().startswith("out_of_range: ")
    assert no_room_in_file().endswith("no room for it")
    counts = [len(row[next(iter(row))] or ()) if row else None for made in found for row in made.columns.to_pylist()]
    assert counts == [0, ITEMS, ITEMS, 0, ITEMS, None, 0, None]
    # What the same file has later finds it used up, too.
    assert said(decoded(decoder, [bomb, plain], given)) == [no_room_in_file(), None]
    assert given.left[0] == 0


@pytest.mark.parametrize("name", ["avro nullable records", "json objects", "protobuf messages"])
def test_all_cells_of_a_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS[name]
    decoder = form.decoder()
    given = Allowance()
    decoder.decode(pa.array([form.value(ITEMS)], pa.binary()), allowance=given)
    monkeypatch.setattr(module, "FILE_CELLS_MAX", 2 * (FILE_CELLS_MAX - given.left[1]))
    found = said(decoded(decoder, [form.value(ITEMS)] * 3, Allowance()))
    assert found == [None, None, no_room_in_file()]


#: Values that are decoded one by one, by Python.
SLOWLY = {
    "json": (FORMS["json objects"].decoder, b'{"l":[{"f0":0e99},' + b"{}," * ITEMS + b"{}]}"),
    "protobuf": (lambda: protobuf("repeated W l = 200; int32 t = 201;"), b"\xc8\x0c\1" * 2 + b"\xc2\x0c\0" * ITEMS),
    "avro": (SLOW["avro recursive"][0], avro_long(ITEMS) + b"\0" * ITEMS + b"\0"),
}


@pytest.mark.parametrize("name", SLOWLY)
def test_what_is_decoded_slowly_has_the_same_room(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, bomb = SLOWLY[name][0](), SLOWLY[name][1]
    one = excess_of(decoder, bomb)
    assert one > 0
    monkeypatch.setattr(module, "EXCESS_CELLS_MAX", 2 * one)
    found = said(decoded(decoder, [bomb] * 4, Allowance()))
    assert [text == no_room_in_file() for text in found] == [False, False, True, True]


def test_what_is_decoded_slowly_and_is_no_bomb_is_never_counted() -> None:
    """0e99 for an integer is whole, and slow to read; a tree of numbers becomes JSON."""
    columns = {"type": "object", "properties": {"number": {"type": "integer"}, "text": {"type": "string"}}}
    slow = b'{"l":[' + b'{"number":0e99,"text":"abc"},' * 1000 + b'{"number":0e99,"text":"abc"}]}'
    assert excess_of(json_wide({"type": "array", "items": columns}), slow) == 0
    fields = [{"name": "number", "type": "long"}, {"name": "children", "type": {"type": "array", "items": "T"}}]
    tree = avro({"type": "record", "name": "T", "fields": fields})
    nodes = avro_long(1) + avro_long(3000) + (avro_long(10**9) + b"\0") * 3000 + b"\0"
    assert excess_of(tree, nodes) == 0


def test_values_of_several_writers_and_keys_have_one_room(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS["avro nullable records"]
    decoder = form.decoder()
    bomb = pa.array([form.value(ITEMS)] * 2, pa.binary())
    monkeypatch.setattr(module, "EXCESS_CELLS_MAX", 3 * excess_of(decoder, form.value(ITEMS)))
    given, route = Allowance(), Route(decoder, (Bound(None),))
    parts = tuple(Part(Writer(number), longs(number, number + 2), bomb) for number in (0, 1))
    target = pa.struct([pa.field("x", pa.int64())])
    found = columns_of(Parted(4, parts), {Writer(0): route, Writer(1): route}, target, allowance=given)
    assert found.errors.to_pylist() == [None, None, None, no_room_in_file()]
    assert KeyDecoder(decoder).decode(bomb, allowance=given).errors.to_pylist() == [no_room_in_file()] * 2


def test_a_thousand_values_that_are_each_below_the_limit() -> None:
    """40 KB of nulls each, 10 KB on the wire together: 4 Gi cells, of which the rows before the limit have theirs."""
    count, fields = 1000, [{"name": f"f{n}", "type": ["null", "long"]} for n in range(100)]
    decoder = avro({"type": "array", "items": ["null", {"type": "record", "name": "W", "fields": fields}]})
    bomb = avro_long(40_000) + b"\0" * 40_000 + b"\0"
    one = excess_of(decoder, bomb)
    assert VALUE_CELLS_MAX // 2 < one < VALUE_CELLS_MAX
    rows = pa.record_batch([pa.array([bomb] * count, pa.binary())], ["v"])
    taken, errors = 0, 0

    def make(piece: pa.RecordBatch, cells_max: int, left: Allowance) -> tuple[int, int]:
        made = decoder.decode(piece.column("v"), cells_max, left)
        return made.cells, len(made.errors) - made.errors.null_count

    for cells, failed in made_in_pieces(rows, rows.schema, make, Allowance()):
        taken, errors = taken + cells, errors + failed
    assert errors == count - EXCESS_CELLS_MAX // one
    assert taken <= EXCESS_CELLS_MAX + CELLS_PER_BYTE * (len(bomb) + RECORD_BYTES) * (count - errors) + 2 * count
