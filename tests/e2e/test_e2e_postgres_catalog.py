"""The catalog in a real PostgreSQL: opened by many at once, silent, gone, locked; its swap stays a swap.

The whole bridge on it is in test_e2e_catalog_smoke_postgres.py.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import create_engine, text

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.tables import ensure_table
from tests.worlds.catalog_support import OWNER, STATE, Place
from tierberg.stack.servers.postgres import PostgresServer

# pg8000 leaves the socket of a connection that could not be made to the garbage collector.
pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]

TIMEOUTS = Timeouts(1000, 1500)
OPENERS = 8


class Postgres(PostgresServer):
    """The server, and catalogs on it that are closed with it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._warehouse = f"file://{folder}/warehouse"
        self._opened: list[SqlCatalog] = []

    def open(self, uri: str | None = None) -> SqlCatalog:
        properties = {"uri": uri or self.uri(), "warehouse": self._warehouse}
        catalog = open_catalog(CatalogSettings("lake", properties, TIMEOUTS))
        assert isinstance(catalog, SqlCatalog)
        self._opened.append(catalog)
        return catalog

    def close(self) -> None:
        for catalog in self._opened:
            catalog.close()
        self._opened.clear()
        gc.collect()
        self.remove()


@pytest.fixture
def server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Postgres]:
    started = Postgres(tmp_path / "postgres")
    try:
        started.start()
        yield started
    finally:
        # What SQLAlchemy logs of connections it gives up holds on to their sockets, beyond the end of the test.
        caplog.get_records("call").clear()
        started.close()


def place_of(catalog: SqlCatalog, folder: Path, topic: str = "orders") -> Place:
    owner = replace(OWNER, topic=topic)
    return Place(catalog, ensure_table(catalog, owner, "raw", data_path=folder.as_uri()), folder)


def test_an_empty_database_may_be_opened_by_many_at_once(server: Postgres, tmp_path: Path) -> None:
    with ThreadPoolExecutor(OPENERS) as pool:
        catalogs = list(pool.map(lambda _: server.open(), range(OPENERS)))
        tables = list(pool.map(lambda catalog: place_of(catalog, tmp_path).table, catalogs))
    assert len({table.metadata.table_uuid for table in tables}) == 1


def test_of_two_commits_on_one_head_one_is_refused(server: Postgres, tmp_path: Path) -> None:
    ours = place_of(server.open(), tmp_path)
    theirs = place_of(server.open(), tmp_path)
    heads = [LiveFiles().read(place.load()) for place in (ours, theirs)]
    files = [place.write(number * 10, number * 10 + 9) for number, place in enumerate((ours, theirs))]
    outcomes = [
        commit(place.catalog, head, Change(append=(file,)), STATE, commit_id=file.file_path, as_of_ms=0)
        for place, head, file in zip((ours, theirs), heads, files, strict=True)
    ]
    assert [outcome.kind for outcome in outcomes] == ["committed", "conflict"]
    assert ours.offsets() == theirs.offsets() == list(range(10))


def test_a_commit_that_a_lock_holds_up_is_unknown_and_never_lands(server: Postgres, tmp_path: Path) -> None:
    place = place_of(server.open(), tmp_path)
    head, file = LiveFiles().read(place.load()), place.write(0, 9)
    other = create_engine(server.uri())
    with other.connect() as connection:
        connection.execute(text("SELECT * FROM iceberg_tables FOR UPDATE"))
        started = time.monotonic()
        outcome = commit(place.catalog, head, Change(append=(file,)), STATE, commit_id="one", as_of_ms=0)
        assert time.monotonic() - started < 10
    other.dispose()
    assert outcome.kind == "unknown"
    # The answer to the statement that was given up is not taken for another one's.
    assert place.catalog.list_namespaces() == [("kafka",)]
    assert place.offsets() == []
    again = commit(place.catalog, head, Change(append=(file,)), STATE, commit_id="two", as_of_ms=0)
    assert again.kind == "committed"
    assert place.offsets() == list(range(10))


def test_a_silent_server_is_given_up_and_one_that_is_back_is_used(server: Postgres, tmp_path: Path) -> None:
    catalog = server.open()
    server.process.freeze()
    try:
        with pytest.raises(CatalogError) as refused:
            server.open()
    finally:
        server.process.resume()
    assert refused.value.kind == "unavailable"
    server.process.kill()
    with pytest.raises(CatalogError) as away:
        server.open()
    assert away.value.kind == "unavailable"
    assert server.password not in str(away.value)
    server.start()
    assert catalog.list_namespaces() == []


def test_a_wrong_password_is_a_matter_of_settings_and_is_not_shown(server: Postgres, tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as refused:
        server.open(server.uri().replace(server.password, "hunter2-hunter2"))
    assert refused.value.kind == "bad_settings"
    assert "hunter2" not in str(refused.value)
