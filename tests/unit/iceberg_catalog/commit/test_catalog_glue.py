"""AWS Glue (moto): the same tables and commits in a catalog of another kind, by configuration alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.glue import GlueCatalog

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.tables.tables import ensure_table
from tests.support.s3_server import moto_server
from tests.worlds.catalog_support import OWNER, STATE, Place


@pytest.fixture
def endpoint() -> Iterator[str]:
    with moto_server() as server:
        yield server.endpoint


@pytest.fixture
def place(endpoint: str, tmp_path: Path) -> Place:
    properties = {
        "type": "glue",
        "glue.endpoint": endpoint,
        "glue.region": "us-east-1",
        "glue.access-key-id": "a",
        "glue.secret-access-key": "b",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    catalog = open_catalog(CatalogSettings("glue", properties))
    assert isinstance(catalog, GlueCatalog)
    data = tmp_path / "data"
    return Place(catalog, ensure_table(catalog, OWNER, "raw", data_path=data.as_uri()), data)


def test_append_conflict_and_delete(place: Place) -> None:
    head = LiveFiles().read(place.load())
    first, second = place.write(0, 9), place.write(10, 19)
    landed = commit(place.catalog, head, Change(append=(first,)), STATE, commit_id="one", as_of_ms=0)
    assert landed.kind == "committed"
    assert place.offsets() == list(range(10))

    refused = commit(place.catalog, head, Change(append=(second,)), STATE, commit_id="two", as_of_ms=0)
    assert refused.kind == "conflict"
    assert place.offsets() == list(range(10))

    head = LiveFiles().read(place.load())
    change = Change(append=(second,), delete=(first.file_path,))
    assert commit(place.catalog, head, change, STATE, commit_id="three", as_of_ms=0).kind == "committed"
    assert place.offsets() == list(range(10, 20))
    assert LiveFiles().read(place.load()).state == STATE
