"""What the table of one partition must have and may have, from the brokers' logs and Kafka's own acts alone.

It never looks at the plan, at a lineage, at the table's state or at what a plan said of gaps and losses. It is told
what consumers could read, where log starts were, which copies became durable with which batches, and which deletes
Kafka asked for. PUBLISH.md §3 says what follows; every excuse below is one of that section or of its §5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tests.histories.kafka_model import ABORT, MARKERS, PLAIN, TXN, Batch, Broker, Copied, Due

#: How many rows were judged, and how many of them were owed; how many were excused, and why. Over all of a process.
JUDGED: Counter[str] = Counter()


@dataclass(slots=True, eq=False)
class Upload:
    """A durable copy.

    late: its batches that it need not give rows of: below what lay in the store already, in a stretch of which nobody
    had a copy that counts, or aborted by a marker that it has too.
    begins: (epoch, offset) with which its leader's checkpoint begins.
    lost: deleted since its epochs were older than all the leader knew; nobody need have it any more if they win back.
    """

    copied: Copied
    batches: frozenset[Batch]
    late: frozenset[Batch]
    first: Batch
    begins: tuple[int, int]
    withdrawn: bool = False
    deleted: bool = False
    lost: bool = False


@dataclass(slots=True, eq=False)
class RowOracle:
    """Of one partition. `clean`: no election lost anything that consumers had read."""

    clean: bool
    ever: set[Batch] = field(default_factory=set)
    mistaken: set[Batch] = field(default_factory=set)
    written: set[Batch] = field(default_factory=set)
    uploads: dict[int, Upload] = field(default_factory=dict)
    deleted_below: dict[int, int] = field(default_factory=dict)
    for_old_epochs: list[tuple[int, int]] = field(default_factory=list)
    deleted_end: int = 0
    gone_end: int = 0
    disputed_from: int = 1 << 60
    told_from: int = 0
    _seen: int = 0
    _pending: dict[int, list[Batch]] = field(default_factory=dict)

    # What happened

    def readable(self, broker: Broker, end: int) -> None:
        """Consumers can read this leader's log below `end`: notes what read_committed returns."""
        if self.clean:  # below the high watermark all logs are one, so each batch is looked at once
            while self._seen < len(broker.log) and broker.log[self._seen].last < end:
                self._note(broker.log[self._seen], self._pending)
                self._seen += 1
            return
        self.ever |= committed(broker.log)

    def _note(self, batch: Batch, pending: dict[int, list[Batch]]) -> None:
        if batch.kind is TXN:
            pending.setdefault(batch.pid, []).append(batch)
        elif batch.kind is PLAIN:
            self.ever.add(batch)
        elif (done := pending.pop(batch.pid, None)) and batch.kind is not ABORT:
            self.ever.update(done)

    def log_started(self, broker: Broker, start: int) -> None:
        """The leader's log begins at `start` now: for each of its epochs, what lies below is deleted."""
        for batch in broker.log:
            if batch.base >= start:
                break
            below = min(batch.last + 1, start)
            self.deleted_below[batch.epoch] = max(self.deleted_below.get(batch.epoch, 0), below)

    def uploaded(self, copied: Copied, due: Due, broker: Broker) -> None:
        """A copy's index is durable."""
        ended = [batch for batch in due.batches if batch.kind is TXN and due.aborts_in_it(batch)]
        held = frozenset(due.batches)
        before = [item for item in self.uploads.values() if broker.has(item.first)]
        highest = max((item.copied.base for item in before), default=0)
        covered: set[Batch] = set()
        if due.base < highest:
            covered.update(*(item.batches - item.late for item in before if not item.withdrawn))
        late = frozenset(batch for batch in due.batches if batch.base < highest and batch not in covered)
        # What a copy's own transaction index says is aborted, Kafka serves as aborted from it, whatever a leader whose
        # log ends the transaction otherwise has on its disk. Nobody copies these offsets again.
        late |= frozenset(ended)
        self.uploads[copied.name] = Upload(copied, held, late, due.batches[0], due.checkpoint[0])
        self.told_from = max(broker.start, broker.known_from)
        if not self.clean:
            self._dispute(broker)
            self._mistake(broker)

    def _dispute(self, broker: Broker) -> None:
        """The leader that copies lacks something, a marker perhaps: rows from there on may leave for a while."""
        lost = [batch.base for batch in self.written.difference(broker.log)]
        if not lost:
            return
        point = min(lost)
        opened = [first for _, first in broker.open_before(point)]
        self.disputed_from = min([self.disputed_from, point, *opened])

    def _mistake(self, broker: Broker) -> None:
        """The leader that copies tells its log from an offset on, and has others below than were copied once.

        The commit of a producer of its own can be taken for the end of a transaction there: no file of Kafka's tells
        the two apart.
        """
        kept = set(broker.log)
        copied = set().union(*(upload.batches for upload in self.uploads.values()))  # below its log start too
        for upload in self.uploads.values():
            for batch in upload.batches - kept:
                if batch.kind is TXN and batch.base < self.told_from:
                    ends = (item for item in broker.log if item.kind in MARKERS and item.pid == batch.pid)
                    end = next((item for item in ends if item.base >= self.told_from or item in copied), None)
                    if end is not None and end.kind is not ABORT:
                        self.mistaken.add(batch)

    def withdrawn(self, copied: Copied) -> None:
        """Deleted without custom metadata."""
        if copied.name in self.uploads:
            self.uploads[copied.name].withdrawn = True

    def deleted(self, copied: Copied, *, durable: bool = True, retention: bool = True) -> None:
        """Deleted by retention or with a topic, else since its epochs are older than all the leader knows.

        durable: the bridge has heard of it. If not, Kafka asks again, unless another leader thinks otherwise.
        """
        if durable:
            self.gone_end = max(self.gone_end, copied.end + 1)
        self.deleted_end = max(self.deleted_end, copied.end + 1)
        upload = self.uploads.get(copied.name)
        if upload is None:
            return
        upload.deleted = True
        upload.lost = not retention and self._shown_to_lose(copied)
        if upload.lost:
            return
        for batch in upload.batches:
            self.deleted_below[batch.epoch] = max(self.deleted_below.get(batch.epoch, 0), batch.last + 1)
        if not retention:
            # Nothing in the store shows who deleted it; Kafka's own loop takes what is older and lower first.
            self.for_old_epochs.append((copied.epochs[-1][0], copied.end + 1))

    def _shown_to_lose(self, copied: Copied) -> bool:
        """Whether a copy shows that a leader's log had newer epochs at the same offsets: its log start says nothing."""
        newest = copied.epochs[-1][0]
        told = (item.begins for item in self.uploads.values() if not item.withdrawn)
        return any(epoch > newest and start <= copied.end for epoch, start in told)

    # What must hold

    def may_have(self, rows: Iterable[tuple[int, Batch]]) -> None:
        """Of rows that come: read_committed returned each of them once."""
        for offset, batch in rows:
            assert batch.base <= offset <= batch.last, f"offset {offset} with the row of another one"
            self._was_committed(offset, batch)
            assert batch.rows, f"offset {offset} has no row"

    def may_leave(self, rows: Iterable[tuple[int, Batch]], *, keeps: bool, horizon_ms: int | None) -> None:
        """Of rows that go: Kafka deleted them, and the table does not keep them; or a newer leader disputes them."""
        for offset, batch in rows:
            if not self.clean and offset >= self.disputed_from:
                continue
            assert not keeps, f"offset {offset} epoch {batch.epoch} left a table that keeps its rows"
            assert offset < self.deleted_end, f"offset {offset} epoch {batch.epoch} left, and Kafka has not deleted it"
            old = horizon_ms is None or batch.time_ms < horizon_ms
            assert old, f"offset {offset} epoch {batch.epoch} left before its time"

    def judge(
        self, lead: Broker, rows: Mapping[int, Batch], *, keeps: bool, horizon_ms: int | None, archive: bool
    ) -> None:
        """The table after faults have stopped and everything was copied and published.

        Args:
            lead: the leader; all its log is copied.
            rows: of the table, by offset.
            keeps: whether deleted rows stay for ever.
            horizon_ms: deleted rows that are younger stay too; None: they leave.
            archive: no committed row was ever lost by an election, so deleted rows can be told from dead ones.
        """
        now = committed(lead.log)
        live, held = self._held(deleted_too=False), self._held(deleted_too=keeps or horizon_ms is not None)
        decided = decided_by(lead.log, held)
        low = max(lead.start, self.told_from)
        for batch in lead.log:
            if batch not in now or not batch.rows:
                continue
            for offset in range(batch.base, batch.last + 1):
                alive = offset >= low and offset >= self.deleted_below.get(batch.epoch, 0)
                alive &= not any(batch.epoch <= newest and offset < end for newest, end in self.for_old_epochs)
                young = horizon_ms is not None and batch.time_ms >= horizon_ms
                if not alive and not (archive and (keeps or young)):
                    JUDGED["excused: deleted"] += 1
                elif batch not in held:
                    JUDGED["excused: never copied in time"] += 1
                elif batch not in decided:
                    JUDGED["excused: its marker was never copied"] += 1
                else:
                    JUDGED["owed"] += 1
                    assert offset in rows, f"offset {offset} epoch {batch.epoch} is missing"
        for offset, batch in rows.items():
            JUDGED["found"] += 1
            self._was_committed(offset, batch)
            kept = not self.clean and (keeps or horizon_ms is not None)
            if kept and batch.kind is TXN and batch in self.ever and batch not in live:
                # Consumers read it, then retention deleted the only copy, and a leader with another end of the same
                # transaction came back. Nothing that is left could take the place of what else its file keeps.
                JUDGED["excused: deleted as committed"] += batch not in now
            elif offset >= low or archive:
                assert batch in now, f"offset {offset} epoch {batch.epoch} is not committed in the leader's log"

    def _was_committed(self, offset: int, batch: Batch) -> None:
        if batch in self.ever:
            return
        assert batch in self.mistaken, f"offset {offset} epoch {batch.epoch} was never readable as committed"
        JUDGED["excused: ended by another log's marker"] += 1

    def _held(self, *, deleted_too: bool) -> set[Batch]:
        """Batches that a durable copy has that counts, and that came in time."""
        found: set[Batch] = set()
        for upload in self.uploads.values():
            if not upload.withdrawn and not upload.lost and (deleted_too or not upload.deleted):
                found |= upload.batches - upload.late
        return found


def committed(log: Iterable[Batch]) -> set[Batch]:
    """The batches that read_committed returns of a log."""
    found: set[Batch] = set()
    pending: dict[int, list[Batch]] = {}
    for batch in log:
        if batch.kind is PLAIN:
            found.add(batch)
        elif batch.kind is TXN:
            pending.setdefault(batch.pid, []).append(batch)
        elif (done := pending.pop(batch.pid, None)) and batch.kind is not ABORT:
            found.update(done)
    return found


def decided_by(log: Iterable[Batch], held: Collection[Batch]) -> set[Batch]:
    """The batches whose marker, with all that lies between, is in `held`; plain ones always are."""
    found: set[Batch] = set()
    pending: dict[int, list[Batch]] = {}
    for batch in log:
        if batch not in held:
            pending.clear()
        elif batch.kind is PLAIN:
            found.add(batch)
        elif batch.kind is TXN:
            pending.setdefault(batch.pid, []).append(batch)
        elif batch.kind in MARKERS:
            found.update(pending.pop(batch.pid, ()))
    return found
