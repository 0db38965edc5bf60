"""A table gets the columns writers need: one request, right whatever becomes of its reply.

The same recipe as for data (`commit/commit.py`): compute the change on the table as loaded, send ONE request on
condition that nothing it was computed from has moved (table UUID, current schema, last field id), and after any answer,
or none, look at the table again. Done is when every writer binds. So a lost reply, a request that lands late, and two
bridges with
the same wish or different ones are all the same act: what has landed needs no change, what has not is computed anew on
what is there.

The new schema is made by `evolve.py`, not by PyIceberg's UpdateSchema, which takes changes one by one by dotted name
and reads them against the old names: what was planned and what is sent are the same object here.

Data commits ask for the head's snapshot only, which an evolution does not move: a file written before is right under
the new schema, its missing columns are null.

The property `tierberg.generation` is that of the rules by which the table was last evolved. A bridge with older rules
changes nothing. It has no number to compare in the request: of two bridges that begin with different rules in the same
moment the older may still win once; the newer stamps its own when it evolves next.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from iceberg_catalog import failpoints
from iceberg_catalog.commit.commit import drop_old_metadata
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.evolve.evolve import evolve
from iceberg_catalog.evolve.names import SOURCES, Sources
from iceberg_catalog.evolve.walk import EvolutionStep, Incompatible
from iceberg_catalog.limits import EVOLVE_ATTEMPTS_MAX, EVOLVE_DEADLINE_MS, EVOLVE_PAUSE_MS, EVOLVE_REFUSALS_MAX

GENERATION: Final = "tierberg.generation"
_NOTHING_FIXED: Final[Mapping[str, str]] = MappingProxyType({})
_NOBODY: Final[Mapping[int, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WriterTypes:
    """Types of one writer's decoders: of its values, and of its keys where they are typed."""

    value: pa.StructType
    key: pa.StructType | None = None


@dataclass(frozen=True, slots=True)
class Evolved:
    """How an evolution ended.

    Attributes:
        table: as it is now; every writer binds that is not refused.
        refused: per writer, in the order given, what of it the table cannot take, as `path: reason`, or why the catalog
            refused its columns; empty for those that bind.
        changes: what this call found missing; who has added it in the end does not matter.
    """

    table: Table
    refused: tuple[tuple[str, ...], ...]
    changes: tuple[EvolutionStep, ...]


