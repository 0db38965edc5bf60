"""Batches of the segments that a plan would ask for: each is read once, and the next ones beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from converter.errors import SegmentError
from iceberg_catalog.plan.types import Batches, LiveFile, PartState, Policy
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import STATUS_BATCHES_AHEAD, STATUS_BATCHES_KEPT
from rsm_bridge.metrics.progress.facts import Problem, problem_of
from rsm_bridge.status.store.topic import readers
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.tables.maintain.requeue_away import lacking


class UnreadBatchesError(Exception):
    """The batches of a segment that waits could not be read."""

    def __init__(self, segment: KnownSegment, problem: Problem) -> None:
        super().__init__(f"{segment.listed.key}: {problem.message}")
        self.segment = segment
        self.problem = problem


class BatchesRead:
    """Batches of one topic's segments; the last STATUS_BATCHES_KEPT are kept for the next question.

    Args:
        expected: segments whose batches will be asked for, in that order.
    """

    def __init__(self, expected: Sequence[KnownSegment]) -> None:
        self._expected = expected
        self._place = {known.listed.key: number for number, known in enumerate(expected)}
        self._kept: dict[str, Batches] = {}

    def of(self, known: KnownSegment) -> KnownSegment:
        """The same; when its batches cannot be read, UnreadBatchesError says whose."""
        if known.segment is None:
            return known
        return replace(known, segment=replace(known.segment, load=lambda: self._load(known)))

    def _load(self, known: KnownSegment) -> Batches:
        key = known.listed.key
        if key not in self._kept:
            if (place := self._place.get(key)) is not None:
                self._read_ahead(self._expected[place + 1 : place + 1 + STATUS_BATCHES_AHEAD], known)
            else:
                self._keep(key, _loaded(known))
        return self._kept[key]

    def _read_ahead(self, following: Sequence[KnownSegment], known: KnownSegment) -> None:
        """What fails of those that follow is asked for again when its turn comes."""
        unread = [item for item in following if item.listed.key not in self._kept]
        with readers() as pool:
            answers = [(item, pool.submit(_loaded, item)) for item in (*unread, known)]
        for item, answer in answers:
            if item is known or answer.exception() is None:
                self._keep(item.listed.key, answer.result())

    def _keep(self, key: str, batches: Batches) -> None:
        self._kept[key] = batches
        if len(self._kept) > STATUS_BATCHES_KEPT:
            del self._kept[next(iter(self._kept))]


def _loaded(known: KnownSegment) -> Batches:
    if known.segment is None:
        raise AssertionError(f"{known.listed.key} has no batches")
    try:
        return known.segment.load()
    except StoreError:
        raise
    except (BridgeError, SegmentError) as error:
        raise UnreadBatchesError(known, problem_of(error)) from error


def asked_for(
    segments: Iterable[KnownSegment],
    states: Mapping[int, PartState],
    files: Sequence[LiveFile],
    policy: Policy,
    *,
    may_requeue: bool,
) -> list[KnownSegment]:
    """Segments whose batches will be asked for, in that order: those not published, and those that may lack rows.

    Of the latter one more each, where a transaction that is open at its end may be decided.
    """
    ordered = sorted(
        (known for known in segments if known.segment is not None),
        key=lambda known: (known.key.partition, known.key.base, known.key.last),
    )
    start = PartState()
    found = [known for known in ordered if known.key.last >= states.get(known.key.partition, start).frontier]
    if not may_requeue:
        return found
    suspects = {key for keys in lacking(ordered, states, files, policy).values() for key in keys}
    before = [None, *ordered[:-1]]
    late = [
        known
        for known, last in zip(ordered, before, strict=True)
        if known.listed.key in suspects or (last is not None and last.listed.key in suspects and _open(last))
    ]
    return list({known.listed.key: known for known in (*found, *late)}.values())


def _open(known: KnownSegment) -> bool:
    return known.segment is not None and known.segment.open_end != ()
