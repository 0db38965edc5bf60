"""The world of a history: a topic of one to three partitions, two bridges with clocks of their own, and what is done.

A step is (action, numbers, steps during it). Numbers are taken modulo what there is to choose from, so every list of
steps is a history, and so is what is left when some are taken out. `apply` says what became of a step: None if there
was nothing to do, else the faults and kinds to count. Whatever is wrong is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iceberg_catalog.plan.types import SegmentState
from rsm_bridge.config.retention import policy_at
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.metrics.progress.stored import covered_from, gaps_between, rows_below, rows_without_index, unindexed
from rsm_bridge.storage.segments.listing import Notices
from tests.histories.kafka_model import COMMIT, PLAIN
from tests.histories.kafka_steps import BRIDGES, KafkaSteps, Part
from tests.histories.model_store import Faults
from tests.histories.tiered_table import Bridge, Run, TableHead, left_behind, overlaps

Step = tuple[str, tuple[int, ...], tuple[Any, ...]]
HOUR = 3_600_000
DAY = 24 * HOUR
SPANS = (1000, HOUR, DAY + HOUR, 3 * DAY)
CLOCKS = (DAY + HOUR, -DAY - HOUR, 10 * 60_000, -10 * 60_000, 0)

COMMITS = ("", "crash after listing", "crash after files", "conflict", "reply lost", "lands late")
STORE = ("", "not found once", "not found twice", "request fails", "key hidden", "page twice")
PLACES = ("", "between pages", "after the listing", "before the commit")
MODES = ("whole", "look", "notices")
RECREATE = ("", "some deletes never come")


@dataclass(slots=True, eq=False)
class World(KafkaSteps):
    """What a history happens to: what Kafka does, and below what bridges do, time, and endings."""

    late: TableHead | None = None
    landed: TableHead | None = None
    within: list[TableHead | None] = field(default_factory=list)
    horizon_ms: int | None = None
    during: list[Step] = field(default_factory=list)
    place: str = ""
    reclaimed: str = ""
    saw_all: bool = False

    @property
    def keeps(self) -> bool:
        """Whether deleted rows stay for ever."""
        return self.setup.retention == "keep"

    def apply(self, step: Step) -> tuple[str, ...] | None:
        """Does a step; the faults and kinds it had, None if there was nothing to do."""
        name, numbers, during = step
        act: Callable[..., tuple[str, ...] | None] = getattr(self, f"do_{name}")
        if name == "publish":
            return act(*numbers, during=during)
        return act(*numbers)

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
        self.saw_all = found.complete
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
        self.landed = made if landed else None
        self.within = self.topic.list_midst(run.midst(made, deleted=deleted) for deleted in (False, True) if landed)
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

    def do_roll_back(self, deleted: int) -> tuple[str, ...] | None:
        """Somebody rolls the table back to a snapshot within the commit that landed last."""
        head = self.within[deleted % 2] if self.landed is not None and self.topic.head is self.landed else None
        # One that the reclaimer has expired is no longer listed.
        if head is None or not any(item is head for item in self.topic.retained):
            return None
        assert self.topic.swap(head)
        return ("to before what retention removes", "to after what retention removes")[deleted % 2 :][:1]

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
        self.new_topic()
        self.late = None
        return (RECREATE[some],) if some else ()

    def publish_all(self) -> None:
        """Every bridge publishes until it sees all and nothing changes. Nothing fails any more."""
        for _ in range(9):
            at_rest = [self._run(bridge, "whole", "") is None and self.saw_all for bridge in self.bridges]
            if all(at_rest):
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
        self._alarms(number, kafka.lead.start)
        if retention == "follow-kafka" and self.setup.clean:
            self._left()
        lowest = min([part.oracle.deleted_end, *head.rows(number)])  # a file leaves when all of it is deleted
        epochs = len({batch.epoch for batch in kafka.lead.log if batch.last >= lowest})
        least = epochs + 3 if retention == "follow-kafka" and self.setup.clean else self.setup.epochs_recorded
        known = len(head.states[number].lineage)
        assert known <= min(least, self.setup.epochs_recorded), f"the state has {known} epochs, {epochs} are alive"

    def _alarms(self, number: int, log_start: int) -> None:
        """No index was ever lost, and `tierberg status` does not say so."""
        place = self.topic.topic_id, number
        entries = [entry.known for entry in self.topic.store.entries.values()]
        known = [item for item in entries if (item.key.topic_id, item.key.partition) == place]
        head = self.topic.head
        assert not unindexed(known, {number: head.states[number]}, head.as_read().files), "published without an index"
        rows = np.array(sorted(head.rows(number)), dtype=np.int64)
        alone = rows_without_index(rows, head.states[number], known)
        assert not len(alone), f"rows that no index covers: {alone.tolist()}, floor {head.states[number].floor}"
        if any(item.live for item in known):
            begins = covered_from(known, head.states[number].floor)
            assert begins <= log_start, f"nothing is tiered below {begins}, and Kafka's log begins at {log_start}"
            files = [file for file in head.as_read().files if file.partition == number]
            assert not (below := rows_below(known, head.states[number], files)), f"rows below all indexes: {below}"
            # A leader that lost may have deleted what the one that came back never copies again: that gap is real.
            real = 0 if self.setup.clean else self.parts[number].oracle.deleted_end
            gaps = gaps_between(known, head.states[number].floor)
            false = [gap for gap in gaps if not gap.explained and gap.last >= real]
            assert not false, f"gaps {false}"

    def _left(self) -> None:
        """No file stays of which Kafka has deleted everything."""
        left = left_behind(self.topic.head, [part.oracle.gone_end for part in self.parts], self.setup.epochs_recorded)
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
