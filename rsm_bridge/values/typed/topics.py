"""The typed topics of one bridge: for each the schemas of its values, its table, its budget."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa
import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.types import LargeWork, SegmentMetadata
from converter.values.proof.prover import ValueProver
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.evolve.table import WriterTypes, evolved, foreseen
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import find_table, stamped_format
from rsm_bridge.config.settings import Settings
from rsm_bridge.config.topics import TopicRule, stored_format
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import EVOLUTION_WORKERS
from rsm_bridge.storage.backend import topic_table
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.values.registry.protobuf_compiler import protobuf_missing
from rsm_bridge.values.registry.registry import SchemaRegistry
from rsm_bridge.values.typed.column_ids import StoredFieldIds
from rsm_bridge.values.typed.copy import TypedCopy
from rsm_bridge.values.typed.cpu_budget import CpuBudget
from rsm_bridge.values.typed.decoder_shelf import DecoderShelf
from rsm_bridge.values.typed.inferred import INFERRED, Part
from rsm_bridge.values.typed.schema_waits import SchemaWaits
from rsm_bridge.values.typed.schemas import Registry, SchemaRule, ValueSchemas
from rsm_bridge.values.typed.table import TypedTable, Wanted

_PARTS: tuple[Part, ...] = ("value", "key")
_NOTHING = pa.struct([])


@dataclass(slots=True, kw_only=True)
class TypedTopics:
    """May be used by several threads.

    Attributes:
        open_catalog: the catalog, opened once; raises while it is away.
        registry: the schema registry; None where none is configured.
        executor: threads that ask the catalog for copies.
        dry_run: tables stay as they are; columns are those they would get.
        patient: see SchemaWaits.
        log: receives what rows wait for; None: nobody reads it.
        large: of those who publish, see TypedTable.
    """

    settings: Settings
    store: ObjectStore
    open_catalog: Callable[[], Catalog]
    registry: Registry | None
    executor: Executor
    dry_run: bool = False
    patient: bool = True
    log: structlog.typing.FilteringBoundLogger | None = None
    large: LargeWork = nullcontext
    _shelf: DecoderShelf = field(default_factory=DecoderShelf)
    _tables: dict[bytes, TypedTable] = field(default_factory=dict)
    _budgets: dict[bytes, CpuBudget] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def table(self, owner: Owner) -> TypedTable | None:
        """The topic's columns; None where its rule has none."""
        rule = self.settings.rule(owner.topic)
        rules = {part: _schema_rule(rule, part, owner.topic) for part in _PARTS}
        if not any(rules.values()) or rule.mode != "table":
            return None
        with self._lock:
            found = self._tables.get(owner.topic_id)
            if found is None:
                found = self._tables[owner.topic_id] = TypedTable(
                    schemas={
                        part: ValueSchemas(
                            rule=given,
                            registry=self.registry,
                            shelf=self._shelf,
                            waits=SchemaWaits(topic=owner.topic, patient=self.patient, log=self.log),
                        )
                        for part, given in rules.items()
                        if given is not None
                    },
                    evolve=lambda wanted, fixed: self._evolved(owner, rule, wanted, fixed),
                    executor=self.executor,
                    large=self.large,
                    value_format=stored_format(rule.value_format),
                )
            return found

    def copy(self, segment: SegmentMetadata) -> TypedCopy | None:
        """What gives the rows of one copy their columns."""
        owner = Owner(segment.cluster_name, segment.topic, segment.topic_id)
        table = self.table(owner)
        if table is None:
            return None
        rule = self.settings.rule(owner.topic)
        with self._lock:
            budget = self._budgets.get(owner.topic_id)
            if budget is None:
                budget = CpuBudget(rule.decode_budget)
                self._budgets[owner.topic_id] = budget
        proven = rule.value_bytes == "proven"
        return TypedCopy(table=table, budget=budget, prover=ValueProver() if proven else None)

    def _evolved(self, owner: Owner, rule: TopicRule, wanted: list[Wanted], fixed: Mapping[str, str]) -> Table:
        catalog, given = self.open_catalog(), self.settings.catalog
        generation = self.settings.generation
        if self.dry_run:
            found = find_table(catalog, owner, namespace=given.namespace, plain=self.settings.table_of)
            if found is None:
                raise CatalogError("unavailable", f"topic {owner.topic} has no table")
            writers, fixed = _fitting(found, wanted, fixed)
            return foreseen(found, writers, incompatible=rule.incompatible, generation=generation, fixed=fixed)
        begun = stored_format(rule.value_format)
        table = topic_table(
            self.store,
            catalog,
            owner,
            begun,
            namespace=given.namespace,
            layout=given.layout,
            plain=self.settings.table_of,
        )
        writers, fixed = _fitting(table, wanted, fixed)
        ids = StoredFieldIds(self.store, owner.topic_id, table.metadata.table_uuid)
        return evolved(
            catalog, table, writers, incompatible=rule.incompatible, generation=generation, fixed=fixed, ids=ids
        ).table


