"""Where a topic's table lies, and its creation."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.types import ValueFormat
from iceberg_catalog.names import Owner, PlainName
from iceberg_catalog.tables import ensure_table
from rsm_bridge.layout import table_folder
from rsm_bridge.settings import TableLayout
from rsm_bridge.store import ObjectStore


def topic_table(
    store: ObjectStore,
    catalog: Catalog,
    owner: Owner,
    value_format: ValueFormat,
    namespace: str,
    layout: TableLayout,
    plain: PlainName,
) -> Table:
    """The topic's table, created if need be.

    Raises:
        CatalogError: and what the catalog raises, see iceberg_catalog.tables.ensure_table.
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
