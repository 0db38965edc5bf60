"""`tierberg undelete`: brings back what Kafka deleted of a topic and what is still in the store.

0. Segments whose objects are lost do not come back (undelete_lost.py): nothing does, unless they are given up. Nor does
   anything where the table's rows would be lost.
1. What is about to be restored is written down: per partition the lowest offset F. A crash later finds it. What earlier
   undeletes had turned, and the table has no rows of, is restored too.
2. Every deletion's tombstone that is not being reclaimed becomes the index it holds again, by compare-and-swap.
3. The rows return through the plan. R5 makes the floor final, so an undelete is a recorded *rewind*, as after an
   unclean election (R3), that takes the floor along: the plan is made on `floor := min(floor, F)` and
   `frontier := min(frontier, F)`. It walks from F over restored and live segments, so the rows above F are written into
   the table anew by the same commit, which says `tierberg.rewind` = F to incremental readers. One swap: no head ever
   shows something in between, and a publisher that is faster only makes us plan again. Who rolls the table back to the
   snapshot in between, which lacks the rows above F, finds the state put back there too: the publisher brings all.

A deletion that Kafka makes later raises the floor again, over everything below it: retention goes on as before.

What does not come back: Kafka's own knowledge. It has forgotten these segments, will not serve them to consumers and
will never delete them. The table has their rows until retention passes them; then, or when somebody takes the undelete
back, we delete them ourselves (undelete_record.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog

from iceberg_catalog import failpoints
from iceberg_catalog.commit.commit import Change
from iceberg_catalog.commit.head import Head
from iceberg_catalog.plan.summary import REWIND
from iceberg_catalog.plan.types import PartState, Plan, SegmentState
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.index_at import directory_under
from rsm_bridge.storage.segments.known import KnownSegment, read_segments
from rsm_bridge.storage.segments.undelete_record import UndeleteRecord
from rsm_bridge.storage.tombstone import is_tombstone, tombstone_at
from rsm_bridge.tables.context import TableContext
from rsm_bridge.tables.maintain.beside_engines import refuse_beside_engines, refuse_table_beside_engines
from rsm_bridge.tables.maintain.undelete_away import (
    covered,
    leaving,
    refuse_loss,
    seen_before,
    turned_before,
    would_lose,
)
from rsm_bridge.tables.maintain.undelete_lost import Lost, give_up, lost_of, refusal
from rsm_bridge.tables.publish.table_run import RunResult, TableRun


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back: segments whose rows were away, rows of their data files, and by partition from which offset on.

    That offset is above what was asked for where a segment further up is being reclaimed: the floor stays over it.
    lost: what did not, or not whole.
    """

    segments: int
    rows: int
    lowest: Mapping[int, int]
    lost: Sequence[Lost] = ()


def undelete(
    store: ObjectStore,
    catalog: Catalog,
    topic_id: bytes,
    context: TableContext,
    *,
    without_lost: bool = False,
) -> Restored:
    """Restores everything of one topic id that can be.

    `context`: the rules of all tables; `without_lost`: give up segments whose data files are lost.

    Raises:
        BridgeError: `not_found` when nothing can be brought back; `corrupt_object` when objects of deleted segments are
            lost; `bad_request` when the table has rows that no segment has any more (`keep`), which a rewind would
            lose, or holds what others did (beside_engines.py); `store_unavailable`.
        RetryRunError: the indexes are back, the commit did not land in RUNS_TO_LAND_MAX tries: run it again.
        CatalogError, SegmentError: and what else catalog and storage raise: run it again.
    """
    segments = read_segments(store, topic_id)
    deleted = [known for known in segments if _restorable(known)]
    lost = lost_of(store, topic_id, [known for known in deleted if not leaving(known)])
    if lost and not without_lost:
        raise refusal(lost)
    hopeless = {item.known.listed.key: item.known for item in lost if not item.has_rows}
    deleted = [known for known in deleted if known.listed.key not in hopeless]
    record = UndeleteRecord(store, topic_id)
    seen = seen_before(store, catalog, segments, context)
    before = record.read()
    wanted = [*deleted, *turned_before(segments, before, seen)]
    refuse_table_beside_engines(catalog, wanted, context)
    refuse_loss(segments, deleted, before.widened(_lowest(wanted)).lowest, seen)
    lowest = record.widen(_lowest(wanted), frozenset(known.listed.key for known in deleted)).lowest
    if not lowest:
        raise BridgeError("not_found", "no deleted segment of this topic is left in the store")
    failpoints.hit("undelete-recorded", topic_id.hex())
    for known in hopeless.values():
        give_up(store, known)
    turned = frozenset(known.listed.key for known in deleted if turn_back(store, known.listed.key))
    record.widen(lowest, turned)  # again, should somebody have taken this undelete back meanwhile
    failpoints.hit("undelete-turned", topic_id.hex())
    run = RestoringRun(store=store, catalog=catalog, topic_id=topic_id, context=context)
    landed = run.restore(lowest)
    failpoints.hit("undelete-committed", topic_id.hex())
    record.finish(run.floors, turned)
    reached = {number: max(at, landed.states.get(number, PartState()).floor) for number, at in lowest.items()}
    # Not what lies below that, nor what somebody has deleted again meanwhile.
    above = (known for known in landed.segments if known.key.last >= reached.get(known.key.partition, 0))
    live = {known.listed.key for known in above if known.live}
    back = [known for known in wanted if known.listed.key in live and (known.live or known.listed.key in turned)]
    return Restored(len(back), sum(known.rows for known in back), reached, lost)


