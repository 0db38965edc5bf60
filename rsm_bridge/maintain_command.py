"""What `tierberg maintain`, `undelete` and `table drop` do, as lines for a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.errors import SegmentError
from iceberg_catalog.catalogs import open_catalog
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.names import Owner
from iceberg_catalog.redaction import remember_settings
from iceberg_catalog.sound import KeptSnapshotError
from iceberg_catalog.tables import find_table, names_of
from rsm_bridge.copy_hold import CopyReaders
from rsm_bridge.drop_other import drop_other, table_uuid_of
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.lease import Lease, kept, lease_key
from rsm_bridge.limits import LEASE_SECONDS
from rsm_bridge.local_store import FolderLock
from rsm_bridge.maintain import find_owner, observe
from rsm_bridge.maintain_drop import drop_table
from rsm_bridge.maintain_open import open_maintenance
from rsm_bridge.maintain_service import holder_name
from rsm_bridge.maintain_tally import Tally
from rsm_bridge.open_store import open_made_store, open_store
from rsm_bridge.publisher import catalog_properties
from rsm_bridge.reclaim import Graces, Reclaimer
from rsm_bridge.running_copies import RunningCopies
from rsm_bridge.secret_settings import settings_secrets
from rsm_bridge.settings import Settings, load_settings
from rsm_bridge.store import ObjectStore, first_line
from rsm_bridge.store_clock import StoreClock, local_ms
from rsm_bridge.topic_segments import owners_of, several, topic_ids
from rsm_bridge.typed_topics import TypedTopics, opened_typed_topics
from rsm_bridge.undelete import undelete
from rsm_bridge.undelete_lost import given_up
from rsm_bridge.undelete_record import take_back
from rsm_bridge.unreadable_table import drop_unreadable

_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """Store and catalog as the settings name them."""

    settings: Settings
    store: ObjectStore
    catalog: Catalog

    @property
    def namespace(self) -> str:
        """Of our tables."""
        return self.settings.catalog.namespace


def open_place(config: Path | None, data_dir: Path | None, *, made: bool = False) -> Place:
    """Opens what the settings name; from now on their credentials are hidden in what the process says.

    `made`: a bridge has run there: an embedded store that is not there is refused, and no folder is made for it.

    Raises:
        SettingsError, CatalogError: it cannot be.
    """
    settings = load_settings(config, {"data_dir": data_dir})
    remember_settings(settings_secrets(settings))
    store = open_made_store(settings) if made else open_store(settings)
    return Place(settings, store, open_catalog(catalog_properties(settings)))


def maintain(place: Place, table: str | None, *, dry_run: bool, say: Callable[[str], None]) -> None:
    """Reclaims and sweeps all tables, or one; says what was done, by table and kind.

    Args:
        place: where.
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
        if place.store.single_process and not dry_run:
            stack.callback(FolderLock(place.settings.data_dir).close)
        found = [(topic_id, _names(place, topic_id)) for topic_id in topic_ids(place.store)]
        chosen = [(topic_id, names) for topic_id, names in found if table is None or table in names]
        if table is not None and not chosen:
            raise BridgeError("not_found", f"the store has nothing of a topic or table {table}")
        typed = stack.enter_context(opened_typed_topics(place.settings, place.store, lambda: place.catalog))
        failed: list[Exception] = []
        lost: list[str] = []
        for topic_id, names in chosen:
            tally = Tally()
            try:
                with contextlib.nullcontext() if dry_run else leased(place.store, topic_id):
                    _maintain_one(place, topic_id, typed, tally, dry_run=dry_run)
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


def _maintain_one(place: Place, topic_id: bytes, typed: TypedTopics, tally: Tally, *, dry_run: bool) -> None:
    """One pass, begun again without each older snapshot that it finds unreadable."""
    expired: set[int] = set()
    while True:
        try:
            _pass(place, topic_id, typed, tally, dry_run=dry_run)
        except KeptSnapshotError as error:
            clock_ms = StoreClock(place.store).now_ms
            maintenance = open_maintenance(place.settings, place.store, place.catalog, topic_id, clock_ms=clock_ms)
            again = error.snapshot_id in expired
            if dry_run or again or not maintenance.expire_unreadable(error.snapshot_id, tally):
                raise
            expired.add(error.snapshot_id)
        else:
            return


