"""A plain model of what Kafka does to one partition's remote storage: leaders, their logs and segments, and deletes.

Logs are lists of batches from offset 0; a broker's `start` is its log start. Each broker cuts its log into segments at
offsets of its own. A leader copies what RemoteLogManager would: the closed local segment that holds the offset after
the highest one copied in the newest epoch it shares with the remote log, and only below the last stable offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from iceberg_catalog.plan_types import BatchKind, Runs, Segment, SegmentState
from tests.unit.plan_support import B, gone, open_at_end, runs_of, seg

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

    @property
    def lead(self) -> Broker:
        return self.brokers[self.leader]

    def write(self, count: int, kind: BatchKind, pid: int, *, rows: bool = True) -> None:
        if kind in MARKERS and pid not in self.lead.open():
            return
        base = self.lead.end
        size = 1 if kind in MARKERS else count
        pid = -1 if kind == BatchKind.PLAIN else pid
        self.lead.log.append(B(base, base + size - 1, self.epoch, pid, kind, rows))
        self.note()

    def note(self) -> None:
        """Remembers what read_committed could have returned."""
        for offset, epoch in self.lead.committed().items():
            self.ever.setdefault(offset, set()).add(epoch)
        if self.clean:
            self.high_watermark = max(self.high_watermark, min(broker.end for broker in self.brokers))

    def roll(self, broker: int) -> None:
        self.brokers[broker].cuts.add(self.brokers[broker].end)

    def replicate(self, number: int) -> None:
        follower, lead = self.brokers[number], self.lead
        if follower is lead:
            return
        same = 0
        while same < min(len(follower.log), len(lead.log)) and follower.log[same] == lead.log[same]:
            same += 1
        if same < len(follower.log):
            follower.truncate(follower.log[same].base)
        follower.log += lead.log[same:]
        follower.start = max(follower.start, lead.start)
        self.note()

    def elect(self, number: int) -> None:
        if self.clean and self.brokers[number].end < self.high_watermark:
            return
        self.leader = number
        self.epoch += 1
        self.note()

    def next_offset(self) -> int:
        """RemoteLogManager's choice: after the highest offset copied in the newest epoch both know."""
        runs = runs_of(self.lead.log)
        for number in reversed(range(len(runs))):
            epoch = runs[number][0]
            end = runs[number + 1][1] if number + 1 < len(runs) else self.lead.end
            if end <= self.lead.start:
                break
            copied = [self.last_of(item.segment, epoch) for item in self.known()]
            reached = [offset for offset in copied if offset is not None]
            if reached:
                return max(min(max(reached), end - 1) + 1, self.lead.start)
        return self.lead.start

    @staticmethod
    def last_of(segment: Segment, epoch: int) -> int | None:
        for number, (own, _) in enumerate(segment.runs):
            if own == epoch:
                return segment.runs[number + 1][1] - 1 if number + 1 < len(segment.runs) else segment.end
        return None

    def known(self) -> list[Remote]:
        return [r for r in self.remote.values() if r.finished and r.segment.state == SegmentState.LIVE]

    def upload(self, *, finished: bool) -> bool:
        """One copy by the leader; `finished` False: the index is durable but Kafka does not know."""
        lead, wanted = self.lead, self.next_offset()
        stable = min([lead.end, *lead.open().values()])
        limit = min(stable, self.high_watermark) if self.clean else stable
        for base, end in lead.closed():
            if end <= wanted or end > limit:
                continue
            batches = [batch for batch in lead.log if base <= batch.base < end]
            if not batches:
                return False
            self.serial += 1
            told = tuple(entry for entry in lead.epochs() if entry[1] < end)
            opened = open_at_end([batch for batch in lead.log if batch.last < end])
            made = seg(f"s{self.serial}", batches, checkpoint=told, opened=opened)
            self.remote[made.id] = Remote(made, finished)
            return True
        return False

    def withdraw(self, name: str) -> None:
        item = self.remote[name]
        if not item.finished and item.segment.state == SegmentState.LIVE:
            item.segment = gone(item.segment, SegmentState.WITHDRAWN)

    def retain(self, count: int) -> None:
        """Retention: the log start rises first, then segments wholly below it are deleted."""
        for item in sorted(self.known(), key=lambda r: r.segment.base)[:count]:
            self.lead.start = max(self.lead.start, min(item.segment.end + 1, self.lead.end))
        self.clean_up()

    def delete_records(self, offset: int) -> None:
        limit = self.high_watermark if self.clean else self.lead.end
        self.lead.start = max(self.lead.start, min(offset, limit))

    def clean_up(self) -> None:
        for item in self.known():
            if item.segment.end < self.lead.start:
                item.segment = gone(item.segment)

    def listing(self) -> list[Segment]:
        return [item.segment for item in self.remote.values()]
