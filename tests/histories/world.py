"""The world of a history: a topic of one to three partitions, two bridges with clocks of their own, and what is done.

A step is (action, numbers, steps during it). Numbers are taken modulo what there is to choose from, so every list of
steps is a history, and so is what is left when some are taken out. `apply` says what became of a step: None if there
was nothing to do, else the faults and kinds to count. Whatever is wrong is an AssertionError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from converter.errors import SegmentError
from converter.framing import Framer
from converter.index_model import StoredObject
from converter.types import SegmentMetadata
from iceberg_catalog.names import Owner
from iceberg_catalog.plan_types import SegmentState
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.known_segments import KnownSegment
from rsm_bridge.layout import data_key, index_key, tail_key
from rsm_bridge.retention import policy_at
from rsm_bridge.segment_listing import Notices
from rsm_bridge.store import ListedObject
from tests.histories.batch_headers import header_bytes
from tests.histories.kafka_model import ABORT, COMMIT, PLAIN, TXN, Batch, Copied, Due, Kafka
from tests.histories.model_store import Faults, ModelStore, leader_epochs, segment_of
from tests.histories.row_oracle import RowOracle
from tests.histories.tiered_table import EPOCHS_RECORDED, Bridge, Run, TableHead, Topic, left_behind, overlaps

Step = tuple[str, tuple[int, ...], tuple[Any, ...]]
HOUR = 3_600_000
DAY = 24 * HOUR
BEGIN_MS = 1_700_000_000_000
SPANS = (1000, HOUR, DAY + HOUR, 3 * DAY)
CLOCKS = (DAY + HOUR, -DAY - HOUR, 10 * 60_000, -10 * 60_000, 0)
BRIDGES = 2
KEPT_SECONDS = 2 * 24 * 3600.0

COPY = ("", "crash before the index", "reply lost")
DELETE = ("", "crash before the tombstone", "reply lost")
COMMITS = ("", "crash after listing", "crash after files", "conflict", "reply lost", "lands late")
STORE = ("", "not found once", "not found twice", "request fails", "key hidden", "page twice")
PLACES = ("", "between pages", "after the listing", "before the commit")
MODES = ("whole", "look", "notices")
RECREATE = ("", "some deletes never come")
OVERLAPS = ("same offsets, new id", "superset", "subset", "partial overlap")


@dataclass(frozen=True, slots=True)
class Setup:
    """Of a history. `retention`: as a rule of `topics` says it."""

    clean: bool
    retention: str | float
    partitions: int = 1


@dataclass(slots=True, eq=False)
class Part:
    """One partition: Kafka, and the oracle that watches it."""

    kafka: Kafka
    oracle: RowOracle


@dataclass(slots=True, eq=False)
class World:
    """What a history happens to."""

    setup: Setup
    now_ms: int = BEGIN_MS
    store: ModelStore = field(default_factory=ModelStore)
    bridges: list[Bridge] = field(default_factory=lambda: [Bridge(number) for number in range(BRIDGES)])
    generation: int = 0
    topic: Topic = field(init=False)
    parts: list[Part] = field(init=False)
    late: TableHead | None = None
    horizon_ms: int | None = None
    during: list[Step] = field(default_factory=list)
    place: str = ""
    inside: bool = False
    reclaimed: str = ""

    def __post_init__(self) -> None:
        self._new_topic()

    def _new_topic(self) -> None:
        self.generation += 1
        clean = self.setup.clean
        self.topic = Topic(self.store, hashlib.md5(b"%d" % self.generation, usedforsecurity=False).digest())
        self.parts = [Part(Kafka(clean), RowOracle(clean)) for _ in range(self.setup.partitions)]
        self.late = None
        for bridge in self.bridges:
            bridge.restart()

    @property
    def keeps(self) -> bool:
        """Whether deleted rows stay for ever."""
        return self.setup.retention == "keep"

    def part(self, number: int) -> Part:
        """A partition."""
        return self.parts[number % len(self.parts)]

    def apply(self, step: Step) -> tuple[str, ...] | None:
        """Does a step; the faults and kinds it had, None if there was nothing to do."""
        name, numbers, during = step
        act: Callable[..., tuple[str, ...] | None] = getattr(self, f"do_{name}")
        if name == "publish":
            return act(*numbers, during=during)
        return act(*numbers)

    # Producers

    def _write(self, part: Part, count: int, kind: Any, pid: int, *, rows: bool = True) -> Batch:
        self.now_ms += 1
        kafka, oracle = part.kafka, part.oracle
        batch = kafka.write(count, kind, pid, self.now_ms, rows=rows)
        if not kafka.clean:
            oracle.written.add(batch)
            if kind is PLAIN:
                oracle.ever.add(batch)
            elif kind is COMMIT:
                oracle.readable(kafka.lead, kafka.lead.end)
        return batch

    def do_write(self, p: int, count: int, rows: int) -> tuple[str, ...]:
        """A batch; `rows` 0: none of its records can be a row."""
        self._write(self.part(p), 1 + count % 3, PLAIN, -1, rows=bool(rows % 8))
        return () if rows % 8 else ("without rows",)

    def do_transaction(self, p: int, count: int, pid: int) -> tuple[str, ...]:
        """A batch of a transaction."""
        self._write(self.part(p), 1 + count % 3, TXN, 1 + pid % 2)
        return ()

    def do_end(self, p: int, pid: int, commit: int) -> tuple[str, ...]:
        """A marker, of a transaction or of none."""
        part = self.part(p)
        pid, kind = 1 + pid % 2, COMMIT if commit % 3 else ABORT
        first = dict(part.kafka.lead.open_before(part.kafka.lead.end)).get(pid)
        spans = first is not None and any(first < cut for cut in part.kafka.lead.cuts)
        self._write(part, 1, kind, pid)
        return (kind.name.lower() if first is not None else "of no transaction", *(("spans segments",) * spans))

    def do_roll(self, p: int, broker: int) -> tuple[str, ...]:
        """A broker's active segment is closed; 0: the leader's."""
        kafka = self.part(p).kafka
        (kafka.lead if broker == 0 else kafka.brokers[broker % 3]).roll()
        return ()

    # Brokers

    def do_replicate(self, p: int, broker: int, align: int) -> tuple[str, ...] | None:
        """A follower catches up; `align`: its segments end where the leader's do."""
        part = self.part(p)
        kafka, number = part.kafka, broker % 3
        if number == kafka.leader:
            return None
        dropped = kafka.replicate(number)
        if align % 2:
            for cut in kafka.lead.cuts:
                kafka.split(number, cut)
        self._readable(part)
        return ("with truncation",) if dropped else ()

    def _readable(self, part: Part) -> None:
        if part.kafka.clean:
            part.oracle.readable(part.kafka.lead, part.kafka.high_watermark)

    def do_elect(self, p: int, broker: int) -> tuple[str, ...] | None:
        """Another leader."""
        kafka, number = self.part(p).kafka, broker % 3
        if not kafka.can_lead(number):
            return None
        before = kafka.lead
        truncates = kafka.common(kafka.brokers[number], before) < len(before.log)
        kafka.elect(number)
        return ("with truncation" if truncates else "without truncation",)

    def do_restarts(self, p: int, count: int, writes: int) -> tuple[str, ...]:
        """The leader's broker restarts again and again and is elected each time: an epoch each."""
        part = self.part(p)
        times = (1, 1, 2, 3, 9, 14, 20, 60)[count % 8]
        for _ in range(times):
            part.kafka.elect(part.kafka.leader)
            if writes % 4:
                self._write(part, 1, PLAIN, -1)
        return ("over 8",) if times > 8 else ()

    def do_rebuild(self, p: int, broker: int, edge: int, failed: int) -> tuple[str, ...] | None:
        """A follower takes its state from the tier."""
        part = self.part(p)
        if not part.kafka.rebuild(broker % 3, edge, failed=bool(failed % 2)):
            return None
        self._readable(part)
        return ("history lost",) if failed % 2 else ()

    def do_delete_records(self, p: int, count: int) -> tuple[str, ...] | None:
        """The log start rises, copied or not."""
        part = self.part(p)
        if not part.kafka.delete_records(1 + count % 12):
            return None
        part.oracle.log_started(part.kafka.lead, part.kafka.lead.start)
        inside = part.kafka.lead.start not in part.kafka.lead.cuts
        return ("inside a segment",) if inside else ()

    def do_retain(self, p: int, count: int) -> tuple[str, ...] | None:
        """Retention raises the log start over copied segments."""
        part = self.part(p)
        before = part.kafka.lead.start
        start = part.kafka.retain(1 + count % 3)
        if start == before:
            return None
        part.oracle.log_started(part.kafka.lead, start)
        return ()

    # Copies and deletes

    def metadata(
        self, number: int, copied: Copied, epochs: tuple[tuple[int, int], ...], size: int = 0
    ) -> SegmentMetadata:
        """What the broker says of a segment."""
        name = hashlib.md5(b"%d/%d/%d" % (self.generation, number, copied.name), usedforsecurity=False).digest()
        return SegmentMetadata(
            "c", "t", self.topic.topic_id, number, name, copied.base, copied.end, 0, 0, 0, size, leader_epochs(epochs)
        )

    def do_copy(self, p: int, bridge: int, fault: int, peek: int) -> tuple[str, ...] | None:
        """The leader copies what is due."""
        number = p % len(self.parts)
        part = self.parts[number]
        due = part.kafka.due()
        if due is None:
            return None
        copied = part.kafka.begin_copy(due)
        if not self._accepted(self.metadata(number, copied, due.metadata_epochs), due):
            copied.gone = True
            return ("refused",)
        kinds = self._kinds(part, copied)
        word = COPY[fault % 3]
        kinds += [word] * bool(word)
        if due.checkpoint[0][1] > due.base:
            kinds.append("checkpoint begins above the base")
        if len(due.metadata_epochs) > 8:
            kinds.append("over 8 epochs")
        held = self._store_copy(number, copied, due, peek % 2, self.bridges[bridge % BRIDGES], index=fault % 3 != 1)
        if fault % 3 != 1:
            part.oracle.uploaded(copied, due, part.kafka.lead)
        copied.finished = fault % 3 == 0
        kinds += ["peeked"] * bool(peek % 2 and due.later) + ["no rows"] * (not held)
        return tuple(kinds)

    def _accepted(self, metadata: SegmentMetadata, due: Due) -> bool:
        """Whether the bridge takes it; the framer looks at batch headers, which matter only at odds with the epochs."""
        if metadata.leader_epochs and metadata.leader_epochs[0].start_offset <= due.base:
            return True
        data = header_bytes(due.batches)
        framer = Framer(replace(metadata, segment_size_bytes=len(data)), 1 << 16)
        framer.append(data)
        try:
            while framer.take(last=True) is not None:
                pass
            framer.close()
        except SegmentError:
            return False
        return True

    def _kinds(self, part: Part, made: Copied) -> list[str]:
        """How a copy lies to those of other ids that are not deleted."""
        found: set[str] = set()
        for other in part.kafka.copies.values():
            if other is made or not other.stored or other.gone or made.end < other.base or other.end < made.base:
                continue
            if (made.base, made.end) == (other.base, other.end):
                found.add("same offsets, new id")
            elif made.base <= other.base and made.end >= other.end:
                found.add("superset")
            elif made.base >= other.base and made.end <= other.end:
                found.add("subset")
            else:
                found.add("partial overlap")
        return sorted(found)

    def _store_copy(self, number: int, copied: Copied, due: Due, peek: int, bridge: Bridge, *, index: bool) -> int:
        """Data files, and an index that names them; how many rows they have."""
        metadata = self.metadata(number, copied, due.metadata_epochs)
        held = [batch for batch in due.batches if batch.rows and batch.kind in (PLAIN, TXN)]
        held = [batch for batch in held if not due.aborts_in_it(batch)]
        key = index_key(metadata)
        segment, main, tail = segment_of(
            str(key),
            list(due.batches),
            held=held,
            checkpoint=due.checkpoint,
            open_end=due.open_end,
            aborts=due.aborts,
            peeked=due.later if peek else (),
        )
        files: list[StoredObject | None] = []
        for rows, name in ((main, data_key), (tail, tail_key)):
            path = name(metadata, metadata.segment_id)
            files.append(StoredObject(path, 1, 0) if rows else None)
            if rows:
                self.store.put_file(path, number, rows, leader_epochs(segment.runs))
        if index:
            known = KnownSegment(
                key,
                ListedObject(str(key), 1, self.now_ms),
                Owner("c", "t", self.topic.topic_id),
                "raw",
                segment,
                files[0],
                None,
                None,
                tail=files[1],
            )
            assert self.store.put_index(known, self.now_ms)
            copied.stored = True
            bridge.noticed.add(key)
        return len(main) + len(tail)

    def _tombstone(self, number: int, copied: Copied, kind: SegmentState, bridge: Bridge) -> None:
        key = index_key(self.metadata(number, copied, ()))
        self.store.put_tombstone(key, kind, self.now_ms + bridge.offset_ms)
        bridge.noticed.add(key)

    def do_withdraw(self, p: int, item: int, bridge: int) -> tuple[str, ...] | None:
        """Kafka deletes a copy it got no reply of."""
        number = p % len(self.parts)
        part = self.parts[number]
        found = part.kafka.withdrawable()
        if not found:
            return None
        copied = found[item % len(found)]
        self._tombstone(number, copied, SegmentState.WITHDRAWN, self.bridges[bridge % BRIDGES])
        copied.gone = True
        part.oracle.withdrawn(copied)
        return ("after the index",) if copied.stored else ("before the index",)

    def do_delete(self, p: int, item: int, bridge: int, fault: int) -> tuple[str, ...] | None:
        """Kafka deletes a segment it does not keep any more, in any order, until it has succeeded."""
        number = p % len(self.parts)
        part = self.parts[number]
        found = part.kafka.deletable()
        if not found:
            return None
        copied = found[item % len(found)]
        kind = "below the log start" if copied.end < part.kafka.lead.start else "epochs unknown to the leader"
        part.oracle.deleted(copied, durable=DELETE[fault % 3] != DELETE[1])
        if DELETE[fault % 3] != DELETE[1]:
            self._tombstone(number, copied, SegmentState.DELETED, self.bridges[bridge % BRIDGES])
            copied.gone = DELETE[fault % 3] == ""
        return (kind, *([DELETE[fault % 3]] if fault % 3 else []))

    # Time and processes

    def do_time(self, span: int) -> tuple[str, ...]:
        """Time passes."""
        self.now_ms += SPANS[span % len(SPANS)]
        return ("over a day",) if SPANS[span % len(SPANS)] > DAY else ()

    def do_clock(self, bridge: int, jump: int) -> tuple[str, ...]:
        """A bridge's clock jumps."""
        self.bridges[bridge % BRIDGES].offset_ms = CLOCKS[jump % len(CLOCKS)]
        return ("a day",) if abs(CLOCKS[jump % len(CLOCKS)]) > DAY else ()

    def do_restart(self, bridge: int) -> tuple[str, ...]:
        """A bridge starts anew."""
        self.bridges[bridge % BRIDGES].restart()
        return ()

    # Publishers

    def do_publish(
        self,
        bridge: int,
        mode: int,
        commit: int,
        store: int,
        where: int,
        place: int,
        reclaim: int = 0,
        *,
        during: Sequence[Step] = (),
    ) -> tuple[str, ...] | None:
        """A run of a bridge. `store`: what the store does wrong, at request number `where`; `during`, at `place`."""
        if self.inside:
            return None
        one = self.bridges[bridge % BRIDGES]
        word = STORE[store % len(STORE)]
        if word == STORE[4]:
            mode = 0  # what is believed at once is a listing that began after all below had been seen to be stored
        self.store.faults = faults_of(word, where)
        self.during, self.place = list(during), PLACES[1:][place % 3]
        self.store.between = lambda: self._happens(PLACES[1])
        happened = len(self.during)
        try:
            done = self._run(one, MODES[mode % 3], COMMITS[commit % len(COMMITS)], reclaim)
        except BridgeError as error:
            stale = happened > len(self.during) and isinstance(error, ObjectNotFoundError)
            done = ["fails"] if stale or self.store.faults.hit else self._stuck(error)
        finally:
            hit, self.store.faults, self.store.between = self.store.faults.hit, Faults(), None
        kinds = [*(done or ()), *([word] if hit else []), *([self.place] if happened > len(self.during) else [])]
        kinds += [self.reclaimed] if self.reclaimed else []
        self.during, self.reclaimed = [], ""
        return tuple(kinds) if done is not None else (("idle", *kinds) if kinds else None)

    def _stuck(self, error: BridgeError) -> list[str]:
        """The run fails, and nothing that was asked for explains it. Whether for good, `settle` sees."""
        return [f"stuck: {error.kind}"]

    def _happens(self, place: str) -> None:
        """What happens meanwhile, a step each time."""
        if self.during and self.place == place and not self.inside:
            self.inside = True
            faults, self.store.faults = self.store.faults, Faults()
            self.apply(self.during.pop(0))
            self.inside, self.store.faults = False, faults

    def _run(self, bridge: Bridge, mode: str, fault: str, reclaim: int = 0) -> list[str] | None:
        now_ms = self.now_ms + bridge.offset_ms
        policy = policy_at(self.setup.retention, now_ms)
        horizon_ms = None if isinstance(self.setup.retention, str) else now_ms - int(self.setup.retention * 1000)
        run = Run(self.topic, bridge, policy, now_ms, horizon_ms)
        notices = Notices(frozenset(bridge.noticed), look=mode == "look", whole=mode == "whole")
        found = run.planning.plan(notices, lambda: self._happens(PLACES[2]))
        complete = "from all" if found.complete else "from the frontier"
        if not run.changes(found):
            bridge.noticed -= notices.keys
            self._reclaim(run, run.head, reclaim, now_ms)
            return None
        if fault == COMMITS[1]:
            return [fault]
        made = run.prepare()
        if fault == COMMITS[2]:
            return [fault]
        if fault == COMMITS[5]:
            self.late = made
            return [fault]
        if fault == COMMITS[3]:
            self.topic.touch(now_ms)
        self._happens(PLACES[3])
        landed = self._land(made)
        if fault != COMMITS[4] and landed:
            bridge.noticed -= notices.keys
            self._reclaim(run, made, reclaim, now_ms)
        rewinds = any(item.rewind is not None for item in found.plans.values())
        return [
            complete,
            *([fault] if fault else []),
            *(["rewind"] if rewinds else []),
            *([] if landed else ["refused"]),
        ]

    def _reclaim(self, run: Run, head: TableHead, wanted: int, now_ms: int) -> None:
        if wanted % 3 == 0 or run.found is None or not run.found.complete:
            return
        faults, files = self.store.faults, len(self.store.removed)
        self.store.faults = Faults(failing=wanted % 2 if wanted % 3 == 2 else -1)
        try:
            removed = run.reclaim(run.result(head), now_ms)
        except BridgeError:
            removed = len(self.store.removed) - files
            self.reclaimed = "crash in a reclaim" if removed else self.reclaimed
        else:
            self.reclaimed = "reclaimed" if removed else self.reclaimed
        self.store.faults = faults
        self.check_objects()

    def _land(self, made: TableHead) -> bool:
        """The swap, and what must hold of it."""
        before = self.topic.head
        if not self.topic.swap(made):
            return False
        if made.horizon_ms is not None:
            self.horizon_ms = max(made.horizon_ms, self.horizon_ms or made.horizon_ms)
        for number, part in enumerate(self.parts):
            came = [made.files[path] for path in made.files.keys() - before.files.keys()]
            went = [before.files[path] for path in before.files.keys() - made.files.keys()]
            new = {offset: row for file in came if file.partition == number for offset, row in file.rows.items()}
            old = {offset: row for file in went if file.partition == number for offset, row in file.rows.items()}
            part.oracle.may_have(item for item in new.items() if old.get(item[0]) is not item[1])
            left = [item for item in old.items() if new.get(item[0]) is not item[1]]
            part.oracle.may_leave(left, keeps=self.keeps, horizon_ms=made.horizon_ms)
        shared = overlaps(made)
        assert not shared, f"files overlap: {shared}"
        return True

    def do_late_landing(self) -> tuple[str, ...] | None:
        """A commit whose reply was lost arrives after all."""
        made, self.late = self.late, None
        if made is None:
            return None
        return ("lands",) if self._land(made) else ("refused",)

    # Endings

    def do_recreate(self, fault: int) -> tuple[str, ...] | None:
        """The topic is deleted, and its name used again with a new id."""
        if not any(part.kafka.known() for part in self.parts) or self.inside:
            return None
        some = fault % 2
        for number, part in enumerate(self.parts):
            items = [*part.kafka.known(), *part.kafka.withdrawable()]
            for copied in items[: len(items) // 2] if some else items:
                kind = SegmentState.DELETED if copied.finished else SegmentState.WITHDRAWN
                (part.oracle.deleted if copied.finished else part.oracle.withdrawn)(copied)
                self._tombstone(number, copied, kind, self.bridges[number % BRIDGES])
                copied.gone = True
        self.publish_all()
        self.now_ms += 3 * DAY
        self.publish_all()
        if self.setup.retention == "follow-kafka" and self.setup.clean:
            self._left()
        self.check_objects()
        self._new_topic()
        return (RECREATE[some],) if some else ()

    def publish_all(self) -> None:
        """Every bridge publishes until nothing changes. Nothing fails any more."""
        for _ in range(6):
            if [self._run(bridge, "whole", "") for bridge in self.bridges] == [None] * BRIDGES:
                return
        raise AssertionError("publishing does not come to rest")

    def do_settle(self) -> tuple[str, ...] | None:
        """Faults stop; all is copied and published, and the table is judged."""
        if self.inside:
            return None
        if self.late is not None:
            self.do_late_landing()
        for number, part in enumerate(self.parts):
            self._finish(number, part)
        self.publish_all()
        self.check_objects()
        for number, part in enumerate(self.parts):
            self._judge(number, part)
        return ()

    def _finish(self, number: int, part: Part) -> None:
        kafka = part.kafka
        for pid, _ in kafka.lead.open_before(kafka.lead.end):
            self._write(part, 1, COMMIT, pid)
        self._write(part, 1, PLAIN, -1)
        for broker in range(3):
            self.do_replicate(number, broker, 0)
        kafka.lead.roll()
        while kafka.due() is not None:
            done = self.do_copy(number, 0, 0, 0)
            assert done != ("refused",), "Kafka's copy is refused for ever"
        kafka.deletable()
        while self.do_delete(number, 0, 0, 0) is not None:
            pass

    def _judge(self, number: int, part: Part) -> None:
        head, kafka = self.topic.head, part.kafka
        retention = self.setup.retention
        part.oracle.judge(
            kafka.lead,
            head.rows(number),
            keeps=self.keeps,
            horizon_ms=None if isinstance(retention, str) else self.horizon_ms,
            archive=self.setup.clean or not kafka.dropped,
        )
        if retention == "follow-kafka" and self.setup.clean:
            self._left()
        lowest = min([part.oracle.deleted_end, *head.rows(number)])  # a file leaves when all of it is deleted
        epochs = len({batch.epoch for batch in kafka.lead.log if batch.last >= lowest})
        least = epochs + 3 if retention == "follow-kafka" and self.setup.clean else EPOCHS_RECORDED
        known = len(head.states[number].lineage)
        assert known <= min(least, EPOCHS_RECORDED), f"the state has {known} epochs, {epochs} are alive"

    def _left(self) -> None:
        """No file stays of which Kafka has deleted everything."""
        left = left_behind(self.topic.head, [part.oracle.gone_end for part in self.parts])
        assert not left, f"{left[0]} is deleted and stays"

    def check_objects(self) -> None:
        """Nothing that a kept snapshot or a live index needs is gone."""
        needed = {file.key for head in self.topic.retained for file in head.files.values()}
        for entry in self.store.entries.values():
            if entry.known.deletion is None:
                needed |= set(entry.known.objects())
        gone = sorted(needed - self.store.files.keys())
        assert not gone, f"needed, and gone from the store: {gone}"


def faults_of(word: str, where: int) -> Faults:
    """What the store does wrong in a run."""
    if word == STORE[3]:
        return Faults(failing=where % 12)
    if word in STORE[1:3]:
        return Faults(denied=1 + (word == STORE[2]), skip=where % 6)
    return Faults(hidden=where % 6 if word == STORE[4] else -1, twice=word == STORE[5])
