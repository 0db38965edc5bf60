"""Values of several writers become one set of columns, in the order of the rows."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from converter.values.allowance import Allowance
from converter.values.by_writer import SCHEMA_IDS_MAX, Route, Writer, columns_of, parted, parted_by_id
from converter.values.model import CELLS_UNLIMITED, Bound, Decoded, Encoding, ValueProblem, error_text


@dataclass(frozen=True)
class _Digits:
    """Values are decimal numbers in ASCII; anything else does not decode."""

    name: str

    @property
    def type(self) -> pa.StructType:
        return pa.struct([pa.field(self.name, pa.int32())])

    def decode(
        self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
    ) -> Decoded:
        texts = values.to_pylist()
        rows = [{self.name: int(text)} if text.isdigit() else None for text in texts]
        errors = [None if text.isdigit() else error_text(ValueProblem.UNDECODABLE, "no digits") for text in texts]
        return Decoded(pa.array(rows, self.type), pa.array(errors, pa.string()))

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:
        return None


TARGET = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64())])
A = Route(_Digits("a"), (Bound(0), Bound(None)))
B = Route(_Digits("b"), (Bound(None), Bound(0)))


def framed(schema_id: int, value: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + value


def test_rows_keep_their_places_whatever_writers_they_have() -> None:
    values = pa.array(
        [framed(7, b"1"), None, framed(9, b"2"), b"bare", framed(7, b"x"), framed(7, b"3"), framed(4, b"9")],
        pa.binary(),
    )
    given = parted_by_id(values, lambda _: ())
    found = columns_of(given, {Writer(7): A, Writer(9): B, Writer(4): "unknown_schema: none"}, TARGET)
    assert found.columns.to_pylist() == [
        {"a": 1, "b": None},
        None,
        {"a": None, "b": 2},
        None,
        None,
        {"a": 3, "b": None},
        None,
    ]
    errors = found.errors.to_pylist()
    assert [error and error.partition(":")[0] for error in errors] == [
        None,
        None,
        None,
        "not_wire_format",
        "undecodable",
        None,
        "unknown_schema",
    ]


def test_values_without_a_header_have_one_writer() -> None:
    values = pa.array([b"1", None, b"22", b"x"], pa.binary())
    found = columns_of(parted(values), {Writer(): A}, TARGET)
    assert found.columns.flatten()[0].to_pylist() == [1, None, 22, None]
    assert found.errors.to_pylist() == [None, None, None, "undecodable: no digits"]


def test_values_that_do_not_fit_are_read_the_next_way() -> None:
    @dataclass(frozen=True)
    class Short(_Digits):
        """Of so many digits at most."""

        most: int

        def decode(
            self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
        ) -> Decoded:
            made = super().decode(values, cells_max, allowance)
            long = pa.array([text.isdigit() and len(text) > self.most for text in values.to_pylist()])
            said = error_text(ValueProblem.OUT_OF_RANGE, f"over {self.most}")
            return Decoded(pc.if_else(long, None, made.columns), pc.if_else(long, said, made.errors), 1)

    last = Route(Short("b", 3), (Bound(None), Bound(0)))
    route = Route(Short("a", 1), A.bound, Route(Short("a", 2), B.bound, last))
    values = pa.array([b"1", b"4444", b"22", None, b"x", b"333", b"55", b"6"], pa.binary())
    found = columns_of(parted(values), {Writer(): route}, TARGET)
    rows = [row and (row["a"], row["b"]) for row in found.columns.to_pylist()]
    assert rows == [(1, None), None, (None, 22), None, None, (None, 333), (None, 55), (6, None)]
    errors = found.errors.to_pylist()
    assert [errors[row] for row in (1, 4)] == ["out_of_range: over 1", "undecodable: no digits"]
    assert [error is None for error in errors] == [True, False, True, True, False, True, True, True]
    assert found.cells == 3


def test_slices_and_emptiness() -> None:
    values = pa.array([b"7", b"8", b"9"], pa.binary())
    assert columns_of(parted(values.slice(1)), {Writer(): A}, TARGET).columns.flatten()[0].to_pylist() == [8, 9]
    nothing = columns_of(parted(values.slice(3)), {}, TARGET)
    assert (len(nothing.columns), len(nothing.errors)) == (0, 0)
    tombstones = columns_of(parted(pa.nulls(2, pa.binary())), {}, TARGET)
    assert tombstones.columns.null_count == 2
    assert tombstones.errors.null_count == 2


def test_protobuf_values_part_by_message_too() -> None:
    values = pa.array([framed(3, b"\0" + b"1"), framed(3, b"\x02\x02" + b"2"), framed(3, b"\x03")], pa.binary())
    given = parted_by_id(values, lambda _: [3])
    routes: dict[Writer, Route | str] = {Writer(3, (0,)): A, Writer(3, (1,)): B}
    found = columns_of(given, routes, TARGET)
    assert found.columns.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2}, None]
    assert found.errors.to_pylist()[2].startswith("not_wire_format: the list of message indexes")


def test_many_writers_of_many_rows() -> None:
    draw = np.random.default_rng(5)
    ids = draw.integers(0, 50, 5000)
    numbers = draw.integers(0, 2**31, 5000)
    values = pa.array([framed(int(i), str(n).encode()) for i, n in zip(ids, numbers, strict=True)], pa.binary())
    routes: dict[Writer, Route | str] = {Writer(i): A if i % 2 else B for i in range(50)}
    found = columns_of(parted_by_id(values, lambda _: ()), routes, TARGET)
    assert found.columns.to_pylist() == [
        {"a": int(n), "b": None} if i % 2 else {"a": None, "b": int(n)} for i, n in zip(ids, numbers, strict=True)
    ]


def test_an_error_of_ours_costs_columns_and_no_more() -> None:
    @dataclass(frozen=True)
    class Broken(_Digits):
        def decode(
            self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
        ) -> Decoded:
            raise RuntimeError("lost\nits way")

    values = pa.array([framed(1, b"1"), framed(2, b"2")], pa.binary())
    routes: dict[Writer, Route | str] = {Writer(1): A, Writer(2): Route(Broken("b"), B.bound)}
    found = columns_of(parted_by_id(values, lambda _: ()), routes, TARGET)
    assert found.columns.to_pylist() == [{"a": 1, "b": None}, None]
    assert found.errors.to_pylist() == [None, "internal: RuntimeError: lost"]


def test_random_ids_do_not_flood_the_registry() -> None:
    asked: list[int] = []

    def protobuf_of(ids: Sequence[int]) -> Sequence[int]:
        asked.extend(ids)
        return ()

    draw = np.random.default_rng(9)
    values = [framed(5, b"1")] * 3 + [framed(int(n), b"8") for n in draw.integers(10, 2**31, 3000)]
    given = parted_by_id(pa.array(values, pa.binary()), protobuf_of)
    assert len(asked) == SCHEMA_IDS_MAX
    assert 5 in asked
    routes: dict[Writer, Route | str] = {Writer(number): "unknown_schema: none" for number in asked}
    found = columns_of(given, {**routes, Writer(5): A}, TARGET)
    assert found.columns.flatten()[0].to_pylist() == [1] * 3 + [None] * 3000
    assert found.errors.null_count == 3
