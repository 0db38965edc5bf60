"""project() against the same done row by row in Python, on arrays as decoders and slices really leave them."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from converter.values.model import Bound
from converter.values.project import project
from tests.support.examples import examples

ID = b"PARQUET:field_id"
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(5, 2), st.integers(-99999, 99999).map(lambda n: Decimal(n).scaleb(-2))),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
]
WIDER: dict[pa.DataType, list[pa.DataType]] = {
    pa.int32(): [pa.int64(), pa.float64()],
    pa.decimal128(5, 2): [pa.decimal128(7, 2), pa.decimal128(38, 2)],
}
KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=3),
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-5, 5),
    pa.int64(): st.integers(-5, 5),
}


class Maker:
    """Draws writer types with arrays and, beside them, table types with bindings."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.ids = iter(range(1, 10_000))

    def field(self, name: str, kind: pa.DataType, nullable: bool = True) -> pa.Field:
        return pa.field(name, kind, nullable=nullable, metadata={ID: str(next(self.ids)).encode()})

    def kind(self, depth: int) -> pa.DataType:
        shape = self.draw(st.sampled_from(["leaf", "leaf", "struct", "list", "map"])) if depth else "leaf"
        if shape == "struct":
            return self.struct(depth)
        if shape == "list":
            return pa.list_(self.kind(depth - 1))
        if shape == "map":
            return pa.map_(self.draw(st.sampled_from(list(KEYS))), self.kind(depth - 1))
        return self.draw(st.sampled_from([kind for kind, _ in LEAVES]))

    def struct(self, depth: int) -> pa.StructType:
        return pa.struct([(f"f{number}", self.kind(depth - 1)) for number in range(self.draw(st.integers(1, 3)))])

    def target(self, kind: pa.DataType) -> tuple[pa.DataType, tuple[Bound, ...]]:
        """A type that takes `kind` without loss, and how."""
        if pa.types.is_struct(kind):
            order = self.draw(st.permutations(range(kind.num_fields)))
            kept = order[: self.draw(st.integers(0, len(order)))]
            fields: list[pa.Field] = []
            bound: list[Bound] = []
            for source in [*kept, None]:
                wanted, children = (self.kind(2), ()) if source is None else self.target(kind.field(source).type)
                if source is None:
                    wanted = self.target(wanted)[0]
                fields.append(self.field(f"t{len(fields)}", wanted))
                bound.append(Bound(source, children))
            return pa.struct(fields), tuple(bound)
        if pa.types.is_map(kind):
            value, children = self.target(kind.item_type)
            return pa.map_(self.field("key", kind.key_type, False), self.field("value", value)), (Bound(0, children),)
        if pa.types.is_list(kind):
            element, children = self.target(kind.value_type)
            return pa.list_(self.field("element", element)), (Bound(0, children),)
        return self.draw(st.sampled_from([kind, *WIDER.get(kind, [])])), ()

    def array(self, kind: pa.DataType, length: int) -> pa.Array:
        """Any array: null structs over children that are not, null lists over a range that is not empty, slices."""
        before, after = self.draw(st.integers(0, 2)), self.draw(st.integers(0, 2))
        whole = self.whole(kind, before + length + after)
        return whole[before : before + length]

    def whole(self, kind: pa.DataType, length: int) -> pa.Array:
        valid = np.array(self.draw(st.lists(st.booleans(), min_size=length, max_size=length)), np.bool_)
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        if pa.types.is_struct(kind):
            children = [self.array(field.type, length) for field in kind]
            return pa.Array.from_buffers(kind, length, [validity], children=children)
        if pa.types.is_list(kind) or pa.types.is_map(kind):
            lengths = self.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
            offsets = np.cumsum([self.draw(st.integers(0, 2)), *lengths]).astype(np.int32)
            held = int(offsets[-1]) + self.draw(st.integers(0, 2))
            if pa.types.is_list(kind):
                child = self.array(kind.value_type, held)
            else:
                keys = pa.array(self.draw(st.lists(KEYS[kind.key_type], min_size=held, max_size=held)), kind.key_type)
                items = self.array(kind.item_type, held)
                child = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
            return pa.Array.from_buffers(kind, length, [validity, pa.py_buffer(offsets)], children=[child])
        values = self.draw(st.lists(st.none() | dict(LEAVES)[kind], min_size=length, max_size=length))
        return pa.array(values, kind)


def expected(value: Any, kind: pa.DataType, bound: tuple[Bound, ...], target: pa.DataType) -> Any:
    """One value of the writer, as the table's column shows it."""
    if value is None:
        return None
    if pa.types.is_struct(target):
        return {
            wanted.name: None
            if item.source is None
            else expected(value[kind[item.source].name], kind[item.source].type, item.children, wanted.type)
            for item, wanted in zip(bound, target, strict=True)
        }
    if pa.types.is_map(target):
        return [(key, expected(item, kind.item_type, bound[0].children, target.item_type)) for key, item in value]
    if pa.types.is_list(target):
        return [expected(item, kind.value_type, bound[0].children, target.value_type) for item in value]
    return float(value) if pa.types.is_float64(target) else value


def metadata(kind: pa.DataType) -> list[Any]:
    """Metadata of every field in a type, depth first."""
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
    elif pa.types.is_list(kind):
        fields = [kind.value_field]
    else:
        fields = list(kind) if pa.types.is_struct(kind) else []
    return [item for field in fields for item in (field.name, field.metadata, *metadata(field.type))]


@given(st.data())
@examples(150)
def test_it_is_what_a_row_by_row_projection_gives(data: st.DataObject) -> None:
    maker = Maker(data)
    kind = maker.struct(3)
    columns = maker.array(kind, data.draw(st.integers(0, 5)))
    target, bound = maker.target(kind)
    result = project(columns, bound, target)
    result.validate(full=True)
    assert result.type == target
    assert metadata(result.type) == metadata(target)
    rows = [expected(value, kind, bound, target) for value in columns.to_pylist()]
    assert result.to_pylist() == rows
    # What a file gives back: nothing that a null hides comes to light, and the field ids are in it.
    sink = io.BytesIO()
    pq.write_table(pa.table({"row": pa.chunked_array([result], target)}), sink)
    read = pq.read_table(sink)
    assert read["row"].to_pylist() == rows
    assert [m[ID] for m in metadata(read.schema[0].type)[1::2]] == [m[ID] for m in metadata(target)[1::2]]
