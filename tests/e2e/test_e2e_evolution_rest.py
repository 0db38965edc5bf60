"""Evolution on a real REST catalog, behind a proxy that loses and repeats, and what Spark sees of it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.evolve.evolve import bind
from iceberg_catalog.evolve.names import SOURCES, Sources
from iceberg_catalog.evolve.table import GENERATION, Evolved, WriterTypes, evolved
from iceberg_catalog.tables.tables import ensure_table
from tests.e2e.engines import spark_on
from tests.support.evolving import check_schema, check_step
from tests.support.fault_proxy import LANDED, NOT_LANDED, REPEATED, Fault, FaultProxy, fault_proxy
from tests.worlds.catalog_support import OWNER, STATE
from tierberg.stack.lake import Lake

# The first use builds the S3 server and fetches the catalog's jars.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

NUMBERS = itertools.count()
INT, TEXT = pa.int32(), pa.string()
INNER, WIDER = pa.struct([("b", INT)]), pa.struct([("b", pa.int64()), ("c", TEXT)])
FIRST = pa.struct([("a", INT), ("s", INNER), ("l", pa.list_(INNER)), ("m", pa.map_(TEXT, INNER)), ("old", TEXT)])
SECOND = pa.struct(
    [
        ("added", pa.decimal128(9, 2)),
        pa.field("renamed", TEXT, metadata={b"tierberg.aliases": b'["old"]'}),
        ("m", pa.map_(TEXT, WIDER)),
        ("l", pa.list_(WIDER)),
        ("s", WIDER),
        ("a", pa.int64()),
        ("A", INT),
    ]
)
KEY = pa.struct([("id", INT)])


@pytest.fixture(scope="module")
def proxy(lake: Lake) -> Iterator[FaultProxy]:
    with fault_proxy(lake.catalog.port) as running:
        yield running


@pytest.fixture
def behind(lake: Lake, proxy: FaultProxy) -> Iterator[Catalog]:
    """The catalog as a bridge reaches it: through the proxy."""
    properties = {**lake.catalog.client_properties(), "uri": proxy.uri}
    with closing(open_catalog(CatalogSettings("lake", properties, Timeouts(2000, 5000)))) as opened:
        yield opened


def evolve(catalog: Catalog, name: tuple[str, ...], writer: pa.StructType) -> Evolved:
    table = catalog.load_table(name)
    return evolved(catalog, table, [WriterTypes(writer, KEY)], incompatible="new-column", generation=1)


def new_table(catalog: Catalog) -> tuple[str, ...]:
    owner = replace(OWNER, topic=f"evolving{next(NUMBERS)}")
    return ensure_table(catalog, owner, "raw", data_path="s3://elsewhere/data").name()


@pytest.mark.parametrize("fault", [*LANDED, *NOT_LANDED, REPEATED], ids=lambda fault: fault.name)
def test_whatever_becomes_of_the_request_it_is_done_once(
    catalog: Catalog, behind: Catalog, proxy: FaultProxy, fault: Fault
) -> None:
    name = new_table(catalog)
    after = catalog.load_table(name)
    for writer in (FIRST, SECOND):
        before = after
        proxy.faults = deque([fault])
        evolve(behind, name, writer)
        proxy.deliver_held()
        after = catalog.load_table(name)
        assert not proxy.faults
        check_schema(after.schema())
        check_step(before.schema(), after.schema(), before.metadata.last_column_id)
    assert after.schema().column_names[:1] == ["a"]
    names = [field.name for field in after.schema().fields]
    assert names[:8] == ["a", "s", "l", "m", "renamed", "added", "A__case2", "_key"]
    assert names[8] == "_kafka_partition"
    # Computed and landed once: no id was given out in vain.
    assert after.metadata.last_column_id == after.schema().highest_field_id
    sources = Sources.decode(after.properties[SOURCES])
    assert bind(after.schema(), sources, FIRST) is not None
    assert bind(after.schema(), sources, SECOND) is not None
    assert after.properties[GENERATION] == "1"
    assert evolve(catalog, name, FIRST).changes == ()


def test_a_data_commit_planned_before_an_evolution_lands(catalog: Catalog) -> None:
    name = new_table(catalog)
    head = LiveFiles().read(catalog.load_table(name))
    evolve(catalog, name, FIRST)
    assert commit(catalog, head, Change(), STATE, commit_id="c", as_of_ms=0).kind == "committed"
    stale = catalog.load_table(name)
    commit(catalog, LiveFiles().read(stale), Change(), STATE, commit_id="d", as_of_ms=0)
    evolved(catalog, stale, [WriterTypes(SECOND, KEY)], incompatible="new-column", generation=1)
    table = catalog.load_table(name)
    assert "added" in table.schema().column_names
    assert len(table.metadata.snapshots) == 2


def test_spark_sees_the_columns_in_their_order(catalog: Catalog, lake: Lake, tmp_path: Path) -> None:
    name = new_table(catalog)
    evolve(catalog, name, FIRST)
    evolve(catalog, name, SECOND)
    with spark_on(lake, tmp_path / "session") as spark:
        described = spark.sql(f"DESCRIBE TABLE lake.{'.'.join(name)}")
        found = list(itertools.takewhile(lambda row: row[0] and not row[0].startswith("#"), described))
        assert [tuple(row[:2]) for row in found[:8]] == [
            ("a", "bigint"),
            ("s", "struct<b:bigint,c:string>"),
            ("l", "array<struct<b:bigint,c:string>>"),
            ("m", "map<string,struct<b:bigint,c:string>>"),
            ("renamed", "string"),
            ("added", "decimal(9,2)"),
            ("A__case2", "int"),
            ("_key", "struct<id:int>"),
        ]
        assert [row[0] for row in found[8:]] == [field.name for field in catalog.load_table(name).schema().fields][8:]
        assert all(row[2] for row in found), "a doc on every column"
        # An engine may go on changing it: no property names a column that is not there.
        spark.sql(f"ALTER TABLE lake.{'.'.join(name)} ADD COLUMN theirs float")
        assert spark.sql(f"SELECT a, s.c, renamed, theirs FROM lake.{'.'.join(name)}") == []
    result = evolve(catalog, name, pa.struct([("later", INT)]))
    check = [field.name for field in result.table.schema().fields]
    assert check.index("later") < check.index("_key")
