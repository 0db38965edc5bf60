"""Opening catalogs: the embedded one, time-outs of REST, clear errors."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import text

from iceberg_catalog.connect.open import CatalogSettings, embedded_settings, open_catalog
from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import SQLITE_BUSY_TIMEOUT_MS
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import ensure_table


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for connection in held:
            connection.close()


def test_the_embedded_catalog_waits_for_locks_and_logs_ahead(tmp_path: Path) -> None:
    catalog = open_catalog(embedded_settings(tmp_path / "not" / "yet"))
    assert isinstance(catalog, SqlCatalog)
    with catalog.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == SQLITE_BUSY_TIMEOUT_MS


def test_the_embedded_catalog_survives_a_restart(tmp_path: Path) -> None:
    open_catalog(embedded_settings(tmp_path)).create_namespace("kafka")
    assert open_catalog(embedded_settings(tmp_path)).list_namespaces() == [("kafka",)]


@pytest.mark.parametrize("name", ["a b", "50%", "c%20d", "ü+&="])
def test_folders_with_blanks_and_signs(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    catalog = open_catalog(embedded_settings(folder))
    owner = Owner("c", "t", bytes(16))
    table = ensure_table(catalog, owner, "raw", data_path=f"file://{folder}/store")
    assert (folder / "catalog.db").exists()
    assert (folder / "warehouse" / "kafka" / "t" / "metadata").is_dir()
    assert table.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_folders_no_uri_can_name_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CatalogError) as caught:
        embedded_settings(tmp_path / name)
    assert caught.value.kind == "bad_settings"


@pytest.mark.parametrize(
    "extra",
    [
        {"type": "rest"},
        {},  # PyIceberg takes its REST client by the URI alone
        {"type": "REST"},
        {"type": "rest", "credential": "id:hidden-half", "oauth2-server-uri": "http://127.0.0.1:{port}/tokens"},
        {"rest.sigv4-enabled": "true", "client.region": "us-east-1"},
    ],
    ids=["type", "uri", "capitals", "token", "sigv4"],
)
def test_a_silent_rest_catalog_times_out(silent_port: int, extra: dict[str, str]) -> None:
    uri = f"http://127.0.0.1:{silent_port}"
    properties = {"uri": uri} | {name: value.format(port=silent_port) for name, value in extra.items()}
    if "rest.sigv4-enabled" in extra:
        properties |= {"client.access-key-id": "someone", "client.secret-access-key": "hidden-half"}
    started = time.monotonic()
    with pytest.raises(CatalogError) as caught:
        open_catalog(CatalogSettings("r", properties, Timeouts(1000, 200)))
    assert caught.value.kind == "unavailable"
    assert "hidden-half" not in str(caught.value)
    assert time.monotonic() - started < 10


def test_an_absent_rest_catalog_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(CatalogError) as caught:
        open_catalog(CatalogSettings("r", {"type": "rest", "uri": f"http://127.0.0.1:{port}"}))
    assert caught.value.kind == "unavailable"


@pytest.mark.parametrize("properties", [{"type": "nonsense"}, {"type": "sql"}, {"type": "rest"}, {}])
def test_wrong_settings_say_so(properties: dict[str, str]) -> None:
    with pytest.raises(CatalogError) as caught:
        open_catalog(CatalogSettings("c", properties))
    assert caught.value.kind == "bad_settings"


def test_what_is_wrong_with_a_rest_catalog_is_said() -> None:
    with pytest.raises(CatalogError, match="needs `uri`"):
        open_catalog(CatalogSettings("r", {"type": "rest"}))


def test_the_environment_adds_to_the_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/lake.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", "file:///elsewhere")
    catalog = open_catalog(CatalogSettings("lake", {"type": "sql", "warehouse": f"file://{tmp_path}/lake"}))
    assert isinstance(catalog, SqlCatalog)
    assert (tmp_path / "lake.db").exists()
    assert catalog.properties["warehouse"] == f"file://{tmp_path}/lake"
