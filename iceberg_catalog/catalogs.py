"""Open a catalog from its settings.

Two things PyIceberg leaves open are closed here: its REST session has no time-outs, and SQLite answers "database is
locked" at once instead of waiting for the other writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from sqlalchemy import URL, event, make_url

from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import REST_CONNECT_TIMEOUT_MS, REST_READ_TIMEOUT_MS, SQLITE_BUSY_TIMEOUT_MS

EMBEDDED_NAME = "tierberg"


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """A catalog's name and the properties PyIceberg's `load_catalog` takes (`type`, `uri`, `warehouse`, `s3.*`, …)."""

    name: str
    properties: Mapping[str, str]


def embedded_settings(data_dir: Path) -> CatalogSettings:
    """The catalog that needs no server: SQLite in `data_dir/catalog.db`, metadata under `data_dir/warehouse`.

    One bridge process only: SQLite on a shared file system is not safe for several hosts. The folder's name goes into
    table locations as it is, for PyIceberg does not decode `%20` in local paths; `#` and `?` cannot be in it.

    Raises:
        CatalogError: `bad_settings` if the folder's path has `#` or `?` in it.
    """
    root = data_dir.resolve()
    if "#" in str(root) or "?" in str(root):
        raise CatalogError("bad_settings", f"the data directory {root} must not have # or ? in its path")
    uri = URL.create("sqlite", database=str(root / "catalog.db"))
    return CatalogSettings(
        EMBEDDED_NAME,
        {"type": "sql", "uri": uri.render_as_string(), "warehouse": f"file://{root / 'warehouse'}"},
    )


def open_catalog(settings: CatalogSettings) -> Catalog:
    """The catalog, ready for use. A REST catalog is asked for its configuration here.

    Raises:
        CatalogError: `bad_settings` if the properties are wrong, `unavailable` if the catalog does not answer.
    """
    properties = dict(settings.properties)
    if properties.get("uri", "").startswith("sqlite:///"):
        Path(make_url(properties["uri"]).database or "").parent.mkdir(parents=True, exist_ok=True)
    try:
        if properties.get("type") == "rest":
            return _TimedRestCatalog(settings.name, **properties)
        catalog = load_catalog(settings.name, **properties)
    except (OSError, TimeoutError) as error:
        raise CatalogError("unavailable", f"catalog {settings.name} does not answer: {error}") from error
    except Exception as error:  # what else a client library raises at start is a matter of its settings
        raise CatalogError("bad_settings", f"catalog {settings.name} cannot be opened: {error}") from error
    if isinstance(catalog, SqlCatalog) and catalog.engine.dialect.name == "sqlite":
        _tune_sqlite(catalog)
    return catalog


def _tune_sqlite(catalog: SqlCatalog) -> None:
    """Write-ahead log, and waiting for locks, on every connection from here on."""

    def on_connect(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {SQLITE_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()

    event.listen(catalog.engine, "connect", on_connect)
    catalog.engine.dispose()


class _Timed(HTTPAdapter):
    """Requests that do not wait for ever."""

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        kwargs["timeout"] = (REST_CONNECT_TIMEOUT_MS / 1000, REST_READ_TIMEOUT_MS / 1000)
        return super().send(request, *args, **kwargs)


class _TimedRestCatalog(RestCatalog):
    """PyIceberg's REST catalog; every session it makes, the first one for its configuration too, has time-outs."""

    def _create_session(self) -> Any:
        session = super()._create_session()
        session.mount("http://", _Timed())
        session.mount("https://", _Timed())
        return session
