"""Which declared projections rows wait for, and what the publish plan needs of that (iceberg_catalog/plan/hold.py).

A projection is declared by a rule of `topics`. What it has read is in its progress object; without one, or where that
is damaged, it has read nothing. A topic without projections, or whose projections say `hold: 0s`, costs no request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from iceberg_catalog.commit.head import by_partition
from iceberg_catalog.plan.hold import Deletion, Hold, Reader, ReadTo, waiting
from iceberg_catalog.plan.lineage import Lineage
from iceberg_catalog.plan.types import LiveFile, PartState, SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.settings import Settings
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import PROJECTION_PROGRESS_FRESH_SECONDS
from rsm_bridge.logs import logger
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.progress import ProjectionProgress, progress_key, read_one
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition


@dataclass(frozen=True, slots=True)
class WaitingProjection:
    """A declared projection of one topic id. `limit_ms`: how long a row that Kafka deleted may wait for it; above 0.

    name: of its table. read: by Kafka partition; one that is missing was not read.
    """

    name: str
    limit_ms: int
    read: Mapping[int, ReadTo] = field(default_factory=dict)


WaitingProjections = Callable[[Owner, str], Sequence[WaitingProjection]]
"""Of a topic id whose table has this plain name: the declared projections that rows may wait for."""


def no_projections(_owner: Owner, _plain: str) -> Sequence[WaitingProjection]:
    """Of a topic that has none."""
    return ()


@dataclass(frozen=True, slots=True)
class DeclaredProjection:
    """A projection as a rule of `topics` declares it, by its full names."""

    rule: ProjectionRule
    catalog: str
    table: str

    def key(self, topic_id: bytes) -> str:
        """Of its progress object."""
        return progress_key(topic_id, self.catalog, self.table)


def declared_projections(settings: Settings, topic: str, plain: str) -> list[DeclaredProjection]:
    """The projections of a topic whose own table has the plain name `plain`."""
    own = settings.catalog
    return [
        DeclaredProjection(
            rule,
            own.name if rule.catalog is None else rule.catalog.name,
            ".".join(rule.table_of(plain, own.namespace)),
        )
        for rule in settings.rule(topic).copies
    ]


@dataclass(slots=True)
class ProjectionReaders:
    """Reads the progress of declared projections, and keeps it for some seconds. One thread at a time."""

    settings: Settings
    store: ObjectStore
    clock: Callable[[], float] = time.monotonic
    log: structlog.typing.FilteringBoundLogger = field(default_factory=lambda: logger("projections"))
    _kept: dict[str, tuple[float, ProjectionProgress | None]] = field(default_factory=dict, init=False)
    _said: dict[str, str] = field(default_factory=dict, init=False)

    def waiting(self, owner: Owner, plain: str) -> list[WaitingProjection]:
        """A `WaitingProjections`.

        Raises:
            StoreError: the store does not answer.
        """
        found: list[WaitingProjection] = []
        for projection in declared_projections(self.settings, owner.topic, plain):
            if projection.rule.hold > 0:
                progress = self._progress(projection.key(owner.topic_id))
                read = {} if progress is None else progress.read
                found.append(WaitingProjection(projection.table, int(projection.rule.hold * 1000), read))
        return found

    def _progress(self, key: str) -> ProjectionProgress | None:
        now = self.clock()
        kept = self._kept.get(key)
        if kept is not None and now < kept[0]:
            return kept[1]
        found: ProjectionProgress | None = None
        said = ""
        try:
            found = read_one(self.store, key)
        except StoreError:
            raise
        except BridgeError as error:
            said = str(error)
        if said and said != self._said.get(key):
            self.log.warning("progress of a projection is damaged: nothing counts as read", error=said)
        self._said[key] = said
        self._kept[key] = now + PROJECTION_PROGRESS_FRESH_SECONDS, found
        return found


def hold_of(
    projections: Sequence[WaitingProjection], number: int, segments: Iterable[KnownSegment] | None, now_ms: int
) -> Hold:
    """What the plan of one partition is to hold back.

    Args:
        projections: that rows may wait for.
        number: of the partition.
        segments: all of the partition; None where they are not all known.
        now_ms: since the epoch.
    """
    readers = tuple(Reader(projection.read.get(number, ReadTo()), projection.limit_ms) for projection in projections)
    if not readers:
        return Hold()
    return Hold(readers, None if segments is None else deletions(segments), now_ms)


def deletions(segments: Iterable[KnownSegment]) -> tuple[Deletion, ...]:
    """Those of the segments that retention deleted, and when that was."""
    found: list[Deletion] = []
    for known in segments:
        segment, deletion = known.segment, known.deletion
        if segment is None or deletion is None:
            continue
        if deletion.kind is SegmentState.DELETED:
            found.append(Deletion(segment.base, segment.last, segment.runs, deletion.time_ms))
    return tuple(found)


def files_kept_for(
    files: Iterable[LiveFile],
    states: Mapping[int, PartState],
    segments: Sequence[KnownSegment],
    projections: Sequence[WaitingProjection],
    now_ms: int,
) -> dict[int, tuple[int, list[LiveFile]]]:
    """What a table has below the floor for its projections: by partition the first offset that waits, and the files.

    Args:
        files: our live files of the head.
        states: recorded with it.
        segments: every index and tombstone of the topic id.
        projections: that rows may wait for.
        now_ms: since the epoch.
    """
    if not projections:
        return {}
    groups, of_partition = segments_by_partition(segments), by_partition(files)
    found: dict[int, tuple[int, list[LiveFile]]] = {}
    for number, state in states.items():
        hold = hold_of(projections, number, groups[number], now_ms)
        start, end = waiting(hold, Lineage(state.lineage, state.known_end), state)
        held = [
            file for file in of_partition[number] if file.last < state.floor and file.last >= start and file.first < end
        ]
        if held:
            found[number] = start, held
    return found
