"""Small words for the tests of the publish plan: segments out of batches, and a table to apply plans to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from iceberg_catalog.plan.hold import NO_HOLD, Hold
from iceberg_catalog.plan.plan import plan
from iceberg_catalog.plan.types import (
    Batches,
    BatchKind,
    Derive,
    FileRef,
    Follow,
    Keep,
    LiveFile,
    PartState,
    Peeked,
    Plan,
    Policy,
    Runs,
    Segment,
    SegmentState,
    UseMain,
)

FOLLOW, KEEP = Follow(), Keep()
LIVE, WITHDRAWN, DELETED = SegmentState.LIVE, SegmentState.WITHDRAWN, SegmentState.DELETED


@dataclass(frozen=True)
class B:
    """One batch; `rows` False: quarantined, empty or known as aborted."""

    base: int
    last: int
    epoch: int = 0
    pid: int = -1
    kind: BatchKind = BatchKind.PLAIN
    rows: bool = True
    time_ms: int = 0

    @property
    def has_rows(self) -> bool:
        return self.rows and self.kind in (BatchKind.PLAIN, BatchKind.TXN)


def plain(base: int, last: int, epoch: int = 0, *, rows: bool = True, time_ms: int = 0) -> B:
    return B(base, last, epoch, rows=rows, time_ms=time_ms)


def txn(base: int, last: int, pid: int, epoch: int = 0) -> B:
    return B(base, last, epoch, pid, BatchKind.TXN)


def commit(offset: int, pid: int, epoch: int = 0) -> B:
    return B(offset, offset, epoch, pid, BatchKind.COMMIT)


def abort(offset: int, pid: int, epoch: int = 0) -> B:
    return B(offset, offset, epoch, pid, BatchKind.ABORT)


def runs_of(batches: Iterable[B]) -> Runs:
    runs: list[tuple[int, int]] = []
    for batch in batches:
        if not runs or runs[-1][0] != batch.epoch:
            runs.append((batch.epoch, batch.base))
    return tuple(runs)


def open_at_end(batches: Iterable[B]) -> tuple[tuple[int, int], ...]:
    """What the producer snapshot lists after these batches, if the log began with them."""
    opened: dict[int, int] = {}
    for batch in batches:
        if batch.kind == BatchKind.TXN:
            opened.setdefault(batch.pid, batch.base)
        elif batch.kind in (BatchKind.COMMIT, BatchKind.ABORT):
            opened.pop(batch.pid, None)
    return tuple(sorted(opened.items()))


def seg(
    name: str,
    batches: Sequence[B],
    *,
    checkpoint: Runs | None = None,
    opened: tuple[tuple[int, int], ...] | None = None,
    state: SegmentState = LIVE,
    last: int | None = None,
    base: int | None = None,
    aborts: Sequence[tuple[int, int, int]] | None = None,
    peeked: tuple[Peeked, ...] = (),
) -> Segment:
    """A segment of these batches; checkpoint and producer snapshot as if the log began with it, unless given.

    `aborts`: its transaction index; None: not known.
    """
    loaded = arrays(batches, aborts)
    holders = [batch for batch in batches if batch.has_rows]
    runs = runs_of(batches)
    open_end = open_at_end(batches) if opened is None else opened
    told = {(pid, first) for pid, first, committed in peeked if committed}
    undecided = tuple(item for item in open_end if item not in told)
    waiting = [n for n, batch in enumerate(holders) if is_open(batch, undecided)]
    border = waiting[0] if waiting and waiting[0] > 0 else len(holders)
    return Segment(
        id=name,
        base=batches[0].base if base is None else base,
        last=batches[-1].last if last is None else last,
        runs=runs,
        checkpoint=runs if checkpoint is None else checkpoint,
        open_end=open_end,
        state=state,
        main=file_of(holders[:border]),
        tail=file_of(holders[border:]),
        peeked=peeked,
        load=lambda: loaded,
    )


def is_open(batch: B, open_end: tuple[tuple[int, int], ...]) -> bool:
    """Whether the batch belongs to a transaction that is open at its segment's end."""
    return batch.kind == BatchKind.TXN and any(batch.pid == pid and batch.base >= first for pid, first in open_end)


def file_of(holders: Sequence[B]) -> FileRef | None:
    """A file with the rows of these batches."""
    if not holders:
        return None
    return FileRef(
        first=holders[0].base, last=holders[-1].last, rows=sum(batch.last - batch.base + 1 for batch in holders)
    )


def arrays(batches: Sequence[B], aborts: Sequence[tuple[int, int, int]] | None = None) -> Batches:
    return Batches(
        base=np.array([b.base for b in batches], dtype=np.int64),
        last=np.array([b.last for b in batches], dtype=np.int64),
        epoch=np.array([b.epoch for b in batches], dtype=np.int32),
        producer_id=np.array([b.pid for b in batches], dtype=np.int64),
        kind=np.array([b.kind for b in batches], dtype=np.uint8),
        rows=np.array([b.has_rows for b in batches], dtype=np.bool_),
        max_timestamp_ms=np.array([b.time_ms for b in batches], dtype=np.int64),
        aborts=None if aborts is None else np.array(aborts, dtype=np.int64).reshape(-1, 3),
    )


