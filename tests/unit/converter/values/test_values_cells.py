"""What a value may become is counted before anything is allocated: at the limit it decodes, one item more is an error.

Two bytes of an empty item are a row of a list's columns; a few bytes of wire hold 100 KB of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from converter.limits import PIECE_CELLS_MAX, VALUE_CELLS_MAX
from converter.values.allowance import Allowance
from converter.values.avro.decoder import avro_decoder
from converter.values.json.decoder import json_decoder
from converter.values.model import CellsExceededError, Decoder, too_many_cells
from converter.values.protobuf.decoder import protobuf_decoder
from converter.values.rows import made_in_pieces
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema

COLUMNS = 99
ERROR = f"out_of_range: takes more than {VALUE_CELLS_MAX} cells"


def avro_long(value: int) -> bytes:
    value = value << 1 if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def avro(items: Any) -> Decoder:
    return avro_decoder(json.dumps({"type": "record", "name": "R", "fields": [{"name": "l", "type": items}]}))


def wide(name: str = "W") -> dict[str, Any]:
    fields = [{"name": f"f{n}", "type": ["null", "int"]} for n in range(COLUMNS)]
    return {"type": "record", "name": name, "fields": fields}


def json_wide(items: dict[str, Any]) -> Decoder:
    return json_decoder(json.dumps({"type": "object", "properties": {"l": items}}))


def json_columns() -> dict[str, Any]:
    return {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(COLUMNS)}}


def protobuf(field: str) -> Decoder:
    columns = " ".join(f"int32 f{n} = {n + 1};" for n in range(COLUMNS))
    text = f'syntax = "proto3"; message R {{ {field} message W {{ {columns} }} }}'
    return protobuf_decoder(protobuf_schema(text), (0,))


def protobuf_groups() -> Decoder:
    columns = " ".join(f"optional int32 f{n} = {n + 1};" for n in range(COLUMNS))
    text = f'syntax = "proto2"; message R {{ repeated group L = 200 {{ {columns} }} }}'
    return protobuf_decoder(protobuf_schema(text), (0,))


@dataclass(frozen=True)
class Form:
    """A decoder, and a value of so many items of it, each of which takes `cells`."""

    decoder: Callable[[], Decoder]
    value: Callable[[int], bytes]
    cells: int


def _recursive() -> Decoder:
    tree = {"type": "record", "name": "T", "fields": [{"name": "n" * 84, "type": {"type": "array", "items": "T"}}]}
    return avro_decoder(json.dumps({"type": "record", "name": "R", "fields": [{"name": "l", "type": tree}]}))


FORMS: dict[str, Form] = {
    "avro nullable records": Form(
        lambda: avro({"type": "array", "items": ["null", wide()]}),
        lambda n: avro_long(n) + b"\0" * n + b"\0",
        COLUMNS + 1,
    ),
    "avro blocks with their size": Form(
        lambda: avro({"type": "array", "items": ["null", wide()]}),
        lambda n: b"".join(avro_long(-1) + b"\x02\0" for _ in range(n)) + b"\0",
        COLUMNS + 1,
    ),
    "avro map": Form(
        lambda: avro({"type": "map", "values": ["null", wide()]}),
        lambda n: avro_long(n) + b"".join(avro_long(7) + b"%07d\0" % k for k in range(n)) + b"\0",
        COLUMNS + 2,
    ),
    "avro enum": Form(
        lambda: avro({"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["s" * 792]}}),
        lambda n: avro_long(n) + b"\0" * n + b"\0",
        100,
    ),
    "json nulls": Form(
        lambda: json_wide({"type": "array", "items": json_columns()}),
        lambda n: b'{"l":[' + b"null," * (n - 1) + b"null]}",
        COLUMNS + 2,
    ),
    "json objects": Form(
        lambda: json_wide({"type": "array", "items": json_columns()}),
        lambda n: b'{"l":[' + b"{}," * (n - 1) + b"{}]}",
        COLUMNS + 2,
    ),
    "json map": Form(
        lambda: json_wide({"type": "object", "additionalProperties": json_columns()}),
        lambda n: b'{"l":{' + b",".join(b'"%d":{}' % k for k in range(n)) + b"}}",
        COLUMNS + 3,
    ),
    "protobuf messages": Form(lambda: protobuf("repeated W l = 200;"), lambda n: b"\xc2\x0c\0" * n, COLUMNS + 1),
}


@pytest.mark.parametrize("name", [name for name in FORMS if name != "json map"])
def test_a_value_at_the_limit_decodes_and_one_item_more_is_its_rows_error(name: str) -> None:
    form = FORMS[name]
    decoder, count = form.decoder(), VALUE_CELLS_MAX // form.cells
    values = pa.array([form.value(1), form.value(count + 1), form.value(count), form.value(2)], pa.binary())
    found = decoder.decode(values)
    assert [text and text.startswith(ERROR) for text in found.errors.to_pylist()] == [None, True, None, None]
    assert [found.columns.is_valid()[row].as_py() for row in range(4)] == [True, False, True, True]
    assert len(found.columns.field(0)[2]) == count
    assert found.cells >= count * form.cells


@pytest.mark.parametrize("name", FORMS)
def test_values_that_take_too_much_together_are_not_begun(name: str) -> None:
    form = FORMS[name]
    decoder, count = form.decoder(), 500
    values = pa.array([form.value(count)] * 4, pa.binary())
    enough = decoder.decode(values).cells
    assert decoder.decode(values, enough).cells == enough
    with pytest.raises(CellsExceededError):
        decoder.decode(values, enough - 1)


@pytest.mark.parametrize("name", FORMS)
def test_rows_are_made_in_pieces_that_hold_what_they_take(name: str) -> None:
    form = FORMS[name]
    decoder = form.decoder()
    counts = [1, 1500, 1, 1700, 1, 1, 1900, 1]
    rows = pa.record_batch([pa.array([form.value(count) for count in counts], pa.binary())], ["v"])
    taken: list[int] = []

    def make(piece: pa.RecordBatch, cells_max: int, _: Allowance) -> list[int]:
        made = decoder.decode(piece.column("v"), min(cells_max, PIECE_CELLS_MAX // 4))
        taken.append(made.cells)
        return [len(made.columns.field(0)[row]) for row in range(len(made.columns))]

    assert [size for piece in made_in_pieces(rows, rows.schema, make, Allowance()) for size in piece] == counts
    assert max(taken) <= PIECE_CELLS_MAX // 4


def test_a_single_row_that_takes_more_than_a_piece_is_large_work() -> None:
    form = FORMS["avro nullable records"]
    decoder = form.decoder()
    large = form.value(PIECE_CELLS_MAX // form.cells + 1)
    rows = pa.record_batch([pa.array([form.value(1), large, form.value(1)], pa.binary())], ["v"])
    inside: list[str] = []

    class Turn:
        def __enter__(self) -> None:
            inside.append("begin")

        def __exit__(self, *_: object) -> None:
            inside.append("end")

    def make(piece: pa.RecordBatch, cells_max: int, _: Allowance) -> int:
        made = decoder.decode(piece.column("v"), cells_max)
        inside.append(f"{len(made.columns)}")
        return len(made.columns)

    assert sum(made_in_pieces(rows, rows.schema, make, Allowance(), Turn)) == 3
    assert inside == ["1", "begin", "1", "end", "1"]


#: Values that decoders of other libraries, or Python, read: counted as what these make of them.
SLOW: dict[str, tuple[Callable[[], Decoder], bytes]] = {
    "json odd and wide": (FORMS["json objects"].decoder, b'{"l":[' + b"{}," * 60_000 + b'{}],"\\ud83d\\ude00":1e400}'),
    "json odd and deep": (lambda: json_wide({}), b'{"l":' + b"[" * 90 + b"1," * 300_000 + b"1" + b"]" * 90 + b',"x":1'),
    "json odd and long": (lambda: json_wide({}), b'{"l":"' + b"x" * 20_000_000 + b'","l":1}'),
    "protobuf twice": (
        lambda: protobuf("repeated W l = 200; int32 t = 201;"),
        b"\xc8\x0c\1" * 2 + b"\xc2\x0c\0" * 50_000,
    ),
    "protobuf groups": (protobuf_groups, b"\xc3\x0c\xc4\x0c" * 50_000),
    "protobuf groups that do not end": (protobuf_groups, b"\xc3\x0c\xc4\x0c" * 50_000 + b"\xc3\x0c"),
    "avro recursive": (_recursive, avro_long(50_000) + b"\0" * 50_000 + b"\0"),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_is_decoded_slowly_is_counted_too(name: str) -> None:
    decoder, value = SLOW[name][0](), SLOW[name][1]
    (said,) = decoder.decode(pa.array([value], pa.binary())).errors.to_pylist()
    assert said.startswith((ERROR, too_many_cells(slow=True)))


def test_bombs_take_no_memory() -> None:
    """102 KB that were 861 MiB, 502 KB that were 2.5 GiB: twenty such values, each an error, take less than a step."""
    code = (
        "import resource, pyarrow as pa\n"
        "from tests.unit.converter.values.test_values_cells import FORMS\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "made = {name: FORMS[name].decoder() for name in FORMS}\n"
        "for name, one in made.items():\n"
        "    one.decode(pa.array([FORMS[name].value(3)], pa.binary()))\n"
        "before = peak()\n"
        "for name, one in made.items():\n"
        "    if name != 'json map':\n"
        "        found = one.decode(pa.array([FORMS[name].value(500_000)] * 20, pa.binary()))\n"
        "        assert found.errors.null_count == 0, name\n"
        "        print(name, peak() - before)\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 100, done.stdout
