"""Statistics of a data file come from its footer and must never exclude a row that is there."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.transforms import IdentityTransform

from converter.parquet.columns import row_schema
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.data_file import data_file, upper_text
from iceberg_catalog.tables.schema import expected_field_ids
from tests.worlds.catalog_support import STATE, Place, make_place, make_rows

RAW = expected_field_ids("raw")
FAR_FUTURE_US = 2**62  # year 148,000: no Python datetime


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def entry(place: Place, rows: pa.Table, **options: object) -> DataFile:
    folder = place.data / "0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{0:020d}-{9:020d}-{'a' * 32}.parquet"
    pq.write_table(rows, path, **options)
    return data_file(place.table, path.as_uri(), path.stat().st_size, pq.read_metadata(path), 0)


def with_column(rows: pa.Table, name: str, values: Sequence[object]) -> pa.Table:
    number = rows.schema.get_field_index(name)
    kind = rows.schema.field(name)
    return rows.set_column(number, kind, pa.array(values, type=kind.type))


def test_no_footer_stays_in_memory(place: Place) -> None:
    """Of each table one would: a kilobyte for each column of each row group, a hundred megabytes of a wide one."""
    path = place.data / "rows.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(make_rows(range(10), 0, "raw"), path)
    footer = pq.read_metadata(path)
    data_file(place.table, path.as_uri(), path.stat().st_size, footer, 0)
    seen = weakref.ref(footer)
    del footer
    gc.collect()  # PyArrow's footer and its schema refer to one another
    assert seen() is None


def test_counts_sizes_bounds_and_identity(place: Place) -> None:
    item = entry(place, make_rows(range(10, 40), 0, "raw"), row_group_size=10)
    assert item.record_count == 30
    assert item.partition[0] == 0
    assert item.spec_id == place.table.spec().spec_id
    assert item.sort_order_id == place.table.sort_order().order_id == 1
    assert len(item.split_offsets or []) == 3
    assert item.split_offsets == sorted(item.split_offsets or [])
    offset = RAW["_kafka_offset"]
    assert struct.unpack("<q", item.lower_bounds[offset]) == (10,)
    assert struct.unpack("<q", item.upper_bounds[offset]) == (39,)
    assert item.value_counts[offset] == 30
    assert item.null_value_counts[RAW["_kafka_key"]] == 10
    assert item.file_size_in_bytes == Path(item.file_path.removeprefix("file://")).stat().st_size
    assert set(item.column_sizes) == set(RAW.values()) - {RAW["_kafka_headers"], RAW["_kafka_headers.element"]}


def test_big_columns_have_no_bounds_and_keys_short_ones(place: Place) -> None:
    item = entry(place, make_rows(range(30), 0, "raw"))
    assert RAW["_kafka_value"] not in item.lower_bounds
    assert RAW["_kafka_headers.element.value"] not in item.value_counts
    key = RAW["_kafka_key"]
    assert item.lower_bounds[key] == b"key of a record "
    assert item.upper_bounds[key] == b"key of a record!"


def test_timestamps_beyond_what_python_can_name(place: Place) -> None:
    rows = with_column(make_rows(range(2), 0, "raw"), "_kafka_timestamp", [FAR_FUTURE_US, -FAR_FUTURE_US])
    item = entry(place, rows)
    stamp = RAW["_kafka_timestamp"]
    assert struct.unpack("<q", item.lower_bounds[stamp]) == (-FAR_FUTURE_US,)
    assert struct.unpack("<q", item.upper_bounds[stamp]) == (FAR_FUTURE_US,)


@given(st.text(), st.integers(1, 20))
def test_the_upper_bound_of_a_text_is_one_and_can_be_written(value: str, length: int) -> None:
    bound = upper_text(value, length)
    if bound is None:
        assert set(value[:length]) == {chr(0x10FFFF)}
        return
    bound.encode()
    assert len(bound) <= length
    assert bound >= value


@pytest.mark.parametrize("last", ["\ud7ff", "\U0010ffff", "a", "\x7f", "\uffff"])
def test_a_long_text_before_the_surrogates_stops_nothing(place: Place, last: str) -> None:
    """PyIceberg's own bound of it is no text that UTF-8 can write: publishing of the topic stopped for ever."""
    rows = make_rows(range(3), 0, "string")
    item = entry(
        make_place(place.data.parent / "text", "string"), with_column(rows, "value", ["x" * 15 + last * 3] * 3)
    )
    (upper,) = (item.upper_bounds[number] for number in (expected_field_ids("string")["value"],))
    assert upper.decode() > "x" * 15 + last * 3


def test_a_column_of_nulls_has_counts_but_no_bounds(place: Place) -> None:
    item = entry(place, with_column(make_rows(range(4), 0, "raw"), "_kafka_timestamp", [None] * 4))
    stamp = RAW["_kafka_timestamp"]
    assert stamp not in item.lower_bounds
    assert item.null_value_counts[stamp] == 4


def test_nulls_in_one_row_group_do_not_lose_the_bounds_of_another(place: Place) -> None:
    keys = [None, None, b"b", b"a"]
    item = entry(place, with_column(make_rows(range(4), 0, "raw"), "_kafka_key", keys), row_group_size=2)
    key = RAW["_kafka_key"]
    assert (item.lower_bounds[key], item.upper_bounds[key]) == (b"a", b"b")


