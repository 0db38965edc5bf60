"""Each rule of docs/types.md, "Names and evolution": one change of a writer, and what it does to the table."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, UUIDType

from converter.parquet.columns import row_schema
from converter.values.model import ALIASES, DOC, Bound
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.evolve.evolve import bind, bind_key, evolve
from iceberg_catalog.evolve.names import Sources
from iceberg_catalog.evolve.types import key_columns, takes, typed_row_schema, value_columns
from iceberg_catalog.limits import (
    COLUMN_DOC_CHARS_MAX,
    COLUMN_NAME_CHARS_MAX,
    COLUMNS_MAX,
    METRICS_COLUMNS_MAX,
    SOURCE_NAME_CHARS_MAX,
    SOURCE_NAMES_MAX,
)
from iceberg_catalog.tables.schema import expected_field_ids, table_schema
from tests.support.evolving import Columns

KAFKA = [*row_schema("raw").names, "_kafka_error"]
INT, LONG, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float64(), pa.string()


def struct(*aliases: tuple[str, list[str]], **fields: pa.DataType) -> pa.StructType:
    former = dict(aliases)
    return pa.struct(
        [
            pa.field(name, kind, metadata={ALIASES: json.dumps(former[name])} if name in former else None)
            for name, kind in fields.items()
        ]
    )


def named(**fields: pa.DataType) -> pa.StructType:
    return struct(**fields)


def shape(table: Columns) -> list[str]:
    """The value columns with their types."""
    return [f"{field.name} {field.type}" for field in value_columns(table.schema)]


def taken(*writers: pa.StructType, key: pa.StructType | None = None) -> Columns:
    table = Columns()
    for writer in writers:
        table.take(writer, key=key)
    return table


@pytest.mark.parametrize(
    ("first", "second", "columns"),
    [
        (named(a=INT), named(a=INT, b=TEXT), ["a int32", "b string"]),
        (named(a=INT, b=TEXT), named(b=TEXT), ["a int32", "b string"]),
        (named(a=INT, b=TEXT), named(b=TEXT, a=INT), ["a int32", "b string"]),
        (named(a=INT), named(a=LONG), ["a int64"]),
        (named(a=LONG), named(a=INT), ["a int64"]),
        (named(a=DOUBLE), named(a=INT), ["a double"]),
        (named(a=INT), named(a=DOUBLE), ["a int32", "a__v2 double"]),
        (named(a=LONG), named(a=DOUBLE), ["a int64", "a__v2 double"]),
        (named(a=DOUBLE), named(a=LONG), ["a double", "a__v2 int64"]),
        (named(a=pa.decimal128(5, 2)), named(a=pa.decimal128(9, 2)), ["a decimal128(9, 2)"]),
        (named(a=pa.decimal128(9, 2)), named(a=pa.decimal128(5, 2)), ["a decimal128(9, 2)"]),
        (named(a=pa.decimal128(5, 2)), named(a=pa.decimal128(9, 3)), ["a decimal128(5, 2)", "a__v2 decimal128(9, 3)"]),
        (named(a=INT), named(a=TEXT), ["a int32", "a__v2 string"]),
        (named(a=INT), named(a=named(b=INT)), ["a int32", "a__v2 struct<b: int32>"]),
        (named(a=named(b=INT)), named(a=named(c=TEXT)), ["a struct<b: int32, c: string>"]),
        (named(a=named(b=INT)), named(a=named(b=TEXT)), ["a struct<b: int32, b__v2: string>"]),
        (named(a=pa.list_(INT)), named(a=pa.list_(LONG)), ["a list<element: int64>"]),
        (
            named(a=pa.list_(named(b=INT))),
            named(a=pa.list_(named(c=INT, b=LONG))),
            ["a list<element: struct<b: int64, c: int32>>"],
        ),
        (
            named(a=pa.map_(TEXT, named(b=INT))),
            named(a=pa.map_(TEXT, named(b=INT, c=INT))),
            ["a map<string, struct<b: int32, c: int32>>"],
        ),
        (
            named(a=pa.map_(TEXT, INT)),
            named(a=pa.map_(INT, INT)),
            ["a map<string, int32>", "a__v2 map<int32, int32>"],
        ),
        (named(a=pa.list_(INT)), named(a=pa.list_(TEXT)), ["a list<element: int32>", "a__v2 list<element: string>"]),
        (
            named(a=pa.timestamp("us")),
            named(a=pa.timestamp("us", tz="UTC")),
            ["a timestamp[us]", "a__v2 timestamp[us, tz=UTC]"],
        ),
    ],
)
def test_a_writer_changes(first: pa.StructType, second: pa.StructType, columns: list[str]) -> None:
    table = taken(first, second)
    assert shape(table) == columns
    assert table.schema.column_names[-len(KAFKA) - 1 :][-1] == "_kafka_error"
    assert [field.name for field in table.schema.fields][-len(KAFKA) :] == KAFKA
    assert table.take(first).changes == ()


def test_a_third_type_gets_a_third_column_and_each_finds_its_own() -> None:
    table = taken(named(a=INT), named(a=TEXT), named(a=pa.bool_()))
    assert shape(table) == ["a int32", "a__v2 string", "a__v3 bool"]
    assert table.take(named(a=TEXT)).changes == ()
    assert table.sources.encode() == '{"14":["a"],"15":["a"]}'


def test_a_field_that_is_called_like_a_variant_gets_a_column_of_its_own() -> None:
    table = taken(named(a=INT), named(a=TEXT), named(a__v2=TEXT))
    assert shape(table) == ["a int32", "a__v2 string", "a__v2__case2 string"]
    assert table.places(named(a=TEXT)) != table.places(named(a__v2=TEXT))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_alias_renames_and_the_old_writer_still_binds(order: tuple[int, int]) -> None:
    writers = (named(old=INT), struct(("new", ["old"]), new=INT))
    table = taken(*(writers[number] for number in order))
    assert shape(table) == ["new int32"]
    assert {*(table.places(writers[0]) or {}).values()} == {*(table.places(writers[1]) or {}).values()}
    for writer in writers * 2:  # in turns, and nobody renames it back
        assert table.take(writer).changes == ()
    assert table.take(struct(("old", ["new"]), old=INT)).changes == ()


def test_an_alias_is_not_followed_where_it_is_not_clear() -> None:
    both = named(a=INT, b=INT)
    assert shape(taken(both, struct(("c", ["a", "b"]), c=INT))) == ["a int32", "b int32", "c int32"]
    assert shape(taken(both, struct(("b", ["a"]), b=INT))) == ["a int32", "b int32"]
    # Its column is somebody else's in the same schema, under its own name.
    assert shape(taken(named(a=INT), struct(("c", ["a"]), c=INT, a=INT))) == ["a int32", "c int32"]
    # The same where that field's own type does not fit it.
    table = taken(named(a=INT), struct(("c", ["a"]), c=INT, a=TEXT))
    assert shape(table) == ["a int32", "c int32", "a__v2 string"]
    # It holds something else.
    assert shape(taken(named(a=TEXT), struct(("c", ["a"]), c=INT))) == ["a string", "c int32"]


def test_of_two_fields_with_the_same_alias_the_first_by_name_has_it_in_any_order() -> None:
    former = (("a", ["z"]), ("b", ["z"]))
    for writer in (struct(*former, a=INT, b=INT), struct(*former, b=INT, a=INT)):
        table = taken(named(z=INT), writer)
        assert shape(table) == ["a int32", "b int32"]
        assert table.sources.names == {12: ("a", "z")}
        fresh = taken(writer)
        assert list(fresh.sources.names.values()) == [("a", "z")]


def test_one_column_cannot_take_two_fields_of_one_writer() -> None:
    renamed = struct(("b", ["a"]), b=INT)
    table = taken(named(a=INT), renamed, named(b=INT, a=INT))
    places = table.places(named(a=INT, b=INT))
    assert places is not None
    assert shape(table) == ["b int32", "a__v2 int32"]
    # `b` is what the column is called now, whatever the order of fields; who writes `a` alone means what it was.
    assert places == table.places(named(b=INT, a=INT)) == {("b",): 12, ("a",): 14}
    assert table.places(renamed) == {("b",): 12}
    assert table.places(named(a=INT)) == {("a",): 12}
    # Once more, in another life of the name.
    table.take(struct(("c", ["b"]), c=INT))
    assert shape(table) == ["c int32", "a__v2 int32"]
    assert table.places(named(b=INT, a=INT)) == places
    table.take(named(a=INT, b=INT, c=INT))
    assert shape(table) == ["c int32", "a__v2 int32", "b__v2 int32"]
    assert table.places(named(a=INT, b=INT, c=INT)) == {("c",): 12, ("a",): 14, ("b",): 15}


def test_what_a_column_learns_is_in_its_doc_so_that_the_schema_has_a_new_number() -> None:
    table = taken(named(a=INT))
    step = table.take(struct(("a", ["z"]), a=INT))
    assert [(change.kind, change.path, change.text) for change in step.changes] == [("learn", "a", "z")]
    assert table.schema.find_field("a").doc == 'field "a" of the value; written as "a", "z"'
    table.take(struct(("new", ["z"]), new=INT))
    assert table.schema.find_field("new").doc == 'field "a" of the value; written as "new", "a", "z"'


def test_a_column_remembers_so_many_names() -> None:
    many = [f"n{number}" for number in range(2 * SOURCE_NAMES_MAX)]
    table = taken(struct(("a", many), a=INT))
    assert table.sources.names[12] == ("a", *many[: SOURCE_NAMES_MAX - 1])
    assert table.take(struct(("a", many), a=INT)).changes == ()
    assert shape(taken(struct(("a", many), a=INT), struct(("c", ["a"]), c=INT))) == ["a int32", "c int32"]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (["_kafka_offset", "_KAFKA_x"], ["x_kafka_offset", "x_KAFKA_x"]),
        (["_kafka_offset", "x_kafka_offset"], ["x_kafka_offset", "x_kafka_offset__case2"]),
        (["A", "a"], ["A", "a__case2"]),
        (["a", "A", "Ä", "ä"], ["a", "A__case2", "Ä", "ä__case2"]),
        (["a.b", "a_b", "a`b"], ["a_b", "a_b__case2", "a_b__case3"]),
        (["", "x_empty"], ["x_empty", "x_empty__case2"]),
        (["_key", "_Key__v2", "_keys", "_pos", "$path"], ["x_key", "x_Key__v2", "_keys", "x_pos", "x$path"]),
        (["a\nb\x00"], ["a_b_"]),
        (["n" * 300, "n" * 301], ["n" * 200, "n" * 200 + "__case2"]),
        (["straße", "STRASSE"], ["straße", "STRASSE__case2"]),
    ],
)
def test_names_engines_cannot_tell_apart(fields: list[str], names: list[str]) -> None:
    writer = pa.struct([(name, INT) for name in fields])
    table = taken(writer)
    assert [field.name for field in value_columns(table.schema)] == names
    assert table.take(writer).changes == ()
    backwards = taken(*(pa.struct([(name, INT)]) for name in reversed(fields)))
    assert backwards.take(writer).changes == ()


def test_reserved_names_are_free_inside_a_struct() -> None:
    assert shape(taken(named(s=named(_kafka_offset=INT, _key=INT)))) == ["s struct<_kafka_offset: int32, _key: int32>"]


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_longest_name_of_a_field(beyond: int) -> None:
    table = Columns()
    step = table.take(pa.struct([("n" * (SOURCE_NAME_CHARS_MAX + beyond), INT)]))
    assert len(step.incompatible) == beyond
    assert [len(field.name) for field in value_columns(table.schema)] == [COLUMN_NAME_CHARS_MAX] * (1 - beyond)


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_longest_description_of_a_column(beyond: int) -> None:
    """What is beyond is cut off."""
    said = "d" * (COLUMN_DOC_CHARS_MAX + beyond)
    table = taken(pa.struct([pa.field("a", INT, metadata={DOC: said.encode()})]))
    assert table.schema.find_field("a").doc == said[:COLUMN_DOC_CHARS_MAX]


def test_a_name_of_a_megabyte_is_refused_with_a_text() -> None:
    step = Columns().evolution(pa.struct([("n" * 1_000_000, INT)]))
    assert step.changes == ()
    assert len(step.incompatible[0]) < 2_000
    assert step.incompatible[0].endswith("names of fields may have 1000 characters")


def test_dead_letters_leave_the_table_alone() -> None:
    table = taken(named(a=INT, s=named(b=INT)))
    step = table.take(named(a=TEXT, s=named(b=TEXT), new=INT), "dead-letter")
    assert step.incompatible == (
        "a: the column's type cannot take string",
        "s.b: the column's type cannot take string",
    )
    assert shape(table) == ["a int32", "s struct<b: int32>"]
    table.take(named(a=LONG, s=named(b=INT), new=INT), "dead-letter")
    assert shape(table) == ["a int64", "s struct<b: int32>", "new int32"]


def test_a_table_has_so_many_columns() -> None:
    room = COLUMNS_MAX - len(expected_field_ids("raw")) - 1
    wide = pa.struct([(f"c{number}", INT) for number in range(room)])
    table = taken(wide)
    step = table.take(pa.struct([*wide, pa.field("more", INT)]))
    assert step.incompatible == (f"the table would have {COLUMNS_MAX + 1} columns, nested ones counted; at most 2000",)
    assert table.places(wide) is not None


def test_the_key_has_its_column_between_values_and_kafka() -> None:
    table = Columns()
    bare, record = named(value=TEXT), named(id=INT, value=TEXT)
    table.take(named(a=INT), key=bare)
    assert [field.name for field in table.schema.fields][:3] == ["a", "_key", "_kafka_partition"]
    table.take(named(a=INT, b=INT), key=record)
    assert [field.name for field in table.schema.fields][:4] == ["a", "b", "_key", "_key__v2"]
    assert [str(field.type) for field in key_columns(table.schema)] == ["string", "struct<id: int32, value: string>"]
    assert bind_key(table.schema, table.sources, bare) == (Bound(0), Bound(None))
    assert bind_key(table.schema, table.sources, record) == (Bound(None), Bound(0, (Bound(0), Bound(1))))
    assert table.schema.find_field("_key").doc == "the record's key, decoded"


def test_a_raw_table_binds_nothing_before_it_has_its_error_column() -> None:
    assert bind(table_schema("raw"), Sources(), pa.struct([])) is None
    table = taken(pa.struct([]))
    assert [field.name for field in table.schema.fields] == KAFKA
    assert table.places(pa.struct([])) == {}


def test_docs_come_from_the_schema_or_name_the_field() -> None:
    writer = pa.struct([pa.field("a", INT, metadata={DOC: b" said\n"}), pa.field("b", named(c=INT))])
    table = taken(writer)
    docs = {name: table.schema.find_field(name).doc for name in ("a", "b", "b.c")}
    assert docs == {"a": "said", "b": 'field "b" of the value', "b.c": 'field "c" of the value'}


def test_bounds_are_kept_of_the_first_columns_under_their_names() -> None:
    wide = pa.struct([("s", named(x=INT)), *((f"c{number:02}", TEXT if number else INT) for number in range(40))])
    table = taken(wide)
    prefix = "write.metadata.metrics.column."
    kept = sorted(name.removeprefix(prefix) for name in table.properties if name.startswith(f"{prefix}c"))
    assert kept == [f"c{number:02}" for number in range(METRICS_COLUMNS_MAX)]
    assert (table.properties[f"{prefix}c00"], table.properties[f"{prefix}c01"]) == ("full", "truncate(16)")
    assert table.properties["write.metadata.metrics.default"] == "none"
    assert table.properties[f"{prefix}_kafka_error"] == "full"
    table.take(struct(("renamed", ["c00"]), renamed=INT))
    assert f"{prefix}c00" not in table.properties
    assert table.properties[f"{prefix}renamed"] == "full"


def test_the_row_schema_is_the_raw_one_with_columns_around_it() -> None:
    table = taken(named(a=pa.map_(TEXT, pa.list_(named(b=INT)))), key=named(value=LONG))
    schema = typed_row_schema(table.schema)
    raw = row_schema("raw", expected_field_ids("raw"))
    assert pa.schema(list(schema)[2:-1]).equals(raw, check_metadata=True)
    assert schema.names == ["a", "_key", *KAFKA]
    assert ids(schema) == {name: table.schema.find_field(name).field_id for name in schema.names}
    entry = schema.field("a").type
    assert ids([entry.key_field, entry.item_field, entry.item_type.value_field]) == {
        "key": 13,
        "value": 14,
        "element": 15,
    }


def ids(fields: Any) -> dict[str, int]:
    return {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in fields}


def test_a_column_of_another_type_that_somebody_added_is_left_alone() -> None:
    schema = taken(named(b=INT)).schema
    foreign = Schema(NestedField(99, "a", UUIDType(), required=False, doc="theirs"), *schema.fields)
    assert not takes(UUIDType(), TEXT)
    step = evolve(foreign, Sources(), named(a=TEXT), last_field_id=99, properties={}, incompatible="new-column")
    assert [field.name for field in step.schema.fields][:3] == ["a", "b", "a__v2"]
    bound = bind(step.schema, step.sources, named(a=TEXT))
    assert bound == (Bound(None), Bound(None), Bound(0))
    assert value_columns(step.schema).field("a").metadata == {b"PARQUET:field_id": b"99"}


@pytest.mark.parametrize("kind", [pa.float32(), pa.uint64(), pa.time64("us"), pa.timestamp("ms"), pa.null()])
def test_a_type_no_column_may_have_is_a_fault_of_the_decoder(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="typed columns cannot have type"):
        Columns().evolution(named(a=kind))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a":["b"]}', '{"1":[]}', '{"1":[2]}', '{"1":"ab"}', '{"1":null}', "null"]
)
def test_sources_nobody_of_us_wrote_are_said(text: str) -> None:
    with pytest.raises(CatalogError, match=r"tierberg\.sources") as error:
        Sources.decode(text)
    assert error.value.kind == "schema_mismatch"


def test_sources_read_as_written() -> None:
    sources = Sources({20: ("b", "ü.`"), 3: ("a",)})
    assert Sources.decode(sources.encode()) == sources
    assert Sources.decode(None) == Sources()