def _pass(place: Place, topic_id: bytes, typed: TypedTopics, tally: Tally, *, dry_run: bool) -> None:
    graces = Graces(place.settings.reclaim_grace, place.settings.mass_delete_grace)
    clock_ms = local_ms if dry_run else StoreClock(place.store).now_ms
    reclaimer = Reclaimer(place.store, place.catalog, graces, RunningCopies(), dry_run=dry_run, clock_ms=clock_ms)
    copies = CopyReaders(place.settings, place.store).waiting
    found = observe(
        place.store, place.catalog, topic_id, place.namespace, place.settings.table_of, copies, clock_ms=clock_ms
    )
    reclaimer.reclaim(found, tally)
    maintenance = open_maintenance(
        place.settings, place.store, place.catalog, topic_id, clock_ms=clock_ms, typed=typed.table
    )
    maintenance.run(tally, dry_run=dry_run)


@contextlib.contextmanager
def leased(store: ObjectStore, topic_id: bytes) -> Iterator[None]:
    """The table's lease during the block; waits for two TTLs, within which a dead holder is replaced."""
    lease = Lease(store, lease_key(topic_id.hex()), holder_name())
    end = time.monotonic() + 2 * LEASE_SECONDS
    while not lease.acquire():
        if time.monotonic() > end:
            raise BridgeError("overloaded", f"a bridge is maintaining topic id {topic_id.hex()}; try again later")
        time.sleep(_POLL_SECONDS)
    with kept(lease):
        yield


def _names(place: Place, topic_id: bytes) -> list[str]:
    """What people may call it: table, table with namespace, topic, topic id; the first one is shown."""
    owner = find_owner(place.store, place.catalog, topic_id, place.namespace)
    if owner is None:
        return [topic_id.hex()]
    try:
        table = find_table(place.catalog, owner, namespace=place.namespace, plain=place.settings.table_of)
    except CatalogError as error:
        if error.kind != "table_unreadable":
            raise
        own = names_of(owner, place.settings.table_of)
        return [owner.topic, *own, *(f"{place.namespace}.{name}" for name in own), topic_id.hex()]
    names = [] if table is None else [table.name()[-1], ".".join(table.name())]
    return [*names, owner.topic, topic_id.hex()]


def restore(place: Place, topic: str, wanted: str | None, *, undo: bool, without_lost: bool = False) -> list[str]:
    """Brings back what Kafka deleted of a topic, or with `undo` deletes that again; returns what to say.

    Args:
        place: where.
        topic: its name.
        wanted: topic id as 32 hex digits, needed when several topics have the name; None: the only one.
        undo: take an earlier undelete back.
        without_lost: give up segments whose data files are lost.

    Raises:
        SettingsError: `wanted` is no topic id.
        BridgeError: `not_found`, `bad_request` when several topic ids have the name, and as undelete.undelete.
        RetryRunError: run it again.
    """
    owners = owners_of(place.store, topic, wanted)
    if len(owners) > 1:
        raise BridgeError("bad_request", several(topic, owners))
    topic_id = owners[0].topic_id
    if undo:
        count = take_back(place.store, topic_id)
        return [
            f"{count} segments are deleted again; rows that table_retention does not keep leave with the next commit"
        ]
    done = undelete(
        place.store,
        place.catalog,
        topic_id,
        place.namespace,
        lambda name: place.settings.rule(name).table_retention,
        place.settings.table_of,
        CopyReaders(place.settings, place.store).waiting,
        without_lost=without_lost,
    )
    lines = [f"{done.segments} segments with {done.rows} rows are back"]
    lines += [f"  partition {number}: from offset {offset}" for number, offset in sorted(done.lowest.items())]
    return lines + given_up(done.lost)


def drop(place: Place, name: str, *, unreadable: bool = False) -> list[str]:
    """Drops an empty table, by its uuid one that other rules made, or the entry of one that cannot be read.

    Returns what to say. Raises as maintain_drop.drop_table, drop_other.drop_other and unreadable_table.drop_unreadable.
    """
    if unreadable:
        given = place.settings
        return [
            drop_unreadable(
                place.store,
                place.catalog,
                place.namespace,
                name,
                given.table_of,
                lambda topic: given.rule(topic).table_retention,
            )
        ]
    tally = Tally()
    other = table_uuid_of(name)
    if other is not None:

        def current(owner: Owner) -> Table | None:
            """The table that these settings name."""
            return find_table(place.catalog, owner, namespace=place.namespace, plain=place.settings.table_of)

        return [drop_other(place.store, place.catalog, other, current, tally), *tally.lines()]
    dropped = drop_table(place.store, place.catalog, place.namespace, name, tally)
    return [f"{dropped} dropped", *tally.lines()]
