"""A table's maintenance as the settings want it."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.catalog import Catalog

from iceberg_catalog.names import Owner
from iceberg_catalog.plan_merge import MergeLimits
from iceberg_catalog.plan_types import Policy
from rsm_bridge.limits import MIB
from rsm_bridge.maintain import TableMaintenance
from rsm_bridge.merge import Merger
from rsm_bridge.missing_files import MissingRun
from rsm_bridge.retention import policy_at
from rsm_bridge.settings import MergeSettings, Settings
from rsm_bridge.store import ObjectStore
from rsm_bridge.typed_table import TypedTable, untyped


def open_maintenance(
    settings: Settings,
    store: ObjectStore,
    catalog: Catalog,
    topic_id: bytes,
    stopping: Callable[[], bool] = lambda: False,
    *,
    clock_ms: Callable[[], int],
    typed: Callable[[Owner], TypedTable | None] = untyped,
) -> TableMaintenance:
    """Maintenance of one topic id.

    `stopping`: asked between merges. `clock_ms`: decides what may go by its age. `typed`: the columns of its values.
    """

    def policy(topic: str, now_ms: int) -> Policy:
        return policy_at(settings.rule(topic).table_retention, now_ms)

    merger = Merger(store, catalog, topic_id, merge_limits(settings.merge), policy, stopping)
    missing = MissingRun(
        store,
        catalog,
        topic_id,
        settings.catalog.namespace,
        settings.catalog.layout,
        lambda topic: settings.rule(topic).table_retention,
        typed=typed,
        plain=settings.table_of,
        values=settings.values_of,
        generation=settings.generation,
        clock_ms=clock_ms,
    )
    return TableMaintenance(
        store,
        catalog,
        topic_id,
        settings.catalog.namespace,
        settings.reclaim_grace,
        merger if settings.merge.small_mib else None,
        missing=missing,
        plain=settings.table_of,
        clock_ms=clock_ms,
    )


def merge_limits(settings: MergeSettings) -> MergeLimits:
    """The section `merge` in the units of the plan."""
    return MergeLimits(
        small_bytes=settings.small_mib * MIB,
        target_bytes=settings.target_mib * MIB,
        files_min=settings.files_min,
        files_max=settings.files_max,
        age_ms=int(settings.age * 1000),
        span_ms=int(settings.span * 1000),
    )