def turn_back(store: ObjectStore, key: str) -> bool:
    """Makes a deletion's tombstone an index again; False when there is none, or it is being reclaimed.

    Raises:
        BridgeError, SegmentError: tombstone or index is damaged, or the store is away.
    """
    try:
        current = store.read(key)
    except ObjectNotFoundError:
        confirm_gone(store, [key])
        return False
    if not is_tombstone(current.data):
        return False
    stone = tombstone_at(key, current.data)
    if stone.kind != "deleted" or stone.reclaiming or not stone.index:
        return False
    directory_under(key, stone.index)
    failpoints.hit("undelete-turn", key)
    return store.replace(key, stone.index, current.version)


def _restorable(known: KnownSegment) -> bool:
    deletion = known.deletion
    return deletion is not None and deletion.kind is SegmentState.DELETED and known.segment is not None


def _lowest(segments: Iterable[KnownSegment]) -> dict[int, int]:
    lowest: dict[int, int] = {}
    for known in segments:
        lowest[known.key.partition] = min(lowest.get(known.key.partition, known.key.base), known.key.base)
    return lowest


class RestoringRun(TableRun):
    """A publisher run on a state that is put back to the lowest restored offset of each partition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.whole = self.by_command = True
        self._lowest: Mapping[int, int] = {}
        self.floors: Mapping[int, int] = {}  # of the head that the latest try began with, where it was put back

    def restore(self, lowest: Mapping[int, int]) -> RunResult:
        """Runs until the commit has landed.

        Raises:
            RetryRunError: it did not in RUNS_TO_LAND_MAX tries.
            BridgeError: `bad_request` when rows of the table would be lost, or come beside what others did.
        """
        self._lowest = lowest
        return self.until_landed(self.run, "the rows are not back yet")

    def _states(self, head: Head) -> dict[int, PartState]:
        states = super()._states(head)
        self.floors = {partition: states[partition].floor for partition in self._lowest if partition in states}
        return {partition: put_back(state, self._lowest.get(partition)) for partition, state in states.items()}

    def _apply(
        self,
        head: Head,
        states: Mapping[int, PartState],
        segments: Sequence[KnownSegment],
        plans: Mapping[int, Plan],
    ) -> RunResult:
        refuse_beside_engines(head, self._lowest)
        files = {item.path: item for item in head.files}
        for partition, offset in self._lowest.items():
            live = [known for known in segments if known.live and known.key.partition == partition]
            for path in plans[partition].replace if partition in plans else ():
                item = files[path]
                if not covered(item.first, item.last, live):
                    raise would_lose(item, offset)
        return super()._apply(head, states, segments, plans)

    def _commit(
        self,
        head: Head,
        change: Change,
        states: Mapping[int, PartState],
        summary: Mapping[str, str],
        midst: Mapping[int, PartState] | None = None,
    ) -> Head:
        back = {f"{REWIND}{partition}": str(offset) for partition, offset in self._lowest.items()}
        return super()._commit(head, change, states, {**back, **summary}, midst)


def put_back(state: PartState, lowest: int | None) -> PartState:
    """The state an undelete is planned on."""
    if lowest is None:
        return state
    return replace(state, frontier=min(state.frontier, lowest), floor=min(state.floor, lowest))
