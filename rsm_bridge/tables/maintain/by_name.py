"""What `tierberg maintain`, `undelete` and `table drop` do, as lines for a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from pyiceberg.table import Table

from converter.errors import SegmentError
from iceberg_catalog.commit.sound import KeptSnapshotError
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import names_of
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.backend import Backend
from rsm_bridge.storage.clock import StoreClock, local_ms
from rsm_bridge.storage.lease import leased
from rsm_bridge.storage.local import own_folders
from rsm_bridge.storage.object_store import first_line
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.storage.segments.topic_segments import owners_of, several, topic_ids
from rsm_bridge.storage.segments.undelete_record import take_back
from rsm_bridge.tables.context import TableContext, table_context
from rsm_bridge.tables.maintain.drop_other import drop_other, table_uuid_of
from rsm_bridge.tables.maintain.drop_table import drop_table
from rsm_bridge.tables.maintain.maintain import find_owner, observe, open_maintenance
from rsm_bridge.tables.maintain.undelete import undelete
from rsm_bridge.tables.maintain.undelete_lost import given_up
from rsm_bridge.tables.maintain.unreadable_table import drop_unreadable
from rsm_bridge.tables.reclaim.reclaimer import Graces, Reclaimer
from rsm_bridge.values.typed.topics import TypedTopics, opened_typed_topics


def maintain(backend: Backend, table: str | None, *, dry_run: bool, say: Callable[[str], None]) -> None:
    """Reclaims and sweeps all tables, or one; says what was done, by table and kind.

    Args:
        backend: store and catalog.
        table: name of one table, or of one topic; None: all.
        dry_run: change nothing, say what would be done.
        say: receives each line.

    Raises:
        SettingsError: a bridge owns the embedded store; it maintains by itself.
        BridgeError: `not_found` when no topic or table has the name; `corrupt_object` when data files are lost, after
            all tables were maintained; `store_unavailable`.
        BridgeError, CatalogError, SegmentError: the first table's that could not be, after all others were; at once
            when the catalog is away. What else catalog and storage raise passes through.
    """
    with contextlib.ExitStack() as stack:
        if not dry_run:
            own_folders(backend.store, backend.settings.data_dir, stack)
        found = [(topic_id, _names(backend, topic_id)) for topic_id in topic_ids(backend.store)]
        chosen = [(topic_id, names) for topic_id, names in found if table is None or table in names]
        if table is not None and not chosen:
            raise BridgeError("not_found", f"the store has nothing of a topic or table {table}")
        typed = stack.enter_context(opened_typed_topics(backend.settings, backend.store, lambda: backend.catalog))
        failed: list[Exception] = []
        lost: list[str] = []
        for topic_id, names in chosen:
            tally = Tally()
            try:
                with contextlib.nullcontext() if dry_run else leased(backend.store, topic_id):
                    _maintain_one(backend, topic_id, typed, tally, dry_run=dry_run)
            except StoreError:
                raise
            except (BridgeError, CatalogError, SegmentError) as error:
                if error.kind == "unavailable":
                    raise
                say(f"{names[0]}: {first_line(error)}")
                failed.append(error)
                continue
            say(f"{names[0]}{' (dry run)' if dry_run else ''}")
            for line in tally.lines():
                say(line)
            lost += tally.lost
        if failed:
            raise failed[0]
        if lost:
            raise BridgeError("corrupt_object", f"{lost[0]}: a live segment needs it and the store does not have it")


def _maintain_one(backend: Backend, topic_id: bytes, typed: TypedTopics, tally: Tally, *, dry_run: bool) -> None:
    """One pass, begun again without each older snapshot that it finds unreadable."""
    expired: set[int] = set()
    clock_ms = local_ms if dry_run else StoreClock(backend.store).now_ms
    context = table_context(backend.settings, backend.store, clock_ms=clock_ms, typed=typed.table)
    while True:
        try:
            _pass(backend, topic_id, context, tally, dry_run=dry_run)
        except KeptSnapshotError as error:
            maintenance = open_maintenance(backend.settings, backend.store, backend.catalog, topic_id, context)
            again = error.snapshot_id in expired
            if dry_run or again or not maintenance.expire_unreadable(error.snapshot_id, tally):
                raise
            expired.add(error.snapshot_id)
        else:
            return


def _pass(backend: Backend, topic_id: bytes, context: TableContext, tally: Tally, *, dry_run: bool) -> None:
    graces = Graces(backend.settings.reclaim_grace, backend.settings.mass_delete_grace)
    reclaimer = Reclaimer(
        store=backend.store,
        catalog=backend.catalog,
        graces=graces,
        copies=RunningCopies(),
        policy=context.policy,
        dry_run=dry_run,
        clock_ms=context.clock_ms,
    )
    reclaimer.reclaim(observe(backend.store, backend.catalog, topic_id, context), tally)
    maintenance = open_maintenance(backend.settings, backend.store, backend.catalog, topic_id, context)
    maintenance.run(tally, dry_run=dry_run)


def _names(backend: Backend, topic_id: bytes) -> list[str]:
    """What people may call it: table, table with namespace, topic, topic id; the first one is shown."""
    owner = find_owner(backend.store, backend.catalog, topic_id, backend.namespace)
    if owner is None:
        return [topic_id.hex()]
    try:
        table = table_context(backend.settings, backend.store).table(backend.catalog, owner)
    except CatalogError as error:
        if error.kind != "table_unreadable":
            raise
        own = names_of(owner, backend.settings.table_of)
        return [owner.topic, *own, *(f"{backend.namespace}.{name}" for name in own), topic_id.hex()]
    names = [] if table is None else [table.name()[-1], ".".join(table.name())]
    return [*names, owner.topic, topic_id.hex()]


def restore(backend: Backend, topic: str, wanted: str | None, *, undo: bool, without_lost: bool = False) -> list[str]:
    """Brings back what Kafka deleted of a topic, or with `undo` deletes that again; returns what to say.

    Args:
        backend: store and catalog.
        topic: its name.
        wanted: topic id as 32 hex digits, needed when several topics have the name; None: the only one.
        undo: take an earlier undelete back.
        without_lost: give up segments whose data files are lost.

    Raises:
        SettingsError: `wanted` is no topic id.
        BridgeError: `not_found`, `bad_request` when several topic ids have the name, and as undelete.undelete.
        RetryRunError: run it again.
    """
    owners = owners_of(backend.store, topic, wanted)
    if len(owners) > 1:
        raise BridgeError("bad_request", several(topic, owners))
    topic_id = owners[0].topic_id
    if undo:
        count = take_back(backend.store, topic_id)
        return [
            f"{count} segments are deleted again; rows that table_retention does not keep leave with the next commit"
        ]
    # It gives rows no columns: what lacks the table's waits for the bridge, whatever rules gave the table those.
    context = replace(table_context(backend.settings, backend.store), generation=0)
    done = undelete(backend.store, backend.catalog, topic_id, context, without_lost=without_lost)
    lines = [f"{done.segments} segments with {done.rows} rows are back"]
    lines += [f"  partition {number}: from offset {offset}" for number, offset in sorted(done.lowest.items())]
    return lines + given_up(done.lost)


def drop(backend: Backend, name: str, *, unreadable: bool = False) -> list[str]:
    """Drops an empty table, by its uuid one that other rules made, or the entry of one that cannot be read.

    Returns what to say. Raises as maintain_drop.drop_table, drop_other.drop_other and unreadable_table.drop_unreadable.
    """
    context = table_context(backend.settings, backend.store)
    if unreadable:
        return [drop_unreadable(backend.store, backend.catalog, name, context)]
    tally = Tally()
    other = table_uuid_of(name)
    if other is not None:

        def current(owner: Owner) -> Table | None:
            """The table that these settings name."""
            return context.table(backend.catalog, owner)

        return [drop_other(backend.store, backend.catalog, other, current, tally), *tally.lines()]
    dropped = drop_table(backend.store, backend.catalog, backend.namespace, name, tally)
    return [f"{dropped} dropped", *tally.lines()]
