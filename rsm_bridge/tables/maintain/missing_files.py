"""Files that the table names and the store has no more: taken out of the table, live rows put back by the same commit.

It happens when a catalog is restored from a backup: what retention and merges have deleted since is in the old head.
Every scan of the table fails then. What is done with each file is the plan's (iceberg_catalog/plan/missing.py); here is
made certain that it is gone.

* A listing made before the head was read does not have it. A request for it alone says that it is not there. A listing
  made after that does not have it either.
* No index names it, and no tombstone but one whose objects are being removed. A live segment whose file is missing is
  damage, and no restored catalog: it is reported.
* All that live indexes of the topic name is there. Otherwise the store is partly away, and nothing is decided.
* It lies under our data root, in the topic's own folder.

Where others have delete files in a partition, live rows are not put back, for they may be among those deleted; nor is a
partition taken back beside data files of theirs, which may have rows that would come again. These files stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from dataclasses import replace as dc_replace
from functools import partial

from pyiceberg.manifest import DataFile

from iceberg_catalog.commit.commit import Change, recorded_as_of
from iceberg_catalog.commit.foreign_files import concerning, foreign_files, rows_deleted
from iceberg_catalog.commit.head import Head, by_partition
from iceberg_catalog.plan.missing import plan_missing
from iceberg_catalog.plan.summary import REWIND
from iceberg_catalog.plan.types import PartState, remembered
from iceberg_catalog.tables.names import Owner
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.limits import MISSING_FILES_MAX
from rsm_bridge.storage.keys import DATA_ROOT, is_stored_object, stored_key
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition
from rsm_bridge.tables.publish.planned_files import NoColumnsYetError, TableChangedError
from rsm_bridge.tables.publish.table_run import RetryRunError, TableRun


@dataclass(frozen=True, slots=True)
class Mended:
    """Files taken out of the table, paths of those that stay though they are gone, and of those live segments need."""

    removed: int = 0
    stay: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class MissingRun(TableRun):
    """Takes out of the table what is gone from the store. What stayed is remembered: others have their turn first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._stay: frozenset[str] = frozenset()

    def mend(
        self, stored: Collection[str], owner: Owner, read_head: Callable[[], Head | None], *, dry_run: bool = False
    ) -> Mended:
        """Does it, as far as it can be done now.

        Args:
            stored: keys of the topic's data files, listed before the head is read for the first time.
            owner: of the table.
            read_head: the table's head as it is now.
            dry_run: change nothing.

        Raises:
            BridgeError: `corrupt_object` when files are missing that live segments need; `store_unavailable`.
            RetryRunError, CatalogError, SegmentError: and what else catalog and storage raise.
        """
        attempt = partial(self._attempt, stored, owner, read_head, dry_run)
        return self.until_landed(attempt, "files that are gone are still in the table")

    def _attempt(
        self, stored: Collection[str], owner: Owner, read_head: Callable[[], Head | None], dry_run: bool
    ) -> Mended:
        head = read_head()
        unlisted = [] if head is None else [path for path in self._paths(head) if self._key(path) not in stored]
        if head is None or not unlisted:
            return Mended()
        known = self._listing.whole() or ()
        gone = self._gone(unlisted, known, stored)
        if not gone:
            return Mended(lost=self._lost(unlisted, known))
        try:
            return self._mend(head, gone, known, owner, dry_run=dry_run)
        except (NoColumnsYetError, TableChangedError) as error:
            raise RetryRunError(str(error) or "the table has got other columns") from error

    def _paths(self, head: Head) -> list[str]:
        """Of the head's files in the topic's own folder, in the order in which to ask for them."""
        folder = f"{DATA_ROOT}{self.topic_id.hex()}/"
        files = sorted(head.files, key=lambda item: (item.path in self._stay, item.partition, item.first))
        keys = ((item.path, self._key(item.path)) for item in files)
        return [path for path, key in keys if key.startswith(folder) and is_stored_object(key)]

    def _key(self, path: str) -> str:
        return stored_key(self.store, path) or ""

    def _gone(self, paths: Sequence[str], known: Sequence[KnownSegment], stored: Collection[str]) -> list[str]:
        """Those of the paths that are gone for certain, and that no index leads to."""
        named = {key for item in known if not _removing(item) for key in item.objects()}
        wanted = [path for path in paths if self._key(path) not in named][:MISSING_FILES_MAX]
        gone = [path for path in wanted if self._denied(self._key(path))]
        if not gone:
            return []
        needed = (key for item in known if item.live for key in item.objects() if key.startswith(DATA_ROOT))
        if (lost := next((key for key in needed if key not in stored and self._denied(key)), None)) is not None:
            raise BridgeError(
                "corrupt_object",
                f"{lost}: an index names it and the store does not have it; {len(gone)} other files that the table "
                "names are not there either, and stay in it until the store is whole again",
            )
        confirm_gone(self.store, [self._key(path) for path in gone])
        return gone

    def _lost(self, paths: Sequence[str], known: Sequence[KnownSegment]) -> tuple[str, ...]:
        """Those of the paths that live segments need and that are not there."""
        needed = {key for item in known if item.live for key in item.objects()}
        return tuple(path for path in paths if self._key(path) in needed and self._denied(self._key(path)))

    def _denied(self, key: str) -> bool:
        try:
            self.store.size(key)
        except ObjectNotFoundError:
            return True
        return False

    def _mend(
        self, head: Head, gone: Collection[str], known: Sequence[KnownSegment], owner: Owner, *, dry_run: bool
    ) -> Mended:
        self._whose = next((item for item in known if item.live and item.data is not None), None)
        states = self._states(head)
        policy = self.context.policy(owner.topic, self.context.clock_ms())
        files, groups = by_partition(head.files), segments_by_partition(known)
        made = self._planned_files(head, known)
        theirs = foreign_files(head)
        delete: list[str] = []
        replace: list[str] = []
        replacement: list[DataFile] = []
        stay: list[str] = []
        summary: dict[str, str] = {}
        recorded = dict(states)
        for number in sorted({item.partition for item in head.files if item.path in gone}):
            inputs = [item.segment for item in groups[number] if item.segment is not None]
            state = states.get(number, PartState())
            plan = plan_missing(inputs, files[number], gone, state, policy, head.look)
            again = plan.back is not None and concerning(theirs, number)
            if again or (plan.add and rows_deleted(theirs, number)):
                stay += [item.path for item in files[number] if item.path in gone]
                continue
            delete += plan.remove
            replace += plan.replace
            stay += plan.stay
            if plan.back is not None:
                summary[f"{REWIND}{number}"] = str(plan.back)
                back = min(state.frontier, plan.back)
                recorded[number] = dc_replace(state, frontier=back, rewinds=remembered(state.rewinds, back))
            if not dry_run:
                replacement += [file for piece in plan.add for file in made.added(number, piece)]
        if not dry_run and (delete or replace):
            self._as_of_ms = recorded_as_of(head)  # nothing of it makes the table younger
            self._commit(
                head,
                Change(append=(), delete=tuple(delete), replace=tuple(replace), replacement=tuple(replacement)),
                recorded,
                summary,
                midst=recorded,
            )
        self._stay |= frozenset(stay)
        return Mended(len(delete) + len(replace), tuple(stay))


def _removing(known: KnownSegment) -> bool:
    return known.deletion is not None and known.deletion.reclaiming
