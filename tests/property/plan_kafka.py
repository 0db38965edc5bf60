"""A plain model of what Kafka does to one partition's remote storage: leaders, their logs and segments, and deletes.

Logs are lists of batches from offset 0; a broker's `start` is its log start. Each broker cuts its log into segments at
offsets of its own. A leader copies what RemoteLogManager would: the closed local segment that holds the offset after
the highest one copied in the newest epoch it shares with the remote log, and only below the last stable offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from iceberg_catalog.plan.types import BatchKind, Peeked, Runs, Segment, SegmentState
from tests.worlds.plan_support import B, gone, open_at_end, runs_of, seg

MARKERS = (BatchKind.COMMIT, BatchKind.ABORT)


@dataclass
class Broker:
    log: list[B] = field(default_factory=list)
    cuts: set[int] = field(default_factory=lambda: {0})
    start: int = 0

    @property
    def end(self) -> int:
        """The next offset."""
        return self.log[-1].last + 1 if self.log else 0

    def truncate(self, end: int) -> None:
        self.log = [batch for batch in self.log if batch.last < end]
        self.cuts = {cut for cut in self.cuts if cut <= self.end}
        self.start = min(self.start, self.end)

    def closed(self) -> list[tuple[int, int]]:
        """[base, end) of closed segments that are not wholly below the log start."""
        edges = sorted(self.cuts)
        return [(a, b) for a, b in pairwise(edges) if b > self.start]

    def open(self) -> dict[int, int]:
        return dict(open_at_end(self.log))

    def aborts(self) -> list[tuple[int, int, int]]:
        """The transaction index of the whole log: producer, first offset, marker's offset."""
        opened: dict[int, int] = {}
        entries: list[tuple[int, int, int]] = []
        for batch in self.log:
            if batch.kind == BatchKind.TXN:
                opened.setdefault(batch.pid, batch.base)
            elif batch.kind in MARKERS:
                first = opened.pop(batch.pid, None)
                if first is not None and batch.kind == BatchKind.ABORT:
                    entries.append((batch.pid, first, batch.base))
        return entries

    def later(self, opened: tuple[tuple[int, int], ...], end: int) -> tuple[Peeked, ...]:
        """How the transactions that are open at `end` went on: aborted if the later entries say so, else committed."""
        aborted = {(pid, first) for pid, first, last in self.aborts() if last >= end}
        return tuple((pid, first, (pid, first) not in aborted) for pid, first in opened)

    def committed(self) -> dict[int, int]:
        """Epoch by offset of every row that read_committed returns from offset 0 on."""
        rows: dict[int, int] = {}
        pending: dict[int, list[B]] = {}
        for batch in self.log:
            if batch.kind == BatchKind.TXN:
                pending.setdefault(batch.pid, []).append(batch)
                continue
            done = [batch] if batch.kind == BatchKind.PLAIN else pending.pop(batch.pid, [])
            if batch.kind != BatchKind.ABORT:
                rows |= {offset: b.epoch for b in done if b.rows for offset in range(b.base, b.last + 1)}
        return rows

    def epochs(self) -> Runs:
        """The leader-epoch checkpoint: cut at the log start."""
        runs = runs_of(self.log)
        entries = []
        for number, (epoch, start) in enumerate(runs):
            end = runs[number + 1][1] if number + 1 < len(runs) else self.end
            if end > self.start:
                entries.append((epoch, max(start, self.start)))
        return tuple(entries)


@dataclass
class Remote:
    """One segment id: its index, and whether Kafka knows it as finished."""

    segment: Segment
    finished: bool