def test_a_key_too_long_for_the_footer_gives_no_bounds_at_all(place: Place) -> None:
    keys = [b"m", b"n", b"z" * 10_000, b"z"]
    item = entry(place, with_column(make_rows(range(4), 0, "raw"), "_kafka_key", keys), row_group_size=2)
    assert RAW["_kafka_key"] not in item.lower_bounds
    assert RAW["_kafka_key"] not in item.upper_bounds


def test_keys_of_ff_have_a_lower_bound_only(place: Place) -> None:
    item = entry(place, with_column(make_rows(range(2), 0, "raw"), "_kafka_key", [b"\xff" * 20, b"\xff" * 30]))
    key = RAW["_kafka_key"]
    assert item.lower_bounds[key] == b"\xff" * 16
    assert key not in item.upper_bounds


def test_string_bounds_are_cut_at_characters(tmp_path: Path) -> None:
    place = make_place(tmp_path, "string")
    rows = with_column(make_rows(range(2), 0, "string"), "value", ["ä" * 20, "ö" * 20])
    item = entry(place, rows)
    value = expected_field_ids("string")["value"]
    assert item.lower_bounds[value].decode() == "ä" * 16
    assert item.upper_bounds[value].decode() > "ö" * 16


def test_files_without_statistics_can_be_added(place: Place) -> None:
    rows = make_rows(range(3), 0, "raw")
    item = entry(place, rows, write_statistics=False)
    assert item.record_count == 3
    assert item.lower_bounds == {}
    assert item.null_value_counts == {}


@pytest.mark.parametrize("mode", ["counts", "none", "full(3)", "truncate(x)", "truncate(0)", ""])
def test_whatever_modes_somebody_sets_our_files_have_the_bounds_they_are_known_by(place: Place, mode: str) -> None:
    names = ["default", *(f"column.{name}" for name in place.table.schema().column_names)]
    with place.load().transaction() as change:
        change.set_properties({f"write.metadata.metrics.{name}": mode for name in names})
    place.table = place.load()
    commit(
        place.catalog,
        LiveFiles().read(place.load()),
        Change(append=(place.write(3, 9),)),
        STATE,
        commit_id="c",
        as_of_ms=0,
    )
    head = LiveFiles().read(place.load())
    assert [(file.first, file.last) for file in head.files] == [(3, 9)]
    assert not head.foreign


def test_files_say_the_order_that_they_have(place: Place) -> None:
    """Engines may leave out a sort where a file has the table's order."""
    assert entry(place, make_rows(range(3), 0, "raw")).sort_order_id == 1
    with place.load().update_sort_order() as update:
        update.desc("_kafka_timestamp", IdentityTransform())
    place.table = place.load()
    assert place.table.metadata.default_sort_order_id == 2
    assert entry(place, make_rows(range(3), 0, "raw")).sort_order_id == 1


def test_a_file_with_other_columns_is_refused(place: Place) -> None:
    with pytest.raises(CatalogError) as caught:
        entry(place, make_rows(range(3), 0, "string"))
    assert caught.value.kind == "schema_mismatch"
    with pytest.raises(CatalogError, match="lacks"):
        entry(place, make_rows(range(3), 0, "raw").drop_columns(["_kafka_key"]))


def test_filters_find_every_row_they_should(place: Place) -> None:
    """Pruning by these statistics, over several files, gives what a full read gives."""
    files = tuple(place.write(start, start + 9) for start in range(0, 50, 10))
    commit(place.catalog, LiveFiles().read(place.load()), Change(append=files), STATE, commit_id="c", as_of_ms=0)
    table = place.load()
    everything = table.scan().to_arrow()
    for condition, mask in [
        ("_kafka_offset >= 17 and _kafka_offset < 31", pc.field("_kafka_offset").isin(range(17, 31))),
        ("_kafka_value_size is null", pc.field("_kafka_value_size").is_null()),
        ("_kafka_key is null", pc.field("_kafka_key").is_null()),
        ("_kafka_timestamp < '2024-01-01T00:00:05+00:00'", pc.field("_kafka_offset") < 5),
    ]:
        found = table.scan(row_filter=condition).to_arrow()
        expected = everything.filter(mask)
        assert sorted(found["_kafka_offset"].to_pylist()) == sorted(expected["_kafka_offset"].to_pylist())
    planned = list(table.scan(row_filter="_kafka_offset = 25").plan_files())
    assert len(planned) == 1


def test_the_footer_alone_is_enough(place: Place) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(make_rows(range(5), 3, "raw"), sink)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    item = data_file(place.table, "s3://bucket/never/read.parquet", 123, footer, 3)
    assert (item.file_size_in_bytes, item.partition[0], item.record_count) == (123, 3, 5)


def test_field_ids_in_the_file_are_the_tables(place: Place) -> None:
    assert row_schema("raw", RAW).field("_kafka_key").metadata[b"PARQUET:field_id"] == b"5"
    assert place.table.schema().find_field("_kafka_key").field_id == 5
