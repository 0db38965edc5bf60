"""What Kafka does to a topic of one to three partitions: producers, brokers, copies and deletes, each one step.

Each step is told to the oracle of its partition, and what reaches the store to the bridges. Numbers are taken modulo
what there is to choose from; None says that there was nothing to do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from converter.batches.framing import Framer
from converter.errors import SegmentError
from converter.index.model import StoredObject
from converter.types import SegmentMetadata
from iceberg_catalog.plan.types import SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.storage.keys import data_key, index_key, tail_key
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.segments.known import KnownSegment
from tests.histories.batch_headers import header_bytes
from tests.histories.kafka_model import ABORT, COMMIT, PLAIN, TXN, Batch, Copied, Due, Kafka
from tests.histories.model_store import ModelStore, leader_epochs, segment_of
from tests.histories.row_oracle import RowOracle
from tests.histories.tiered_table import EPOCHS_RECORDED, Bridge, Topic

BEGIN_MS = 1_700_000_000_000
BRIDGES = 2

COPY = ("", "crash before the index", "reply lost")
DELETE = ("", "crash before the tombstone", "reply lost")
OVERLAPS = ("same offsets, new id", "superset", "subset", "partial overlap")


@dataclass(frozen=True, slots=True)
class Setup:
    """Of a history. `retention`: as a rule of `topics` says it. `epochs_recorded`: how many a state may have."""

    clean: bool
    retention: str | float
    partitions: int = 1
    epochs_recorded: int = EPOCHS_RECORDED


@dataclass(slots=True, eq=False)
class Part:
    """One partition: Kafka, and the oracle that watches it."""

    kafka: Kafka
    oracle: RowOracle


@dataclass(slots=True, eq=False)
class KafkaSteps:
    """The part of a world that is Kafka's. `inside`: the step happens in the midst of another."""

    setup: Setup
    now_ms: int = BEGIN_MS
    store: ModelStore = field(default_factory=ModelStore)
    bridges: list[Bridge] = field(default_factory=lambda: [Bridge(number) for number in range(BRIDGES)])
    generation: int = 0
    topic: Topic = field(init=False)
    parts: list[Part] = field(init=False)
    inside: bool = False

    def __post_init__(self) -> None:
        self.new_topic()

    def new_topic(self) -> None:
        """The name is used for the first time, or again with a new id."""
        self.generation += 1
        clean = self.setup.clean
        self.topic = Topic(self.store, hashlib.md5(b"%d" % self.generation, usedforsecurity=False).digest())
        self.parts = [Part(Kafka(clean), RowOracle(clean)) for _ in range(self.setup.partitions)]
        for bridge in self.bridges:
            bridge.restart()

    def part(self, number: int) -> Part:
        """A partition."""
        return self.parts[number % len(self.parts)]

    # Producers

    def _write(self, part: Part, count: int, kind: Any, pid: int, *, rows: bool = True, cleaned: bool = False) -> Batch:
        self.now_ms += 1
        kafka, oracle = part.kafka, part.oracle
        batch = kafka.write(count, kind, pid, self.now_ms, rows=rows, cleaned=cleaned)
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

    def do_clean(self, p: int, count: int, alone: int) -> tuple[str, ...]:
        """Offsets whose batch the cleaner has taken; `alone`: in a segment of which nothing else is left."""
        part = self.part(p)
        if alone % 2:
            part.kafka.lead.roll()
        self._write(part, 1 + count % 3, PLAIN, -1, rows=False, cleaned=True)
        if alone % 2:
            part.kafka.lead.roll()
        return ("a whole segment",) if alone % 2 else ()

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
            cluster_name="c",
            topic="t",
            topic_id=self.topic.topic_id,
            partition=number,
            segment_id=name,
            start_offset=copied.base,
            end_offset=copied.end,
            max_timestamp_ms=0,
            broker_id=0,
            event_timestamp_ms=0,
            segment_size_bytes=size,
            leader_epochs=leader_epochs(epochs),
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
        data = header_bytes(due.stored)
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
            due,
            held=held,
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
                key=key,
                listed=ListedObject(str(key), 1, self.now_ms),
                owner=Owner("c", "t", self.topic.topic_id),
                value_format="raw",
                segment=segment,
                data=files[0],
                kept=None,
                deletion=None,
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
        below = copied.end < part.kafka.lead.start
        kind = "below the log start" if below else "epochs unknown to the leader"
        part.oracle.deleted(copied, durable=DELETE[fault % 3] != DELETE[1], retention=below)
        if DELETE[fault % 3] != DELETE[1]:
            self._tombstone(number, copied, SegmentState.DELETED, self.bridges[bridge % BRIDGES])
            copied.gone = DELETE[fault % 3] == ""
        return (kind, *([DELETE[fault % 3]] if fault % 3 else []))
