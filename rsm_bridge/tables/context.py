"""What the settings say of tables, in one piece, for all that publishes, maintains and repairs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.types import ValueFormat
from iceberg_catalog.plan.types import Policy
from iceberg_catalog.tables.names import Owner, PlainName, table_name
from iceberg_catalog.tables.tables import find_table
from rsm_bridge.config.retention import follow_kafka, policy_at
from rsm_bridge.config.settings import Settings, TableLayout
from rsm_bridge.logs import logger
from rsm_bridge.storage.clock import StoreClock
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.hold import ProjectionReaders, WaitingProjections, no_projections
from rsm_bridge.values.typed.table import TypedTable, untyped


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContext:
    """The rules by which tables are made, filled and emptied. :func:`table_context` makes it from the settings.

    It says nothing of any one topic: what differs between topics is a function of the topic's name or owner. One thread
    at a time, for `projections` remembers what it read.

    Attributes:
        namespace: of the catalog, with all our tables; levels are joined by dots.
        clock_ms: milliseconds since the epoch, never ahead of the store's clock; decides what leaves a table or the
            store by its age, and is asked only where something may. Raises StoreError while the store is away.
        layout: where the data files of a new table lie: outside of its location, or inside.
        plain: topic → name of its table, unless that belongs to another topic.
        values: topic → what its new table is made for; None: as its segments are stored.
        retention: topic → its `table_retention`: `follow-kafka`, `keep`, or seconds.
        generation: of these rules; a table with columns by newer ones is left to bridges that know them.
        typed: owner → the columns of the topic's values; None where it has none.
        look_up_seconds: that schemas may be looked up while rows are written anew, which tables do in turn; by default
            as many as it takes, for who runs alone.
        projections: owner and plain name of the table → the declared projections that its rows may wait for.
    """

    namespace: str
    clock_ms: Callable[[], int]
    layout: TableLayout = "outside"
    plain: PlainName = table_name
    values: Callable[[str], ValueFormat] | None = None
    retention: Callable[[str], str | float] = follow_kafka
    generation: int = 0
    typed: Callable[[Owner], TypedTable | None] = untyped
    look_up_seconds: float = math.inf
    projections: WaitingProjections = no_projections

    def table(self, catalog: Catalog, owner: Owner) -> Table | None:
        """The owner's table as it is now; None while there is none. Raises CatalogError, and what else catalogs do."""
        return find_table(catalog, owner, namespace=self.namespace, plain=self.plain)

    def policy(self, topic: str, now_ms: int) -> Policy:
        """What becomes of a topic's rows that Kafka's retention deleted, at a time in milliseconds since the epoch."""
        return policy_at(self.retention(topic), now_ms)


def table_context(
    settings: Settings,
    store: ObjectStore,
    *,
    clock_ms: Callable[[], int] | None = None,
    typed: Callable[[Owner], TypedTable | None] = untyped,
    log: structlog.typing.FilteringBoundLogger | None = None,
) -> TableContext:
    """The context that settings say.

    Args:
        settings: rules of topics, and the catalog's place.
        store: has the progress of projections, and the clock.
        clock_ms: None: by the store's clock.
        typed: columns of values; by default none have any.
        log: is told of damaged progress of projections; None: one of their own.
    """
    return TableContext(
        namespace=settings.catalog.namespace,
        clock_ms=StoreClock(store).now_ms if clock_ms is None else clock_ms,
        layout=settings.catalog.layout,
        plain=settings.table_of,
        values=settings.values_of,
        retention=lambda topic: settings.rule(topic).table_retention,
        generation=settings.generation,
        typed=typed,
        projections=ProjectionReaders(settings, store, log=log or logger("projections")).waiting,
    )
