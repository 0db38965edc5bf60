"""What Kafka does to one partition: brokers' logs, leaders, what a leader copies, and which deletes it asks for.

A broker's log is kept from offset 0 on, whatever its log start, so that an oracle can look back. Replicas share batch
objects: two logs hold the same batch exactly if they hold the same object.

* `start`: the log start. `local_start`: the first offset that lies on the broker's own disk.
* `known_from`: the first offset that its leader-epoch cache tells of. That is the log start, unless a rebuild from the
  tier failed and the broker was restarted: then its cache begins at its local log.
* Copies are chosen as RemoteLogManager does (4.3.1): the closed local segment after the highest offset that was copied
  in the newest epoch which both its cache and the remote log know, and only below the last stable offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from iceberg_catalog.plan.types import BatchKind

Epochs = tuple[tuple[int, int], ...]
TXN, PLAIN, COMMIT, ABORT = BatchKind.TXN, BatchKind.PLAIN, BatchKind.COMMIT, BatchKind.ABORT
MARKERS = (COMMIT, ABORT)


@dataclass(slots=True, eq=False)
class Batch:
    """One batch of a log, the same object on every replica.

    rows: it has records that can become rows. cleaned: Kafka's cleaner has taken it: of it there are offsets alone.
    """

    base: int
    last: int
    epoch: int
    pid: int
    kind: BatchKind
    rows: bool
    time_ms: int
    cleaned: bool = False


@dataclass(slots=True, eq=False)
class Broker:
    """One replica. `cuts`: bases of its segments, ascending; the last one's is the active segment's."""

    log: list[Batch] = field(default_factory=list)
    cuts: list[int] = field(default_factory=lambda: [0])
    start: int = 0
    local_start: int = 0
    known_from: int = 0

    @property
    def end(self) -> int:
        """The next offset."""
        return self.log[-1].last + 1 if self.log else 0

    def place(self, offset: int) -> int:
        """The number of the first batch that begins at `offset` or above."""
        return bisect_left(self.log, offset, key=lambda batch: batch.base)

    def has(self, batch: Batch) -> bool:
        """Whether this very batch is in the log."""
        number = self.place(batch.base)
        return number < len(self.log) and self.log[number] is batch

    def truncate(self, count: int) -> None:
        """Keeps the first `count` batches. A truncation below the log start lowers it (UnifiedLog)."""
        del self.log[count:]
        end = self.end
        self.cuts = [cut for cut in self.cuts if cut <= end] or [end]
        self.start, self.local_start = min(self.start, end), min(self.local_start, end)
        self.known_from = min(self.known_from, end)

    def roll(self) -> None:
        """The active segment is closed."""
        if self.cuts[-1] != self.end:
            self.cuts.append(self.end)

    def closed(self) -> list[tuple[int, int]]:
        """[base, end) of its closed segments that reach above the log start."""
        return [(a, b) for a, b in pairwise(self.cuts) if b > self.start and a >= self.local_start]

    def open_before(self, end: int) -> tuple[tuple[int, int], ...]:
        """What the producer snapshot at `end` lists: (producer, first offset) of the open transactions."""
        opened: dict[int, int] = {}
        for batch in self.log:
            if batch.base >= end:
                break
            if batch.kind is TXN:
                opened.setdefault(batch.pid, batch.base)
            elif batch.kind is not PLAIN:
                opened.pop(batch.pid, None)
        return tuple(sorted(opened.items()))

    def aborts(self) -> list[tuple[int, int, int]]:
        """Its transaction index: (producer, first offset, marker's offset) of each aborted transaction."""
        opened: dict[int, int] = {}
        found: list[tuple[int, int, int]] = []
        for batch in self.log:
            if batch.kind is TXN:
                opened.setdefault(batch.pid, batch.base)
            elif batch.kind is not PLAIN:
                first = opened.pop(batch.pid, None)
                if first is not None and batch.kind is ABORT:
                    found.append((batch.pid, first, batch.base))
        return found

    def cache(self) -> Epochs:
        """Its leader-epoch checkpoint: (epoch, first offset), cut at the log start, or where its cache begins."""
        cut = max(self.start, self.known_from)
        found: list[tuple[int, int]] = []
        for batch in self.log[max(bisect_right(self.log, cut, key=lambda batch: batch.base) - 1, 0) :]:
            if batch.last >= cut and (not found or found[-1][0] != batch.epoch):
                found.append((batch.epoch, max(batch.base, cut)))
        return tuple(found)


@dataclass(slots=True, eq=False)
class Copied:
    """One segment id that Kafka knows. `finished`: it got the reply. `gone`: it asked for the delete."""

    name: int
    base: int
    end: int
    epochs: Epochs
    finished: bool = False
    stored: bool = False
    gone: bool = False

    def last_of(self, epoch: int) -> int | None:
        """The last offset of an epoch in it."""
        for number, (own, _) in enumerate(self.epochs):
            if own == epoch:
                return self.epochs[number + 1][1] - 1 if number + 1 < len(self.epochs) else self.end
        return None


@dataclass(slots=True, eq=False)
class Due:
    """What the leader copies next: its batches, those that were cleaned too, and what comes with them."""

    base: int
    end: int
    batches: Sequence[Batch]
    metadata_epochs: Epochs
    checkpoint: Epochs
    open_end: tuple[tuple[int, int], ...]
    aborts: tuple[tuple[int, int, int], ...]
    later: tuple[tuple[int, int, bool], ...]

    @property
    def stored(self) -> list[Batch]:
        """Batches that are in the segment's bytes."""
        return [batch for batch in self.batches if not batch.cleaned]

    def aborts_in_it(self, batch: Batch) -> bool:
        """Whether a marker in the segment aborts the batch's transaction."""
        return any(pid == batch.pid and first <= batch.base < marker for pid, first, marker in self.aborts)


@dataclass(slots=True, eq=False)
class Kafka:
    """One partition on three brokers.

    clean: leaders are elected from the in-sync replicas only. dropped: a leader was elected without some of what the
    one before it had.
    """

    clean: bool
    brokers: list[Broker] = field(default_factory=lambda: [Broker(), Broker(), Broker()])
    leader: int = 0
    epoch: int = 0
    high_watermark: int = 0
    copies: dict[int, Copied] = field(default_factory=dict)
    serial: int = 0
    dropped: bool = False

    @property
    def lead(self) -> Broker:
        """The leader."""
        return self.brokers[self.leader]

    @property
    def readable_end(self) -> int:
        """Consumers read below it."""
        return self.high_watermark if self.clean else self.lead.end

    def write(
        self, count: int, kind: BatchKind, pid: int, time_ms: int, *, rows: bool = True, cleaned: bool = False
    ) -> Batch:
        """One batch on the leader."""
        size = 1 if kind in MARKERS else count
        base = self.lead.end
        batch = Batch(base, base + size - 1, self.epoch, -1 if kind is PLAIN else pid, kind, rows, time_ms, cleaned)
        self.lead.log.append(batch)
        return batch

    def raise_high_watermark(self) -> None:
        """To what all replicas have."""
        lead = self.lead
        shared = min(self.common(broker, lead) for broker in self.brokers)
        self.high_watermark = max(self.high_watermark, lead.log[shared - 1].last + 1 if shared else 0)

    def common(self, one: Broker, other: Broker) -> int:
        """How many batches from the beginning two logs share: what agrees somewhere agrees below."""
        low, high = 0, min(len(one.log), len(other.log))
        while low < high:
            middle = (low + high + 1) // 2
            if one.log[middle - 1] is other.log[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def replicate(self, number: int) -> bool:
        """A follower takes over the leader's log. True: it had to drop a part of its own."""
        follower, lead = self.brokers[number], self.lead
        if follower is lead:
            return False
        same = self.common(follower, lead)
        dropped = same < len(follower.log)
        if dropped:
            follower.truncate(same)
        follower.log += lead.log[same:]
        follower.start = max(follower.start, lead.start)
        self.raise_high_watermark()
        return dropped

    def rebuild(self, number: int, edge: int, *, failed: bool) -> bool:
        """A follower drops its log and begins at the leader's local log, its epochs from the tier.

        failed: the plugin did not answer, and the broker was restarted: it knows no epochs below its local log.
        """
        lead, follower = self.lead, self.brokers[number]
        edges = [
            item.end + 1
            for item in self.known()
            if lead.start < item.end + 1 <= min(lead.end, self.readable_end) and item.end + 1 in lead.cuts
        ]
        if follower is lead or not edges:
            return False
        local = edges[edge % len(edges)]
        follower.log = list(lead.log)
        follower.start, follower.local_start = lead.start, local
        follower.cuts = [local]
        follower.known_from = local if failed else lead.known_from
        self.raise_high_watermark()
        return True

    def can_lead(self, number: int) -> bool:
        """Whether this broker may be elected."""
        return not self.clean or self.brokers[number].end >= self.high_watermark

    def elect(self, number: int) -> None:
        """A new leader, or the same one again: a new epoch."""
        self.dropped |= self.common(self.brokers[number], self.lead) < len(self.lead.log)
        self.leader = number
        self.epoch += 1
        if not self.clean:
            self.high_watermark = min(self.high_watermark, self.lead.end)

    def known(self) -> list[Copied]:
        """Finished copies that were not deleted."""
        return [item for item in self.copies.values() if item.finished and not item.gone]

    def next_offset(self) -> int:
        """After the highest offset copied in the newest epoch both know."""
        lead, epochs, known = self.lead, self.lead.cache(), self.known()
        for number in reversed(range(len(epochs))):
            end = epochs[number + 1][1] if number + 1 < len(epochs) else lead.end
            reached = [last for item in known if (last := item.last_of(epochs[number][0])) is not None]
            if reached:
                return max(min(max(reached), end - 1) + 1, lead.start)
        return lead.start

    def due(self) -> Due | None:
        """What the leader copies next; None: nothing is due."""
        lead = self.lead
        segments = lead.closed()
        if not segments:
            return None
        # A transaction whose marker is not below the high watermark counts as open (ProducerStateManager).
        limit = min([self.readable_end, *(first for _, first in lead.open_before(self.readable_end))])
        wanted = self.next_offset()
        for base, end in segments:
            if end > wanted:
                return self._due(base, end) if end <= limit else None
        return None

    def _due(self, base: int, end: int) -> Due:
        lead = self.lead
        told = tuple(entry for entry in lead.cache() if entry[1] < end)
        inside = tuple((epoch, max(start, base)) for n, (epoch, start) in enumerate(told)
                       if n + 1 == len(told) or told[n + 1][1] > base)  # fmt: skip
        opened, aborts = lead.open_before(end), lead.aborts()
        aborted = {(pid, first) for pid, first, last in aborts if last >= end}
        return Due(
            base,
            end - 1,
            lead.log[lead.place(base) : lead.place(end)],
            inside,
            told,
            opened,
            tuple(entry for entry in aborts if base <= entry[2] < end),
            tuple((pid, first, (pid, first) not in aborted) for pid, first in opened),
        )

    def begin_copy(self, due: Due) -> Copied:
        """A new segment id; the reply is still to come."""
        self.serial += 1
        made = self.copies[self.serial] = Copied(self.serial, due.base, due.end, due.metadata_epochs)
        return made

    def retain(self, count: int) -> int:
        """Retention raises the log start over the oldest copied segments; their deletes follow. Where it is then."""
        lead = self.lead
        for item in sorted(self.known(), key=lambda item: item.base)[:count]:
            lead.start = max(lead.start, min(item.end + 1, self.readable_end))
        return lead.start

    def delete_records(self, count: int) -> bool:
        """The log start rises by `count` offsets at most; whether it does."""
        before = self.lead.start
        self.lead.start = max(before, min(before + count, self.readable_end))
        return self.lead.start > before

    def deletable(self) -> list[Copied]:
        """Below the log start, or all of its epochs older than any that the leader's cache knows."""
        cache, start = self.lead.cache(), self.lead.start
        oldest = cache[0][0] if cache else -1
        return [item for item in self.known() if item.end < start or all(e < oldest for e, _ in item.epochs)]

    def withdrawable(self) -> list[Copied]:
        """Copies without a reply, which Kafka deletes without custom metadata."""
        return [item for item in self.copies.values() if not item.finished and not item.gone]

    def split(self, number: int, at: int) -> None:
        """This broker's segments end there too."""
        broker = self.brokers[number]
        if broker.log and at not in broker.cuts and broker.cuts[0] < at < broker.end:
            insort(broker.cuts, at)