class FieldIds(Protocol):
    """The highest field id that data files may have of a table, kept where no restored catalog takes it back."""

    def given(self) -> int:
        """It; 0 for a table that nobody gave columns to."""

    def give(self, last: int) -> None:
        """Makes it durable that ids up to `last` (inclusive) may be in data files. It never sinks."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """The change of one table for all writers together, computed on one schema."""

    schema: Schema
    properties: Mapping[str, str | None]
    changes: tuple[EvolutionStep, ...]
    refused: tuple[tuple[str, ...], ...]


def evolved(
    catalog: Catalog,
    table: Table,
    writers: Sequence[WriterTypes],
    *,
    incompatible: Incompatible,
    generation: int,
    fixed: Mapping[str, str] = _NOTHING_FIXED,
    ids: FieldIds | None = None,
) -> Evolved:
    """The table with columns for these writers. No request when it has them and the generation is stamped.

    Args:
        catalog: the one the table was loaded from.
        table: as loaded, however long ago.
        writers: in the order in which their fields get columns.
        incompatible: what becomes of a field whose column has a type that cannot take it.
        generation: of the rules that say so.
        fixed: properties to come with these columns, which follow from them. Where the table has another value of one
            already, it is left as it is: the caller begins anew with that.
        ids: new columns get ids above; None: the table alone says which are taken. What it raises passes through.

    Raises:
        CatalogError: `older_generation` if the table was evolved by newer rules and would have to change;
            `owner_mismatch` if another table has its name now; `schema_mismatch` if its property `tierberg.sources` is
            damaged; `unavailable` if it did not come to an end within EVOLVE_ATTEMPTS_MAX requests or
            EVOLVE_DEADLINE_MS: some may have landed, or land later, which harms nothing.
    """
    uuid, name = table.metadata.table_uuid, ".".join(table.name())
    deadline = time.monotonic() + EVOLVE_DEADLINE_MS / 1000
    seen: dict[EvolutionStep, None] = {}
    cause: Exception | None = None
    apart: dict[int, str] = {}
    refusals = 0
    asked = _Asked(
        writers=writers,
        incompatible=incompatible,
        generation=generation,
        ids=ids,
        least=0 if ids is None else ids.given(),
    )
    for attempt in range(EVOLVE_ATTEMPTS_MAX + 1):
        if cause is not None:
            time.sleep(EVOLVE_PAUSE_MS / 1000)
        if table.metadata.table_uuid != uuid:
            raise CatalogError("owner_mismatch", f"table {name} was dropped and created again: start with a new load")
        if any(table.properties.get(name, value) != value for name, value in fixed.items()):
            return Evolved(table, (), tuple(seen))
        wish = asked.wish(table, fixed, apart)
        stamped = _generation_for(table, wish, generation)
        if not wish.changes and stamped >= generation and fixed.keys() <= table.properties.keys():
            return Evolved(table, wish.refused, tuple(seen))
        if attempt == EVOLVE_ATTEMPTS_MAX or time.monotonic() > deadline:
            break
        seen |= dict.fromkeys(wish.changes)
        try:
            table = asked.sent(catalog, table, wish, stamped)
            cause = None
        except Exception as error:  # noqa: BLE001 any answer, or none: only the table itself knows
            cause = error
            with suppress(Exception):  # then the next request is computed on what was known, and refused if that moved
                table = catalog.load_table(table.name())
            refusals += _is_about_content(error)
            if refusals >= EVOLVE_REFUSALS_MAX:  # an answer may also have been garbled on its way
                refusals = 0
                table = _one_by_one(catalog, table, asked, apart)
    text = f"table {name} could not be given the columns it needs"
    raise CatalogError("unavailable", f"{text}: {cause or 'other bridges change it all the time'}") from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a caller wants of a table. `least`: field ids up to it are taken."""

    writers: Sequence[WriterTypes]
    incompatible: Incompatible
    generation: int
    ids: FieldIds | None
    least: int

    def wish(self, table: Table, fixed: Mapping[str, str], apart: Mapping[int, str]) -> _Wish:
        """The change that the table needs as it is now."""
        return _wish(table, self.writers, self.incompatible, fixed, apart, self.least)

    def sent(self, catalog: Catalog, table: Table, wish: _Wish, stamped: int) -> Table:
        """Sends it, once the ids of its columns are known to be taken."""
        if self.ids is not None and wish.changes:
            self.ids.give(wish.schema.highest_field_id)
        return _sent(catalog, table, wish, max(stamped, self.generation))


def _one_by_one(catalog: Catalog, table: Table, asked: _Asked, apart: dict[int, str]) -> Table:
    """The table with the columns of each writer that has its request accepted; adds those that have not to `apart`."""
    for number, _ in enumerate(asked.writers):
        others = {other: "" for other in range(len(asked.writers)) if other != number} | apart
        wish = asked.wish(table, _NOTHING_FIXED, others)
        if number in apart or not wish.changes:
            continue
        try:
            table = asked.sent(catalog, table, wish, _generation_for(table, wish, asked.generation))
        except Exception as error:  # noqa: BLE001 any other error is for the requests that follow
            if _is_about_content(error):
                apart[number] = _said(error)
            with suppress(Exception):
                table = catalog.load_table(table.name())
    return table


def foreseen(
    table: Table,
    writers: Sequence[WriterTypes],
    *,
    incompatible: Incompatible,
    generation: int,
    fixed: Mapping[str, str],
) -> Table:
    """The table as :func:`evolved` would return it, for a dry run: the catalog is not asked and changes nothing.

    Raises:
        CatalogError: `older_generation`, `schema_mismatch`, as there.
    """
    if any(table.properties.get(name, value) != value for name, value in fixed.items()):
        return table
    wish = _wish(table, writers, incompatible, fixed)
    stamped = _generation_for(table, wish, generation)
    metadata = update_table_metadata(table.metadata, _updates(table, wish, max(stamped, generation)))
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _is_about_content(error: Exception) -> bool:
    """Whether what was asked for is refused, here or by the catalog, and will be however often it is asked again."""
    return isinstance(error, BadRequestError | ValidationError | ValueError | TypeError | RecursionError)


