"""Small words for the tests of the publish plan: segments out of batches, and a table to apply plans to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from iceberg_catalog.plan import plan
from iceberg_catalog.plan_types import (
    Batches,
    BatchKind,
    Derive,
    FileRef,
    LiveFile,
    PartState,
    Plan,
    Policy,
    Runs,
    Segment,
    SegmentState,
    UseMain,
)

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

    @property
    def has_rows(self) -> bool:
        return self.rows and self.kind in (BatchKind.PLAIN, BatchKind.TXN)


def plain(base: int, last: int, epoch: int = 0, *, rows: bool = True) -> B:
    return B(base, last, epoch, rows=rows)


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
    end: int | None = None,
    base: int | None = None,
) -> Segment:
    """A segment of these batches; checkpoint and producer snapshot as if the log began with it, unless given."""
    holders = [batch for batch in batches if batch.has_rows]
    runs = runs_of(batches)
    main = None
    if holders:
        rows = sum(batch.last - batch.base + 1 for batch in holders)
        main = FileRef(holders[0].base, holders[-1].last, runs, rows)
    return Segment(
        id=name,
        base=batches[0].base if base is None else base,
        end=batches[-1].last if end is None else end,
        runs=runs,
        checkpoint=runs if checkpoint is None else checkpoint,
        open_end=open_at_end(batches) if opened is None else opened,
        state=state,
        main=main,
        load=lambda: arrays(batches),
    )


def arrays(batches: Sequence[B]) -> Batches:
    return Batches(
        base=np.array([b.base for b in batches], dtype=np.int64),
        last=np.array([b.last for b in batches], dtype=np.int64),
        epoch=np.array([b.epoch for b in batches], dtype=np.int32),
        producer_id=np.array([b.pid for b in batches], dtype=np.int64),
        kind=np.array([b.kind for b in batches], dtype=np.uint8),
        rows=np.array([b.has_rows for b in batches], dtype=np.bool_),
    )


def gone(segment: Segment, state: SegmentState = DELETED) -> Segment:
    return replace(segment, state=state)


@dataclass
class Model:
    """A table of one partition, as a plain dict: path → (file, {offset: (epoch)})."""

    policy: Policy = "follow"
    state: PartState = field(default_factory=PartState)
    files: dict[str, tuple[LiveFile, dict[int, int]]] = field(default_factory=dict)
    serial: int = 0
    plans: list[Plan] = field(default_factory=list)

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
        return plan(list(segments), files, self.state, self.policy, relisted=relisted)

    def apply(self, result: Plan, segments: Iterable[Segment]) -> None:
        by_id = {segment.id: segment for segment in segments}
        for path in (*result.remove, *result.replace):
            del self.files[path]
        for trim in result.trim:
            _, rows = self.files.pop(trim.path)
            self._add({offset: epoch for offset, epoch in rows.items() if offset < trim.keep_below})
        for item in result.add:
            rows = {}
            if isinstance(item, UseMain):
                rows = rows_of(by_id[item.segment_id])
            elif isinstance(item, Derive):
                for segment_id, first, last in item.ranges:
                    part = {o: e for o, e in rows_of(by_id[segment_id]).items() if first <= o <= last}
                    assert part, f"a range without rows: {item}"
                    assert min(part) == first
                    assert max(part) == last
                    rows |= part
            self._add(rows)
        self.state = result.state
        intervals = sorted((item.first, item.last) for item, _ in self.files.values())
        for (_, last), (first, _) in itertools.pairwise(intervals):
            assert last < first, f"files overlap: {intervals}"

    def _add(self, rows: dict[int, int]) -> None:
        assert rows, "a file without rows"
        self.serial += 1
        runs: list[tuple[int, int]] = []
        for offset, epoch in sorted(rows.items()):
            if not runs or runs[-1][0] != epoch:
                runs.append((epoch, offset))
        path = f"file-{self.serial}"
        self.files[path] = (LiveFile(path, min(rows), max(rows), tuple(runs), 0), rows)

    @property
    def rows(self) -> dict[int, int]:
        """Epoch by offset of everything in the table."""
        return {offset: epoch for _, rows in self.files.values() for offset, epoch in rows.items()}

    @property
    def offsets(self) -> list[int]:
        return sorted(self.rows)


def rows_of(segment: Segment) -> dict[int, int]:
    """What the segment's data file holds: epoch by offset."""
    batches = segment.load()
    return {
        offset: int(batches.epoch[n])
        for n in range(len(batches))
        if batches.rows[n]
        for offset in range(int(batches.base[n]), int(batches.last[n]) + 1)
    }
