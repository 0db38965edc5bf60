"""Open a catalog from its settings.

Three things PyIceberg leaves open are closed here: neither its REST sessions nor its database connections have
time-outs, SQLite answers "database is locked" at once instead of waiting for the other writer, and errors may quote
credentials.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServerError, ServiceUnavailableError, TooManyRequestsError
from pyiceberg.utils.config import Config, merge_config
from sqlalchemy import URL, make_url
from sqlalchemy.exc import InterfaceError, OperationalError

from iceberg_catalog.connect.file_io import FILE_IO
from iceberg_catalog.connect.redaction import hide, secret_values
from iceberg_catalog.connect.rest import TimedRestCatalog, Timeouts
from iceberg_catalog.connect.sql import TimedSqlCatalog
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import REST_CONNECT_TIMEOUT_MS, REST_READ_TIMEOUT_MS, SIGNED_RETRIES_MAX

EMBEDDED_NAME = "tierberg"

_TIMEOUTS: Final = Timeouts(REST_CONNECT_TIMEOUT_MS, REST_READ_TIMEOUT_MS)
_AWAY: Final = (
    OSError,
    TimeoutError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    InterfaceError,
    OperationalError,
)


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Which catalog, and how long it may take.

    Attributes:
        name: also names its section in PyIceberg's own configuration (`~/.pyiceberg.yaml`, `PYICEBERG_CATALOG__…`),
            over which `properties` win.
        properties: what PyIceberg's `load_catalog` takes (`type`, `uri`, `warehouse`, `s3.*`, …).
        timeouts: of each request to a REST catalog or a database, and for table metadata in S3.
    """

    name: str
    properties: Mapping[str, Any]
    timeouts: Timeouts = _TIMEOUTS


def embedded_catalog(data_dir: Path) -> Path:
    """The file of the catalog that needs no server."""
    return data_dir / "catalog.db"


def threads_may_share(catalog: Catalog) -> bool:
    """Whether several threads may ask it at once. Of other clients nobody says so: Hive's has one connection."""
    return isinstance(catalog, RestCatalog | SqlCatalog)


def embedded_has_tables(data_dir: Path) -> bool:
    """Whether there is such a catalog and it has a table. Changes nothing; one that cannot be read tells of none."""
    try:
        uri = f"{embedded_catalog(data_dir).resolve(strict=True).as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            return database.execute("SELECT 1 FROM iceberg_tables LIMIT 1").fetchone() is not None
    except (OSError, sqlite3.Error):
        return False


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
    uri = URL.create("sqlite", database=str(embedded_catalog(root)))
    return CatalogSettings(
        EMBEDDED_NAME,
        {"type": "sql", "uri": uri.render_as_string(), "warehouse": f"file://{root / 'warehouse'}"},
    )


def open_catalog(settings: CatalogSettings) -> Catalog:
    """The catalog, ready for use. A REST catalog is asked for its configuration here.

    Raises:
        CatalogError: `bad_settings` if the properties are wrong or refused, `unavailable` if the catalog does not
            answer. The message quotes no credentials.
    """
    properties = dict(settings.properties)
    try:
        properties = merged_properties(settings)
        connect_s, read_s = settings.timeouts.seconds()
        timeouts = {"s3.connect-timeout": str(connect_s), "s3.request-timeout": str(read_s)}
        properties = {**timeouts, **FILE_IO, **properties}
        if (uri := str(properties.get("uri", ""))).startswith("sqlite:///"):
            Path(make_url(uri).database or "").parent.mkdir(parents=True, exist_ok=True)
        if _is(properties, "rest", "http"):
            return _rest(settings, properties)
        if _is(properties, "sql", "sqlite", "postgresql"):
            return TimedSqlCatalog(settings.name, settings.timeouts, **properties)
        return load_catalog(settings.name, **properties)
    except _AWAY as error:
        said = hide(str(error), secret_values(properties))
        raise CatalogError("unavailable", f"catalog {settings.name} does not answer: {said}") from None
    except Exception as error:  # noqa: BLE001 what else a client library raises at start is a matter of its settings
        said = hide(str(error), secret_values(properties))
        raise CatalogError("bad_settings", f"catalog {settings.name} cannot be opened: {said}") from None


def merged_properties(settings: CatalogSettings) -> dict[str, Any]:
    """Those of the settings, over what PyIceberg's own configuration says of a catalog of this name.

    Raises:
        ValueError: that configuration is wrong.
    """
    return dict(merge_config(Config().get_catalog_config(settings.name) or {}, dict(settings.properties)))


def _is(properties: Mapping[str, Any], kind: str, *schemes: str) -> bool:
    """Whether PyIceberg would take its client of this kind: asked to, or by the URI alone."""
    given = properties.get("type")
    if given is None and "py-catalog-impl" not in properties:
        return str(properties.get("uri", "")).startswith(schemes)
    return str(given).lower() == kind


def _rest(settings: CatalogSettings, properties: dict[str, Any]) -> Catalog:
    if not properties.get("uri"):
        raise ValueError("a REST catalog needs `uri`")
    # Signed requests are repeated by themselves, each with the whole time-out; PyIceberg's ten tries would be minutes.
    retries = {"rest.sigv4.max-retries": str(SIGNED_RETRIES_MAX)}
    return TimedRestCatalog(settings.name, settings.timeouts, **(retries | properties))