def _wish(
    table: Table,
    writers: Sequence[WriterTypes],
    incompatible: Incompatible,
    fixed: Mapping[str, str],
    apart: Mapping[int, str] = _NOBODY,
    least: int = 0,
) -> _Wish:
    """`apart`: writers, by number, that are left out, and why. least: ids of new columns are above it."""
    schema, sources = table.schema(), Sources.decode(table.properties.get(SOURCES))
    last_field_id = max(table.metadata.last_column_id, least)
    properties: dict[str, str | None] = {}
    changes: list[EvolutionStep] = []
    refused: list[tuple[str, ...]] = []
    for number, writer in enumerate(writers):
        if number in apart:
            refused.append((apart[number],))
            continue
        current = {**table.properties, **properties}
        try:
            step = evolve(
                schema,
                sources,
                writer.value,
                last_field_id=last_field_id,
                properties={name: value for name, value in current.items() if value is not None},
                incompatible=incompatible,
                key=writer.key,
            )
        except Exception as error:  # noqa: BLE001 whatever it is, the other writers get their columns
            refused.append((_said(error),))
            continue
        refused.append(step.incompatible)
        changes += step.changes
        properties |= step.properties
        schema, sources = step.schema, step.sources
        last_field_id = max(last_field_id, schema.highest_field_id)
    if changes and (text := sources.encode()) != table.properties.get(SOURCES, Sources().encode()):
        properties[SOURCES] = text
    properties |= {name: value for name, value in fixed.items() if name not in table.properties}
    return _Wish(schema, properties, tuple(changes), tuple(refused))


def _sent(catalog: Catalog, table: Table, wish: _Wish, generation: int) -> Table:
    """Sends the request; the table as the catalog answers."""
    metadata = table.metadata
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
    )
    name = ".".join(table.name())
    failpoints.hit("before-evolve", name)
    response = catalog.commit_table(table, requirements, _updates(table, wish, generation))
    failpoints.hit("after-evolve", name)
    with suppress(Exception):  # housekeeping: the commit stands, a leftover metadata.json harms nobody
        drop_old_metadata(table, response)
    return Table(table.name(), response.metadata, response.metadata_location, table.io, catalog)


def _updates(table: Table, wish: _Wish, generation: int) -> tuple[TableUpdate, ...]:
    updates: list[TableUpdate] = []
    if wish.changes:
        number = 1 + max(schema.schema_id for schema in table.metadata.schemas)
        new = Schema(*wish.schema.fields, schema_id=number, identifier_field_ids=wish.schema.identifier_field_ids)
        updates += [AddSchemaUpdate(schema=new), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})]
    values = {name: value for name, value in wish.properties.items() if value is not None}
    updates.append(SetPropertiesUpdate(updates={**values, GENERATION: str(generation)}))
    gone = [name for name, value in wish.properties.items() if value is None and name in table.properties]
    if gone:
        updates.append(RemovePropertiesUpdate(removals=gone))
    return tuple(updates)


def _generation_for(table: Table, wish: _Wish, generation: int) -> int:
    """The generation the table is stamped with; older rules may not change it."""
    stamped = stamped_generation(table)
    if wish.changes and stamped > generation:
        name = ".".join(table.name())
        text = f"table {name} was evolved by rules of generation {stamped}, these are of generation {generation}"
        raise CatalogError("older_generation", f"{text}: restart this bridge with the newer rules")
    return stamped


def stamped_generation(table: Table) -> int:
    """Of the rules that evolved the table last; -1: none did yet."""
    text = table.properties.get(GENERATION, "-1")
    try:
        return int(text)
    except ValueError as error:
        raise CatalogError("schema_mismatch", f"table property {GENERATION} is no number: {text!r}") from error