@dataclass
class Kafka:
    clean: bool
    brokers: list[Broker] = field(default_factory=lambda: [Broker(), Broker(), Broker()])
    leader: int = 0
    epoch: int = 0
    high_watermark: int = 0
    remote: dict[str, Remote] = field(default_factory=dict)
    ever: dict[int, set[int]] = field(default_factory=dict)
    serial: int = 0
    now: int = 0
    deleted: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def lead(self) -> Broker:
        return self.brokers[self.leader]

    def spans(self, pid: int) -> bool:
        """Whether the producer has a transaction open that began in an earlier segment of the leader."""
        first = self.lead.open().get(pid)
        return first is not None and any(first < cut <= self.lead.end for cut in self.lead.cuts)

    def truncates(self, number: int) -> bool:
        """Whether this broker as leader would have the one before it drop something."""
        return self.brokers[number].log[: len(self.lead.log)] != self.lead.log

    def write(self, count: int, kind: BatchKind, pid: int, *, rows: bool = True, time_ms: int = 0) -> None:
        """One batch. A marker of a producer without a transaction is one that was written twice, or an empty one."""
        base = self.lead.end
        size = 1 if kind in MARKERS else count
        pid = -1 if kind == BatchKind.PLAIN else pid
        batch = B(base, base + size - 1, self.epoch, pid, kind, rows, time_ms)
        self.lead.log.append(batch)
        if kind == BatchKind.PLAIN:
            self._note(batch)
        elif kind == BatchKind.COMMIT:
            for earlier in reversed(self.lead.log[:-1]):
                if earlier.pid == pid:
                    if earlier.kind != BatchKind.TXN:
                        break
                    self._note(earlier)
        self._raise_high_watermark()

    def _note(self, batch: B) -> None:
        """Remembers what read_committed could have returned."""
        if batch.rows:
            for offset in range(batch.base, batch.last + 1):
                self.ever.setdefault(offset, set()).add(batch.epoch)

    def _raise_high_watermark(self) -> None:
        if self.clean:
            self.high_watermark = max(self.high_watermark, min(broker.end for broker in self.brokers))

    def split(self, number: int, base: int, end: int) -> None:
        """This broker's segments end within [base, end) too, where there are batches enough."""
        inner = [batch.base for batch in self.brokers[number].log if base < batch.base < end]
        self.brokers[number].cuts |= set(inner[len(inner) // 2 :][:1])

    def roll(self, broker: int) -> None:
        self.brokers[broker].cuts.add(self.brokers[broker].end)

    def replicate(self, number: int) -> bool:
        """A follower takes over the leader's log. True: it had to drop a part of its own."""
        follower, lead = self.brokers[number], self.lead
        if follower is lead:
            return False
        same = 0
        while same < min(len(follower.log), len(lead.log)) and follower.log[same] == lead.log[same]:
            same += 1
        truncated = same < len(follower.log)
        if truncated:
            follower.truncate(follower.log[same].base)
        follower.log += lead.log[same:]
        follower.start = max(follower.start, lead.start)
        self._raise_high_watermark()
        return truncated

    def can_lead(self, number: int) -> bool:
        return not self.clean or self.brokers[number].end >= self.high_watermark

    def elect(self, number: int) -> None:
        self.leader = number
        self.epoch += 1

    def next_offset(self) -> int:
        """RemoteLogManager's choice: after the highest offset copied in the newest epoch both know."""
        runs = runs_of(self.lead.log)
        known = self.known()
        for number in reversed(range(len(runs))):
            epoch = runs[number][0]
            end = runs[number + 1][1] if number + 1 < len(runs) else self.lead.end
            if end <= self.lead.start:
                break
            copied = [self.last_of(item.segment, epoch) for item in known]
            reached = [offset for offset in copied if offset is not None]
            if reached:
                return max(min(max(reached), end - 1) + 1, self.lead.start)
        return self.lead.start

    @staticmethod
    def last_of(segment: Segment, epoch: int) -> int | None:
        for number, (own, _) in enumerate(segment.runs):
            if own == epoch:
                return segment.runs[number + 1][1] - 1 if number + 1 < len(segment.runs) else segment.last
        return None

    def known(self) -> list[Remote]:
        return [r for r in self.remote.values() if r.finished and r.segment.state == SegmentState.LIVE]

    def next_copy(self, *, peek: bool = False) -> Segment | None:
        """What the leader copies next, under a new id; None: nothing is due.

        peek: with what the leader's log says behind the segment about transactions that are open at its end.
        """
        due = self.due()
        if due is None:
            return None
        lead, (base, end) = self.lead, due
        batches = [batch for batch in lead.log if base <= batch.base < end]
        self.serial += 1
        told = tuple(entry for entry in lead.epochs() if entry[1] < end)
        opened = open_at_end([batch for batch in lead.log if batch.last < end])
        return seg(
            f"s{self.serial}",
            batches,
            checkpoint=told,
            opened=opened,
            aborts=[entry for entry in lead.aborts() if base <= entry[2] < end],
            peeked=lead.later(opened, end) if peek else (),
        )

    def overlaps(self, made: Segment) -> set[str]:
        """How a copy lies to those of other ids that are not deleted."""
        found = set()
        for item in self.remote.values():
            other = item.segment
            if other.state == SegmentState.DELETED or made.last < other.base or other.last < made.base:
                continue
            if (made.base, made.last) == (other.base, other.last):
                found.add("same offsets, new id")
            elif made.base <= other.base and made.last >= other.last:
                found.add("superset")
            elif made.base >= other.base and made.last <= other.last:
                found.add("subset")
            else:
                found.add("partial overlap")
        return found

    def due(self) -> tuple[int, int] | None:
        """[base, end) of the segment the leader copies next."""
        lead, wanted = self.lead, self.next_offset()
        stable = min([lead.end, *lead.open().values()])
        limit = min(stable, self.high_watermark) if self.clean else stable
        for base, end in lead.closed():
            if end <= wanted or end > limit:
                continue
            return base, end
        return None

    def withdrawable(self) -> list[str]:
        return [name for name, r in self.remote.items() if not r.finished and r.segment.state == SegmentState.LIVE]

    def withdraw(self, name: str) -> None:
        item = self.remote[name]
        item.segment = gone(item.segment, SegmentState.WITHDRAWN)

    def retain(self, count: int) -> None:
        """Retention raises the log start over the oldest segments; their deletes follow, in any order."""
        for item in sorted(self.known(), key=lambda r: r.segment.base)[:count]:
            self.lead.start = max(self.lead.start, min(item.segment.last + 1, self.lead.end))

    def delete_records(self, count: int) -> bool:
        """The log start rises by `count` offsets at most; whether it does."""
        limit = self.high_watermark if self.clean else self.lead.end
        before = self.lead.start
        self.lead.start = max(before, min(before + count, limit))
        return self.lead.start > before

    def deletable(self) -> list[str]:
        return [
            name
            for name, r in self.remote.items()
            if r.finished and r.segment.state == SegmentState.LIVE and r.segment.last < self.lead.start
        ]

    def delete(self, name: str) -> None:
        """By retention: with custom metadata. `deleted` remembers the last offset, and when."""
        item = self.remote[name]
        self.deleted[name] = (item.segment.last, self.now)
        item.segment = gone(item.segment)

    def clean_up(self) -> None:
        for name in self.deletable():
            self.delete(name)

    def listing(self) -> list[Segment]:
        return [item.segment for item in self.remote.values()]
