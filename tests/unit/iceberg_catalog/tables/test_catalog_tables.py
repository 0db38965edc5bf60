"""Names, schema and creation of tables, against a real catalog."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from converter.parquet.columns import row_schema
from converter.types import ValueFormat
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import TABLE_NAME_CHARS_MAX
from iceberg_catalog.tables import tables
from iceberg_catalog.tables.names import Owner, fallback_name, table_name
from iceberg_catalog.tables.schema import expected_field_ids, table_schema
from iceberg_catalog.tables.tables import check_layout, ensure_table, find_table, is_owner

FORMATS: tuple[ValueFormat, ...] = get_args(ValueFormat)
DATA = "file:///data"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(embedded_settings(tmp_path))


def owner(topic: str = "orders", number: int = 1, cluster: str = "c") -> Owner:
    return Owner(cluster, topic, number.to_bytes(16, "big"))


@pytest.mark.parametrize(
    ("topic", "name"),
    [("Orders", "orders"), ("a.b-c_D", "a_b_c_d"), ("7", "7"), ("__x", "__x"), ("a" * 249, "a" * TABLE_NAME_CHARS_MAX)],
)
def test_table_name(topic: str, name: str) -> None:
    assert table_name(topic) == name


def test_fallback_names_differ_in_each_part_of_the_owner() -> None:
    owners = [owner(), owner("Orders"), owner(number=2), owner(cluster="d")]
    names = {fallback_name(item) for item in owners}
    assert len(names) == 4
    assert all(name.startswith("orders_") and len(name) == len("orders_") + 8 for name in names)
    assert fallback_name(owner()) == fallback_name(owner())


@pytest.mark.parametrize("value_format", FORMATS)
def test_a_real_catalog_hands_out_the_expected_field_ids(catalog: Catalog, value_format: ValueFormat) -> None:
    table = ensure_table(catalog, owner(), value_format, data_path=DATA)
    found = index_by_name(table.schema())
    expected = expected_field_ids(value_format)
    assert {name: found[name] for name in expected} == expected
    assert set(table.schema().field_ids) == set(expected.values())


@pytest.mark.parametrize("value_format", FORMATS)
def test_field_ids_are_reassigned_to_the_same_numbers(catalog: Catalog, value_format: ValueFormat) -> None:
    """Even if the schema carried other numbers, create_table gives these: so they may be used beforehand."""
    fields = [field.model_copy(update={"field_id": field.field_id + 50}) for field in table_schema(value_format).fields]
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", Schema(*fields))
    found = index_by_name(table.schema())
    assert {name: found[name] for name in expected_field_ids(value_format)} == expected_field_ids(value_format)


@pytest.mark.parametrize("value_format", FORMATS)
def test_schema_agrees_with_the_converters_rows(value_format: ValueFormat) -> None:
    ids = expected_field_ids(value_format)
    arrow = schema_to_pyarrow(table_schema(value_format), include_field_ids=True)
    rows = row_schema(value_format, ids)
    assert arrow.names == rows.names
    for ours, theirs in zip(arrow, rows, strict=True):
        assert ours.nullable == theirs.nullable
        assert _plain(ours.type) == _plain(theirs.type)
        assert ours.metadata[b"PARQUET:field_id"] == theirs.metadata[b"PARQUET:field_id"]


def _plain(kind: pa.DataType) -> str:
    return str(kind).replace("large_", "")


@pytest.mark.parametrize("value_format", FORMATS)
def test_value_columns_first_and_a_doc_on_every_column(value_format: ValueFormat) -> None:
    schema = table_schema(value_format)
    assert all(field.doc for field in schema.fields)
    kafka = [field.name.startswith("_kafka_") for field in schema.fields]
    assert kafka == sorted(kafka)
    required = [field.name for field in schema.fields if field.required]
    assert required == ["_kafka_partition", "_kafka_offset"]


def test_the_table_is_partitioned_sorted_stamped_and_kept_from_engines(catalog: Catalog) -> None:
    table = ensure_table(catalog, owner("Shop.Orders"), "string", data_path=DATA)
    assert table.name() == ("kafka", "shop_orders")
    (field,) = table.spec().fields
    assert (field.name, field.source_id) == ("_kafka_partition", 2)
    assert isinstance(field.transform, IdentityTransform)
    (order,) = table.sort_order().fields
    assert order.source_id == 3
    properties = table.properties
    assert table.format_version == 2
    assert properties["gc.enabled"] == "false"
    assert properties["commit.retry.num-retries"] == "0"
    assert properties["write.data.path"] == DATA
    assert properties["tierberg.topic"] == "Shop.Orders"
    assert properties["tierberg.topic-id"] == "0" * 31 + "1"
    assert properties["tierberg.cluster"] == "c"
    assert properties["tierberg.value-format"] == "string"
    assert "Shop.Orders" in properties["comment"]
    assert not table.location().startswith(DATA)


def test_the_second_call_finds_the_table(catalog: Catalog) -> None:
    first = ensure_table(catalog, owner(), "raw", data_path=DATA)
    again = ensure_table(catalog, owner(), "raw", data_path="file:///elsewhere")
    assert again.metadata.table_uuid == first.metadata.table_uuid
    assert again.properties["write.data.path"] == DATA


@pytest.mark.parametrize(("one", "two"), [("Orders", "orders"), ("a-b", "a_b"), ("a.b", "a_b"), ("A.B", "a-b")])
def test_topics_that_meet_in_a_name_get_two_tables(catalog: Catalog, one: str, two: str) -> None:
    first = ensure_table(catalog, owner(one, 1), "raw", data_path=DATA)
    second = ensure_table(catalog, owner(two, 2), "raw", data_path=DATA)
    assert first.name()[-1] == table_name(one)
    assert second.name()[-1] == fallback_name(owner(two, 2))
    for item in (owner(one, 1), owner(two, 2)):
        assert is_owner(ensure_table(catalog, item, "raw", data_path=DATA), item)


def test_a_topic_created_again_gets_a_new_table(catalog: Catalog) -> None:
    old = ensure_table(catalog, owner(number=1), "raw", data_path=DATA)
    new = ensure_table(catalog, owner(number=2), "raw", data_path=DATA)
    assert old.name() != new.name()
    assert is_owner(catalog.load_table(old.name()), owner(number=1))


def test_the_same_topic_of_another_cluster_gets_its_own_table(catalog: Catalog) -> None:
    one = ensure_table(catalog, owner(cluster="a"), "raw", data_path=DATA)
    two = ensure_table(catalog, owner(cluster="b"), "raw", data_path=DATA)
    assert one.name() != two.name()


def test_a_plain_name_that_became_free_does_not_make_a_second_table(catalog: Catalog) -> None:
    first = ensure_table(catalog, owner("Orders", 1), "raw", data_path=DATA)
    second = ensure_table(catalog, owner("orders", 2), "raw", data_path=DATA)
    catalog.drop_table(first.name())
    assert ensure_table(catalog, owner("orders", 2), "raw", data_path=DATA).name() == second.name()


def test_somebody_elses_table_is_not_taken_over(catalog: Catalog) -> None:
    catalog.create_namespace("kafka")
    foreign = catalog.create_table("kafka.orders", Schema(NestedField(1, "x", LongType())))
    table = ensure_table(catalog, owner(), "raw", data_path=DATA)
    assert table.name()[-1] == fallback_name(owner())
    assert catalog.load_table("kafka.orders").metadata == foreign.metadata


def test_both_names_taken_is_an_error(catalog: Catalog) -> None:
    catalog.create_namespace("kafka")
    for name in (table_name("orders"), fallback_name(owner())):
        catalog.create_table(("kafka", name), Schema(NestedField(1, "x", LongType())))
    with pytest.raises(CatalogError) as caught:
        ensure_table(catalog, owner(), "raw", data_path=DATA)
    assert caught.value.kind == "owner_mismatch"


def test_a_table_keeps_its_value_format(catalog: Catalog) -> None:
    made = ensure_table(catalog, owner(), "raw", data_path=DATA)
    assert ensure_table(catalog, owner(), "string", data_path=DATA).schema() == made.schema()


def test_a_value_format_that_is_none_of_ours_is_refused(catalog: Catalog) -> None:
    table = ensure_table(catalog, owner(), "raw", data_path=DATA)
    with table.transaction() as change:
        change.set_properties({"tierberg.value-format": "xml"})
    with pytest.raises(CatalogError, match="'xml'") as caught:
        ensure_table(catalog, owner(), "raw", data_path=DATA)
    assert caught.value.kind == "schema_mismatch"


def test_a_repartitioned_table_is_refused(catalog: Catalog) -> None:
    table = ensure_table(catalog, owner(), "raw", data_path=DATA)
    with table.update_spec() as update:
        update.remove_field("_kafka_partition")
    with pytest.raises(CatalogError) as caught:
        ensure_table(catalog, owner(), "raw", data_path=DATA)
    assert caught.value.kind == "schema_mismatch"
    assert "\n" not in str(caught.value)
    assert "partitioned by nothing, expected 1000: _kafka_partition: identity(1)" in str(caught.value)


def test_a_table_of_a_newer_format_version_is_refused(catalog: Catalog) -> None:
    table = ensure_table(catalog, owner(), "raw", data_path=DATA)
    table.metadata = table.metadata.model_copy(update={"format_version": 3})  # PyIceberg itself makes none so
    with pytest.raises(CatalogError, match="made it format version 3, and no bridge writes that") as caught:
        check_layout(table)
    assert caught.value.kind == "schema_mismatch"


def test_a_dropped_column_is_refused(catalog: Catalog) -> None:
    table = ensure_table(catalog, owner(), "raw", data_path=DATA)
    with table.update_schema() as update:
        update.delete_column("_kafka_key")
        update.rename_column("_kafka_offset", "off")
    with pytest.raises(CatalogError) as caught:
        ensure_table(catalog, owner(), "raw", data_path=DATA)
    assert caught.value.kind == "schema_mismatch"
    assert caught.value.table == "kafka.orders"
    assert "made with: _kafka_offset (2, which is called off), _kafka_key (5, which is gone)" in str(caught.value)


def test_find_table_creates_nothing(catalog: Catalog) -> None:
    assert find_table(catalog, owner()) is None
    assert catalog.list_namespaces() == []


def test_nested_namespaces_and_a_location_of_choice(catalog: Catalog, tmp_path: Path) -> None:
    place = (tmp_path / "meta" / "orders").as_uri()
    table = ensure_table(catalog, owner(), "raw", data_path=DATA, namespace="lake.kafka", location=place)
    assert table.name() == ("lake", "kafka", "orders")
    assert table.location() == place


def test_a_table_that_appears_between_two_looks_is_not_taken_for_anothers(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = ensure_table(catalog, owner(), "raw", data_path=DATA)
    looks = iter([None, created])  # another bridge was faster, right after our first look
    monkeypatch.setattr(tables, "find_table", lambda *_, **__: next(looks))
    found = ensure_table(catalog, owner(), "raw", data_path=DATA)
    assert found.metadata.table_uuid == created.metadata.table_uuid
    assert len(catalog.list_tables("kafka")) == 1


def test_many_bridges_create_one_table(tmp_path: Path) -> None:
    catalogs = [open_catalog(embedded_settings(tmp_path)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda c: ensure_table(c, owner(), "raw", data_path=DATA), catalogs))
    assert len({table.metadata.table_uuid for table in made}) == 1
    assert len(catalogs[0].list_tables("kafka")) == 1


def test_losing_the_race_to_another_owner_gives_the_fallback_name(catalog: Catalog) -> None:
    class Racing:
        """Another owner creates the plain name between our look and our create."""

        raced = False

        def __getattr__(self, name: str) -> Any:
            return getattr(catalog, name)

        def create_table(self, identifier: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.raced:
                self.raced = True
                ensure_table(catalog, owner("Orders", 9), "raw", data_path=DATA)
                raise TableAlreadyExistsError
            return catalog.create_table(identifier, *args, **kwargs)

    table = ensure_table(Racing(), owner(), "raw", data_path=DATA)  # type: ignore[arg-type]
    assert table.name()[-1] == fallback_name(owner())
