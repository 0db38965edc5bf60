"""`tierberg advise` over S3 and REST catalogs: a projection in a catalog of its own, and one with deletion vectors.

What engines make of deletion vectors, and of lists and maps of structs that are null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_projections import spark_conf, tierberg, tiered
from tests.e2e.e2e_support import Pair, Rec
from tests.e2e.engines import EngineError, trino_on
from tierberg.stack.lake import Lake
from tierberg.stack.servers.rest_catalog import RestCatalogServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

ROWS, AGAIN, SHOPS = 400, 40, 4
TABLES = ("kafka.orders", "elsewhere.far.orders_by_shop", "kafka.orders_v3")
TRINO_SAYS = "Unexpected PUFFIN file format"
#: Of every second row they are null.
NESTED = (
    "IF(id % 2 = 0, NULL, array(named_struct('n', id))) AS items",
    "IF(id % 2 = 0, NULL, map('eur', named_struct('n', id))) AS prices",
    "IF(id % 2 = 0, NULL, array(shop)) AS tags",
)
QUERIES = """
-- name: shop = 's3'
SELECT * FROM {table} WHERE shop = 's3';
-- name: id = 7
SELECT * FROM {table} WHERE id = 7;
-- name: true
SELECT sum(amount), count(_kafka_offset) FROM {table};
-- name: nulls
SELECT id FROM {table} WHERE items IS NULL AND prices IS NULL AND tags IS NULL;
"""


@dataclass(frozen=True)
class Copied:
    """A topic of `ROWS` orders, of which the first `AGAIN` have changed since, and its projections in two catalogs."""

    lake: Lake
    pair: Pair
    own: Catalog
    far: Catalog

    def table(self, name: str) -> Table:
        catalog, _, rest = name.partition(".")
        return self.far.load_table(rest) if catalog == "elsewhere" else self.own.load_table(name)


@pytest.fixture(scope="module")
def copied(lake: Lake, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    folder = tmp_path_factory.mktemp("pair")
    server = RestCatalogServer(folder / "far", replace(lake.warehouse, uri="s3://lake/far"))
    server.start()
    try:
        properties = server.client_properties()
        pair = start_pair(folder, bridge_settings=settings(lake, properties, folder))
        try:
            with closing(open_catalog(CatalogSettings("far", properties))) as far:
                pair.admin.create_topic("orders")
                for first, count in ((0, ROWS), (ROWS, AGAIN)):
                    tiered(pair, catalog, "orders", {0: [order(n) for n in range(first, first + count)]})
                    tierberg(pair, "repartition", "orders", "--maintenance-budget", "0")
                yield Copied(lake, pair, catalog, far)
        finally:
            pair.broker.stop()
            pair.bridge.stop()
    finally:
        server.stop()


def settings(lake: Lake, far: dict[str, str], folder: Path) -> dict[str, Any]:
    by_shop = {
        "table": "far.orders_by_shop",
        "partition_by": ["shop"],
        "catalog": {"name": "elsewhere", "properties": far},
    }
    latest = {
        "table": "orders_v3",
        "mode": "upsert",
        "key": ["id"],
        "partition_by": ["bucket(2, id)"],
        "select": ["*", *NESTED],
        "format_version": 3,
    }
    return {
        **lake.bridge_settings(),
        "topics": [{"pattern": "orders", "value_format": "json", "copies": [by_shop, latest]}],
        "repartition": {"spark": spark_conf(folder)},
    }


def order(n: int) -> Rec:
    """From `ROWS` on they are those from 0 on again, with another amount."""
    value = {"id": n % ROWS, "shop": f"s{n % SHOPS}", "amount": n}
    return Rec(b"%d" % (n % ROWS), json.dumps(value).encode())


def planned(table: Table, condition: str) -> dict[str, int]:
    """Data files that a query needs, the deletion vectors that apply to them, and the sizes of both."""
    tasks = list(table.scan(row_filter=condition).plan_files())
    needed = {task.file.file_path for task in tasks}
    puffins = {item.file_path for task in tasks for item in task.delete_files}
    blobs = [blob for path in puffins for blob in PuffinFile(table.io.new_input(path).open().read()).footer.blobs]
    vectors = [blob.length for blob in blobs if blob.properties["referenced-data-file"] in needed]
    return {
        "files": len(tasks),
        "data_bytes": sum(task.file.file_size_in_bytes for task in tasks),
        "delete_files": len(vectors),
        "delete_bytes": sum(vectors),
    }


@pytest.mark.parametrize("how", ["--plan", "--run"])
def test_advise_asks_tables_in_two_catalogs(copied: Copied, tmp_path: Path, how: str) -> None:
    queries, picture = tmp_path / "q.sql", tmp_path / "p.png"
    queries.write_text(QUERIES, encoding="utf-8")
    given = ("advise", "orders", "--queries", str(queries), "--picture", str(picture), "--json", how)
    report = json.loads(tierberg(copied.pair, *given))
    assert [item["table"] for item in report["tables"]] == list(TABLES)
    answers = {query["name"]: query["tables"] for query in report["queries"]}
    nulls = answers.pop("nulls")
    found = {query: [item["figures"] for item in answer] for query, answer in answers.items()}
    for query, figures in found.items():
        wanted = [planned(copied.table(name), query) for name in TABLES]
        assert [{key: item[key] for key in wanted[0]} for item in figures] == wanted, query
    files = {query: [item["files"] for item in figures] for query, figures in found.items()}
    vectors = {query: [item["delete_files"] for item in figures] for query, figures in found.items()}
    assert files["shop = 's3'"][1] < files["true"][1], "the layout of the other catalog's table helps"
    assert (vectors["id = 7"], vectors["true"]) == ([0, 0, 1], [0, 0, 2]), "one Puffin file has both"
    if how == "--run":
        results = {query: [item["result_rows"] for item in figures] for query, figures in found.items()}
        shop = (ROWS + AGAIN) // SHOPS
        assert results == {"shop = 's3'": [shop, shop, ROWS // SHOPS], "id = 7": [2, 2, 1], "true": [1, 1, 1]}
        assert nulls[2]["figures"]["result_rows"] == ROWS // 2, "to Spark they are null"
    assert "items" in nulls[0]["error"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_pyiceberg_reads_deletion_vectors(copied: Copied) -> None:
    table = copied.table("kafka.orders_v3")
    assert table.format_version == 3
    assert {item["file_format"] for item in table.inspect.delete_files().to_pylist()} == {"PUFFIN"}
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == ROWS
    assert {row["id"]: row["amount"] for row in rows} == {n: n + ROWS if n < AGAIN else n for n in range(ROWS)}
    (one,) = table.scan("id = 7").to_arrow().to_pylist()
    assert (one["amount"], one["items"], one["prices"]) == (ROWS + 7, [{"n": 7}], [("eur", {"n": 7})])
    nulls = [(row["items"], row["prices"], row["tags"]) for row in rows if row["id"] % 2 == 0]
    assert nulls == [([], [], None)] * (ROWS // 2), "a null list or map of structs looks empty"


def test_trino_refuses_deletion_vectors(copied: Copied, tmp_path: Path) -> None:
    with trino_on(copied.lake, tmp_path / "trino") as trino:
        assert trino.sql("SELECT count(*) FROM kafka.orders") == [[ROWS + AGAIN]]
        with pytest.raises(EngineError, match=TRINO_SAYS):
            trino.sql("SELECT count(*) FROM kafka.orders_v3")
