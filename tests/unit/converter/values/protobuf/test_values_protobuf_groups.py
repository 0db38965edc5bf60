"""Groups: a value that has one takes what it takes, and what comes before and behind them is counted all the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from converter.limits import EXCESS_CELLS_MAX, FILE_CELLS_MAX
from converter.values.allowance import Allowance
from converter.values.protobuf.decoder import protobuf_decoder
from converter.values.protobuf.nodes import ProtobufNode, make_plan
from converter.values.protobuf.scan import STEP_CELLS, most_cells
from converter.values.protobuf.scan_table import row_cells, scan_table
from converter.values.protobuf.schema import SchemaFiles
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.oracle.protobuf_messages import varint

COLUMNS = " ".join(f"optional int32 a{n} = {n + 1};" for n in range(100))
SCHEMA = protobuf_schema(f"""
syntax = "proto2"; package p;
message Line {{ {COLUMNS} }}
message T {{
  optional group Header = 1 {{
    optional int64 id = 2; repeated Line lines = 3; repeated group Deep = 4 {{ optional Line l = 1; }}
  }}
  repeated Line lines = 3; map<int32, Line> named = 4; repeated fixed64 far = 3000; repeated group G = 5 {{ }}
  repeated uint64 numbers = 6 [packed = true]; repeated sfixed32 fixed = 7; repeated string texts = 8;
}}
""")
ROOT, _ = make_plan(SchemaFiles(SCHEMA).message("p.T"))
TABLE = scan_table(ROOT)
BOMB = b"\x1a\0" * 2000


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def sized(number: int, content: bytes) -> bytes:
    return tag(number, 2) + varint(len(content)) + content


def group(number: int, content: bytes) -> bytes:
    return tag(number, 3) + content + tag(number, 4)


LINE = b"\x10\x02\x18\x01\x20\x01\x40\x01"
LINES = sized(3, LINE) * 300

#: Values with 300 lines of 100 columns.
ORDINARY = {
    "a group before": group(1, b"\x10\x07") + LINES,
    "a group behind": LINES + group(1, b"\x10\x07"),
    "a group in a group": group(1, b"\x10\x07" + group(4, sized(1, LINE))) + LINES,
    "an unknown group before": group(900, b"\x08\x01") + LINES,
    "an unknown group behind": LINES + group(900, sized(3, LINE)),
    "unknown groups within each other": group(900, group(901, group(902, b"\x0a\x03abc")) * 3) + LINES,
    "an unknown group in a line": sized(3, LINE + group(901, b"\x08\x01")) * 300,
    "a message written as a group is unknown": group(3, LINE) + LINES,
    "a group written as a message is unknown": sized(1, b"\xff\xff") + LINES,
}


@pytest.mark.parametrize("name", ORDINARY)
def test_a_value_with_a_group_takes_what_it_takes(name: str) -> None:
    decoder, given = protobuf_decoder(SCHEMA, "p.T"), Allowance()
    found = decoder.decode(pa.array([ORDINARY[name]] * 2000, pa.binary()), allowance=given)
    assert found.errors.null_count == 2000
    assert {len(lines) for lines in found.columns.field("lines").to_pylist()} == {300}
    # 101 cells a line, and what Python needs for five fields.
    assert FILE_CELLS_MAX - given.left[1] < 2000 * 300 * (101 + 8 * STEP_CELLS)
    assert given.left[0] > EXCESS_CELLS_MAX // 2


#: What google.protobuf reads over, or gives up on only after it; behind it, 2,000 lines of no bytes.
HIDING = {
    "a group that is none of the schema's, of bytes that are no message": group(900, sized(3, b"\xff\xff\xff")),
    "its end within a text": group(900, sized(1, tag(900, 4))),
    "a message as a group": group(3, sized(1, b"\xff")),
    "a group as a message": sized(1, b"\xff\xff\xff"),
    "a map as a group": group(4, b"\x08\x01"),
    "an empty group": group(5, b""),
    "a group within another": group(1, group(4, b"")),
    "deep ones": tag(900, 3) * 90 + tag(900, 4) * 90,
}


@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("behind", [b"", b"\xff", tag(5, 3), tag(5, 4), tag(0, 3)])
def test_what_lies_behind_groups_is_counted(name: str, behind: bytes) -> None:
    most = counted(HIDING[name] + BOMB + behind)
    assert most >= 2000 * 101
    assert counted(group(1, HIDING[name] + sized(3, b"") * 2000 + behind)) >= 2000 * 101
    assert counted(sized(3, HIDING[name]) + BOMB) >= 2000 * 101


def test_elements_of_a_high_number_are_counted_by_their_bytes() -> None:
    assert counted(sized(3000, b"\xff" * 8000)) >= 1000


def counted(value: bytes) -> int:
    offsets = np.array([0, len(value)], np.int64)
    rows = np.zeros(1, np.int64)
    cells, _ = most_cells(TABLE, offsets, np.frombuffer(value, np.uint8), rows, cells_max=2**40)
    return int(cells[0])


def fragment(rng: random.Random, depth: int = 0) -> bytes:
    number = rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 900, 3000])
    shape = rng.randrange(9)
    inner = b"".join(fragment(rng, depth + 1) for _ in range(rng.randrange(4))) if depth < 5 else b""
    if shape < 3:
        return group(number, inner)
    if shape < 5:
        return sized(number, inner)
    if shape == 5:
        return sized(number, rng.randbytes(rng.choice([0, 1, 4, 8, 16])))
    if shape == 6:
        return tag(number, 0) + varint(rng.getrandbits(rng.choice([3, 60])))
    if shape == 7:
        return tag(number, 1) + rng.randbytes(8)
    return tag(number, rng.choice([3, 4])) if rng.random() < 0.2 else tag(number, 5) + rng.randbytes(4)


def takes(node: ProtobufNode, message: Any) -> int:
    """Cells that the lists and maps of a message take."""
    fields, cells = {field.number: field for field in node.fields}, 0
    for kind, value in message.ListFields():
        field = fields[kind.number]
        for item in [value] if not field.repeated else [value[key] for key in value] if field.key else value:
            cells += row_cells(field.node) if field.repeated else 0
            cells += takes(field.node, item) if isinstance(item, Message) else 0
    return cells


def test_no_value_takes_more_than_is_counted() -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(SCHEMA).file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.T"))
    rng, read = random.Random(7), 0
    for _ in range(4000):
        value = b"".join(fragment(rng) for _ in range(rng.randrange(1, 6)))
        try:
            message = kind.FromString(value)
        except DecodeError:
            continue
        read += 1
        assert counted(value) >= takes(ROOT, message), value.hex()
    assert read > 400