def gone(segment: Segment, state: SegmentState = DELETED) -> Segment:
    return replace(segment, state=state)


Rows = dict[int, tuple[int, int]]  # offset → (epoch, timestamp in ms)


@dataclass
class Model:
    """A table of one partition, as a plain dict: path → (file, its rows)."""

    policy: Policy = FOLLOW
    state: PartState = field(default_factory=PartState)
    files: dict[str, tuple[LiveFile, Rows]] = field(default_factory=dict)
    serial: int = 0
    plans: list[Plan] = field(default_factory=list)
    hold: Hold = NO_HOLD

    def publish(self, *segments: Segment, relisted: bool | None = None) -> Plan:
        """One run: plan, list again if asked to (unless `relisted` is given), apply, and check it is then quiet."""
        result = self.plan(segments, relisted=bool(relisted))
        if result.need_relist and relisted is None:
            result = self.plan(segments, relisted=True)
        assert not (result.need_relist and relisted is not False)
        if not result.need_relist:
            self.apply(result, segments)
            again = self.plan(segments, relisted=True)
            assert not again.changes(self.state), f"not idempotent: {again} after {result}"
        self.plans.append(result)
        return result

    def plan(self, segments: Iterable[Segment], *, relisted: bool = True) -> Plan:
        files = [item for item, _ in self.files.values()]
        return plan(list(segments), files, self.state, self.policy, relisted=relisted, hold=self.hold)

    def apply(self, result: Plan, segments: Iterable[Segment]) -> None:
        by_id = {segment.id: segment for segment in segments}
        for path in (*result.remove, *result.replace):
            del self.files[path]
        for trim in result.trim:
            file, rows = self.files.pop(trim.path)
            for first, last in trim.kept(file):
                if part := {o: row for o, row in rows.items() if first <= o <= last}:
                    self.add(self.path(None), part, file.runs or ())
        for item in result.add:
            self.add(self.path(item), *content(item, by_id))
        self.state = result.state
        intervals = sorted((item.first, item.last) for item, _ in self.files.values())
        for (_, last), (first, _) in itertools.pairwise(intervals):
            assert last < first, f"files overlap: {intervals}"

    def path(self, _item: UseMain | Derive | None) -> str:
        """Of a new file; None: one that is cut."""
        self.serial += 1
        return f"file-{self.serial}"

    def add(self, path: str, rows: Rows, runs: Runs) -> None:
        assert rows, "a file without rows"
        assert path not in self.files, f"{path} twice"
        newest = max((time_ms for _, time_ms in rows.values() if time_ms >= 0), default=None)
        file = LiveFile(
            path=path,
            first=min(rows),
            last=max(rows),
            runs=cut_runs(runs, min(rows), max(rows)),
            partition=0,
            max_timestamp_ms=newest,
        )
        self.files[path] = (file, rows)

    @property
    def rows(self) -> dict[int, int]:
        """Epoch by offset of everything in the table."""
        return {offset: epoch for _, rows in self.files.values() for offset, (epoch, _) in rows.items()}

    @property
    def offsets(self) -> list[int]:
        return sorted(self.rows)


def from_records_alone(model: Model, *segments: Segment) -> Plan:
    """The plan of a run in which no file may have to be asked for its epochs."""

    def look(file: LiveFile) -> Runs:
        raise AssertionError(f"{file.path} is asked for its epochs")

    files = [replace(item, runs=None) for item, _ in model.files.values()]
    return plan(list(segments), files, model.state, model.policy, relisted=True, look=look)


def content(item: UseMain | Derive, by_id: Mapping[str, Segment]) -> tuple[Rows, Runs]:
    """Rows and epoch runs of a file the plan wants; a range must begin and end with a row."""
    if isinstance(item, UseMain):
        segment = by_id[item.segment_id]
        file = segment.tail if item.tail else segment.main
        assert file is not None
        rows = {offset: row for offset, row in rows_of(segment).items() if file.first <= offset <= file.last}
        return rows, segment.runs
    rows = {}
    runs: list[tuple[int, int]] = []
    for segment_id, first, last in item.ranges:
        part = {offset: row for offset, row in rows_of(by_id[segment_id]).items() if first <= offset <= last}
        assert part, f"a range without rows: {item}"
        assert (min(part), max(part)) == (first, last)
        rows |= part
        runs += [run for run in by_id[segment_id].runs if run not in runs]
    return rows, tuple(sorted(runs))


def cut_runs(runs: Runs, first: int, last: int) -> Runs:
    """Epoch runs as a file's key carries them: those that reach into [first, last], begun no earlier than `first`."""
    ends = [*(start for _, start in runs[1:]), last + 1]
    reaching = [run for run, end in zip(runs, ends, strict=True) if run[1] <= last and end > first]
    return tuple((epoch, max(start, first)) for epoch, start in reaching)


def rows_of(segment: Segment) -> Rows:
    """What the segment's data file holds."""
    batches = segment.load()
    return {
        offset: (int(batches.epoch[n]), int(batches.max_timestamp_ms[n]))
        for n in range(len(batches))
        if batches.rows[n]
        for offset in range(int(batches.base[n]), int(batches.last[n]) + 1)
    }
