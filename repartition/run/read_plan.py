"""What one run reads of the topic's table: per Kafka partition a range of offsets, within a budget of bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from converter.parquet import columns
from iceberg_catalog.commit.head import by_partition
from iceberg_catalog.plan.decide import NEVER
from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.types import LiveFile, PartState, counted
from repartition.limits import FEW_BYTES_MAX, FEW_OFFSETS_MAX
from repartition.run.frontier import NO_EPOCH, Frontier, Position


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one Kafka partition."""

    partition: int
    start: int
    end: int

    def sql(self) -> str:
        """As a condition on the topic's table; file statistics prune by it."""
        return f"(_kafka_partition = {self.partition} AND _kafka_offset >= {self.start} AND _kafka_offset < {self.end})"


def any_of(ranges: Sequence[Range]) -> str:
    """A SQL condition that holds in every range; `false` for none.

    A tree over partitions, so that a row is compared with the range of its own partition alone; by one OR for each, a
    thousand partitions would cost each row a thousand comparisons. Iceberg prunes files by it as by any other.

    Args:
        ranges: at most one of each partition, by partition.
    """
    if len(ranges) < 2:
        return ranges[0].sql() if ranges else "false"
    middle = len(ranges) // 2
    below, above = any_of(ranges[:middle]), any_of(ranges[middle:])
    pivot = ranges[middle].partition
    return f"({columns.PARTITION} < {pivot} AND {below} OR {columns.PARTITION} >= {pivot} AND {above})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One run's input.

    Attributes:
        ranges: what to read, by partition, one of each; none where offsets have no rows.
        before: the frontier of the projection.
        after: the frontier once that is in the projection, but for `lost`; as before when there is nothing new.
        size_bytes: of the data files it lies in; one that is read in part counts whole.
        complete: everything the snapshot has is read then.
        rows: what these files say they have; of one that is read in part at most as many as offsets are read.
        left_bytes: of the data files that later runs will read.
        left_offsets: below the topic's table's frontier and not below `after`, of all partitions.
        lost: offsets [first, end) by partition that Kafka had deleted, and that were not held, before they were read.
    """

    ranges: tuple[Range, ...]
    before: Frontier
    after: Frontier
    size_bytes: int = 0
    complete: bool = True
    rows: int = 0
    left_bytes: int = 0
    left_offsets: int = 0
    lost: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def few(self) -> bool:
        """Whether its records fit into the memory of each executor, by limits.py."""
        offsets = sum(item.end - item.start for item in self.ranges)
        return offsets <= FEW_OFFSETS_MAX and self.size_bytes <= FEW_BYTES_MAX

    def condition(self) -> str:
        """The ranges as one SQL condition."""
        return any_of(self.ranges)


@dataclass(slots=True, kw_only=True)
class _Lag:
    """One partition. `read`: the offset read up to in earlier runs; `end`: in this one, so far."""

    state: PartState
    read: int
    start: int
    end: int
    files: Sequence[LiveFile] = field(default_factory=list)
    taken: int = 0

    def lost(self) -> tuple[int, int]:
        """Offsets [first, end) to read that retention took."""
        return self.start, min([self.state.floor, *(file.first for file in self.files[:1])])

    def take(self) -> int:
        """Reads one file more; its bytes."""
        file = self.files[self.taken]
        self.taken, self.end = self.taken + 1, max(self.end, file.last + 1)
        return file.size_bytes


def plan_reading(
    before: Frontier,
    states: Mapping[int, PartState],
    files: Sequence[LiveFile],
    max_bytes: int | None,
    again_from: Mapping[int, int] | None = None,
) -> Reading:
    """What to read next. File after file, in turns between the partitions, so that none starves.

    Args:
        before: what was read already.
        states: recorded with the snapshot that is to be read.
        files: our live files of that snapshot.
        max_bytes: how much one run may read; at least one file is, and all that is read again. None: everything.
        again_from: offsets below the frontier to begin at instead, by partition.
    """
    lags = _lags(before, states, files, again_from or {})
    size, stopped = _take(lags, max_bytes)
    positions = dict(before.positions)
    ranges: list[Range] = []
    lost: dict[int, tuple[int, int]] = {}
    for partition, lag in sorted(lags.items()):
        end = max(lag.start, lag.state.frontier) if lag.taken == len(lag.files) else lag.end
        if end > lag.start:
            ranges.append(Range(partition, lag.start, end))
            if lag.lost()[1] > lag.start:
                lost[partition] = lag.lost()
        positions[partition] = position_at(end, lag.state)
    return Reading(
        ranges=tuple(ranges),
        before=before,
        after=Frontier(before.topic_id, positions, before.lost),
        size_bytes=size,
        complete=not stopped,
        rows=sum(_rows(lag) for lag in lags.values()),
        left_bytes=sum(file.size_bytes for lag in lags.values() for file in lag.files[lag.taken :]),
        left_offsets=sum(
            max(0, state.frontier - positions.get(partition, Position()).next) for partition, state in states.items()
        ),
        lost=lost,
    )


def first_live(partition: int, offset: int, files: Sequence[LiveFile]) -> int:
    """The first row of a partition from an offset on, as far as files tell; NEVER if there is none."""
    found = [max(offset, file.first) for file in files if file.partition == partition and file.last >= offset]
    return min(found, default=NEVER)


def _rows(lag: _Lag) -> int:
    return sum(min(file.rows, file.last + 1 - max(file.first, lag.start)) for file in lag.files[: lag.taken])


def position_at(offset: int, state: PartState) -> Position:
    """The position of one who has read everything below `offset` of a table with this state."""
    epoch = Lineage(state.lineage, state.known_end).epoch_at(offset - 1)
    return Position(NO_EPOCH if epoch is None else epoch, offset, counted(state.rewinds), counted(state.repairs))


def _lags(
    before: Frontier, states: Mapping[int, PartState], files: Sequence[LiveFile], again_from: Mapping[int, int]
) -> dict[int, _Lag]:
    lags: dict[int, _Lag] = {}
    grouped = by_partition(files)
    for partition, state in states.items():
        read = before.positions.get(partition, Position()).next
        start = min(read, again_from.get(partition, read))
        ahead = sorted((item for item in grouped[partition] if item.last >= start), key=lambda item: item.first)
        if state.frontier > start or partition in again_from:
            lags[partition] = _Lag(
                state=state,
                read=read,
                start=start,
                end=start,
                files=[item for item in ahead if item.first < state.frontier],
            )
    return lags


def _take(lags: Mapping[int, _Lag], max_bytes: int | None) -> tuple[int, bool]:
    """Sets how far each partition is read; the bytes, and whether the budget ended it."""
    size, turn = 0, True
    for lag in lags.values():
        # In parts it would take what was read already out of the projection, or bring back what was deleted since.
        while lag.end < lag.read and lag.taken < len(lag.files):
            size += lag.take()
    while turn:
        turn = False
        for _, lag in sorted(lags.items()):
            if lag.taken == len(lag.files):
                continue
            if max_bytes is not None and size and size + lag.files[lag.taken].size_bytes > max_bytes:
                return size, True
            size, turn = size + lag.take(), True
    return size, False
