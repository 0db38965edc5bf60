"""Where a topic's table lies, and its creation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.types import ValueFormat
from iceberg_catalog.connect.open import CatalogSettings as CatalogProperties
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.connect.redaction import remember_settings
from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.tables.names import Owner, PlainName
from iceberg_catalog.tables.tables import ensure_table
from rsm_bridge.config.secrets import revealed, settings_secrets
from rsm_bridge.config.settings import Settings, TableLayout, load_settings
from rsm_bridge.storage.keys import table_folder
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_made_store, open_store


def topic_table(
    store: ObjectStore,
    catalog: Catalog,
    owner: Owner,
    value_format: ValueFormat,
    *,
    namespace: str,
    layout: TableLayout,
    plain: PlainName,
) -> Table:
    """The topic's table, created if need be.

    Raises:
        CatalogError: and what the catalog raises, see iceberg_catalog.tables.tables.ensure_table.
    """
    # Inside: the folder that holds the topic's data files anyway is the table's location.
    inside = store.uri(table_folder(owner.topic_id)) if layout == "inside" else None
    return ensure_table(
        catalog,
        owner,
        value_format,
        data_path=inside or store.uri("data"),
        namespace=namespace,
        location=inside,
        plain=plain,
    )


def catalog_properties(settings: Settings) -> CatalogProperties:
    """What PyIceberg is to open: the embedded SQLite catalog, or what the settings say."""
    given = settings.catalog
    if not given.properties:
        return embedded_settings(settings.data_dir)
    properties = revealed(given.properties)
    if given.warehouse is not None:
        properties.setdefault("warehouse", given.warehouse)
    timeouts = Timeouts(round(given.connect_timeout * 1000), round(given.read_timeout * 1000))
    return CatalogProperties(given.name, properties, timeouts)


@dataclass(frozen=True, slots=True)
class Backend:
    """Store and catalog as the settings name them."""

    settings: Settings
    store: ObjectStore
    catalog: Catalog

    @property
    def namespace(self) -> str:
        """Of our tables."""
        return self.settings.catalog.namespace


def open_backend(config: Path | None, data_dir: Path | None, *, made: bool = False) -> Backend:
    """Opens what the settings name; from now on their credentials are hidden in what the process says.

    `made`: a bridge has run there: an embedded store that is not there is refused, and no folder is made for it.

    Raises:
        SettingsError, CatalogError: it cannot be.
    """
    settings = load_settings(config, {"data_dir": data_dir})
    remember_settings(settings_secrets(settings))
    store = open_made_store(settings) if made else open_store(settings)
    return Backend(settings, store, open_catalog(catalog_properties(settings)))
