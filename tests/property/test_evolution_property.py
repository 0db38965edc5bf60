"""Evolution over random schemas of several writers, in several orders: everything binds, and stays where it is."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from converter.values.model import ALIASES, BARE_VALUE, DOC
from iceberg_catalog.evolve.types import field_count
from tests.support.evolving import Columns, Places
from tests.support.examples import examples

#: Few, so that writers meet; with every pair that could be taken for one another.
NAMES = [
    "a",
    "A",
    "b",
    "B",
    "a.b",
    "a_b",
    "a__v2",
    "a__case2",
    "_kafka_offset",
    "x_kafka_offset",
    "_key",
    "",
    "ß",
    "ss",
]
LEAVES = [
    pa.int32(),
    pa.int64(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(9, 2),
    pa.decimal128(9, 3),
    pa.string(),
    pa.bool_(),
    pa.timestamp("us"),
    pa.timestamp("us", tz="UTC"),
]


def kinds() -> st.SearchStrategy[pa.DataType]:
    leaves = st.sampled_from(LEAVES)
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(pa.list_, inner)
            | st.builds(pa.map_, st.sampled_from([pa.string(), pa.int32()]), inner)
            | structs(inner, 3)
        ),
        max_leaves=4,
    )


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[pa.DataType], most: int) -> pa.StructType:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique=True))
    fields = []
    for name in names:
        metadata = {}
        if draw(st.integers(0, 2)) == 0:
            former = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
            metadata[ALIASES] = json.dumps([alias for alias in former if alias != name]).encode()
        if draw(st.booleans()):
            metadata[DOC] = b"said by the schema"
        fields.append(pa.field(name, draw(inner), metadata=metadata))
    return pa.struct(fields)


@st.composite
def renaming(draw: st.DrawFn) -> pa.StructType:
    """A flat struct of few names and types, most of them said to have had another name."""
    names = draw(st.lists(st.sampled_from("abcA"), min_size=1, max_size=3, unique=True))
    fields = []
    for name in names:
        former = draw(st.lists(st.sampled_from("abcA"), max_size=2, unique=True))
        metadata = {ALIASES: json.dumps([alias for alias in former if alias != name]).encode()}
        kind = draw(st.sampled_from([pa.int32(), pa.int32(), pa.int64(), pa.float64(), pa.string()]))
        fields.append(pa.field(name, kind, metadata=metadata))
    return pa.struct(fields)


WRITERS = st.lists(structs(kinds(), 5), min_size=1, max_size=5)
RENAMING = st.lists(renaming(), min_size=2, max_size=6)
KEYS = st.none() | structs(kinds(), 2) | st.sampled_from(LEAVES).map(lambda kind: pa.struct([(BARE_VALUE, kind)]))


def check_seen(table: Columns, seen: dict[int, Places], writers: list[pa.StructType]) -> None:
    """Whoever was bound once is bound to the same columns."""
    for number, places in seen.items():
        assert table.places(writers[number]) == places


@given(WRITERS | RENAMING, st.data())
@examples(100)
def test_every_writer_binds_and_stays_bound_in_any_order(writers: list[pa.StructType], data: st.DataObject) -> None:
    for order in (range(len(writers)), data.draw(st.permutations(range(len(writers))))):
        table, seen = Columns(), dict[int, Places]()
        for number in order:
            table.take(writers[number])
            places = table.places(writers[number])
            assert places is not None
            seen[number] = places
            check_seen(table, seen, writers)
        # Two writers that take turns change nothing any more.
        for number in order:
            assert table.take(writers[number]).changes == ()


@given(RENAMING, st.data())
@examples(100)
def test_the_order_of_fields_does_not_matter(writers: list[pa.StructType], data: st.DataObject) -> None:
    table = Columns()
    for writer in writers:
        table.take(writer)
    for writer in writers:
        order = data.draw(st.permutations(range(writer.num_fields)))
        assert table.places(pa.struct([writer.field(number) for number in order])) == table.places(writer)


@given(WRITERS, st.lists(st.sampled_from(["new-column", "dead-letter"]), min_size=5, max_size=5))
@examples(50)
def test_dead_letters_change_nothing_and_everything_else_binds(writers: list[pa.StructType], rules: list[str]) -> None:
    """Also where the rule changes on the way, as with a new generation of rules."""
    table, seen = Columns(), dict[int, Places]()
    for number, writer in enumerate(writers):
        step = table.take(writer, "dead-letter" if rules[number] == "dead-letter" else "new-column")
        places = table.places(writer)
        assert (places is None) == bool(step.incompatible)
        assert not step.incompatible or rules[number] == "dead-letter"
        if places is not None:
            seen[number] = places
        check_seen(table, seen, writers)


@given(st.lists(st.tuples(structs(kinds(), 3), KEYS), min_size=1, max_size=4))
@examples(40)
def test_keys_have_columns_of_their_own(steps: list[tuple[pa.StructType, pa.StructType | None]]) -> None:
    table = Columns()
    seen: list[tuple[pa.StructType, Places | None, pa.StructType | None, Places | None]] = []
    for writer, key in steps:
        table.take(writer, key=key)
        seen.append((writer, table.places(writer), key, None if key is None else table.key_places(key)))
        for then_writer, places, then_key, key_places in seen:
            assert places is not None
            assert table.places(then_writer) == places
            if then_key is not None:
                assert key_places is not None
                assert table.key_places(then_key) == key_places


@given(WRITERS | RENAMING)
@examples(40)
def test_bounds_are_kept_of_columns_the_table_has(writers: list[pa.StructType]) -> None:
    table = Columns()
    for writer in writers:
        table.take(writer)
        prefix = "write.metadata.metrics.column."
        named = {name.removeprefix(prefix) for name in table.properties if name.startswith(prefix)}
        assert named <= set(table.schema.column_names)
        assert table.properties["write.metadata.metrics.default"] == "none"
        assert field_count(table.schema.fields) == len(table.schema._lazy_id_to_field)