@contextlib.contextmanager
def opened_typed_topics(
    settings: Settings,
    store: ObjectStore,
    open_catalog: Callable[[], Catalog],
    *,
    dry_run: bool = False,
    patient: bool = True,
    log: structlog.typing.FilteringBoundLogger | None = None,
) -> Iterator[TypedTopics]:
    """Typed topics for the time of the block, with the client of the registry that the settings name, if any.

    Args:
        settings: rules, registry, catalog.
        store: of the topics.
        open_catalog: the catalog, opened once; raises while it is away.
        dry_run: no table is changed.
        patient: see SchemaWaits.
        log: receives what rows wait for; None: nobody reads it.

    Raises:
        SettingsError: a rule or the registry needs a library that is not installed.
    """
    for number, rule in enumerate(settings.topics):
        if "protobuf" in {rule.value_format, rule.key_format} and (missing := protobuf_missing()) is not None:
            raise SettingsError(f"topics.{number}: {missing}")
    with contextlib.ExitStack() as stack:
        registry: SchemaRegistry | None = None
        if settings.schema_registry is not None:
            registry = SchemaRegistry(settings.schema_registry)
            stack.callback(registry.close)
        executor = stack.enter_context(ThreadPoolExecutor(EVOLUTION_WORKERS, thread_name_prefix="evolve"))
        yield TypedTopics(
            settings=settings,
            store=store,
            open_catalog=open_catalog,
            registry=registry,
            executor=executor,
            dry_run=dry_run,
            patient=patient,
            log=log,
        )


def _fitting(
    table: Table, wanted: list[Wanted], fixed: Mapping[str, str]
) -> tuple[list[WriterTypes], Mapping[str, str]]:
    """What a table is asked to take. One that was made for text has no columns for values, whatever the rule now says.

    At least `_kafka_error` has to be there, whether or not the table takes what writers have.
    """
    if stamped_format(table) == "string":
        wanted = [item for item in wanted if item[0] == "key"]
        fixed = {name: text for name, text in fixed.items() if not name.startswith(INFERRED["value"])}
    return [*(_writer(*item) for item in wanted), WriterTypes(_NOTHING)], fixed


def _writer(part: Part, kind: pa.StructType) -> WriterTypes:
    return WriterTypes(kind) if part == "value" else WriterTypes(_NOTHING, kind)


def _schema_rule(rule: TopicRule, part: Part, topic: str) -> SchemaRule | None:
    form, source = rule.format_of(part), rule.source_of(part)
    if part == "key" and form == "string":
        return SchemaRule(kind=None, source="text")
    # Values that are text have their column from the conversion.
    if source is None or form == "raw" or form == "string":
        return None
    kind = None if form == "auto" else form
    learns, message = rule.incompatible == "new-column", source.message or ""
    if source.origin == "inline":
        return SchemaRule(kind=kind, source="inline", text=source.inline_text(), message=message, learns=learns)
    if source.origin == "subject":
        subject = rule.subject_of(part, topic)
        return SchemaRule(kind=kind, source="latest", subject=subject, message=message, learns=learns)
    return SchemaRule(kind=kind, source="inferred" if source.origin == "inferred" else "wire", learns=learns)
