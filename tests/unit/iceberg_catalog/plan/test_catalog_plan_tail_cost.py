"""What transaction tails cost: files and rows that are written a second time, over a long transactional log.

Each of two producers always has a transaction open; segments are cut at fixed sizes, so nearly every one ends within
transactions; every twentieth transaction is aborted; the publisher runs after each copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from iceberg_catalog.plan.types import Derive, FileRef, Segment
from tests.property.plan_kafka import Broker
from tests.worlds.plan_support import B, Model, abort, commit, open_at_end, seg, txn

SEGMENTS, BATCHES, TRANSACTION = 120, 40, 25


@dataclass(frozen=True)
class Cost:
    """Of a whole run: segments that end in an open transaction, files, derived ones, rows of those, all rows."""

    tails: int
    files: int
    derived: int
    derived_rows: int
    rows: int
    waited: int  # rows that were not visible after their segment's publish


def log() -> list[B]:
    batches: list[B] = []
    begun, ended = [0, TRANSACTION // 2], [0, 0]
    while len(batches) < (SEGMENTS + 1) * BATCHES:
        offset = len(batches)
        turn = offset % 2
        if begun[turn] == TRANSACTION:
            ended[turn] += 1
            batches.append((abort if ended[turn] % 20 == 0 else commit)(offset, turn + 1))
            begun[turn] = 0
        else:
            batches.append(txn(offset, offset, turn + 1))
            begun[turn] += 1
    return batches


def segments(*, apart: bool, peek: bool) -> Iterator[Segment]:
    """`apart`: tails are files of their own, as a copy writes them."""
    broker = Broker(log())
    for number in range(SEGMENTS):
        base, end = number * BATCHES, (number + 1) * BATCHES
        batches = broker.log[base:end]
        opened = open_at_end(broker.log[:end])
        aborts = [entry for entry in broker.aborts() if base <= entry[2] < end]
        later = broker.later(opened, end) if peek else ()
        kept = [replace(batch, rows=not _aborted(batch, aborts)) for batch in batches]
        made = seg(f"s{number:03}", kept, checkpoint=((0, 0),), opened=opened, aborts=aborts, peeked=later)
        yield made if apart or made.tail is None else replace(made, main=_whole(made), tail=None)


def _aborted(batch: B, aborts: list[tuple[int, int, int]]) -> bool:
    return any(pid == batch.pid and first <= batch.base <= last for pid, first, last in aborts)


def _whole(segment: Segment) -> FileRef:
    assert segment.main is not None
    assert segment.tail is not None
    return replace(segment.main, last=segment.tail.last, rows=segment.main.rows + segment.tail.rows)


def run(*, apart: bool, peek: bool) -> Cost:
    model = Model()
    seen: list[Segment] = []
    tails = derived = derived_rows = waited = 0
    for segment in segments(apart=apart, peek=peek):
        seen.append(segment)
        tails += bool(segment.open_end)
        made = model.publish(*seen[-4:])
        waited += segment.last + 1 - model.state.frontier
        for piece in made.add:
            if isinstance(piece, Derive):
                derived += 1
                derived_rows += sum(last - first + 1 for _, first, last in piece.ranges)
    return Cost(tails, sum(len(plan.add) for plan in model.plans), derived, derived_rows, len(model.offsets), waited)


@pytest.fixture(scope="module")
def costs() -> dict[str, Cost]:
    return {
        "in one file": run(apart=False, peek=False),
        "apart": run(apart=True, peek=False),
        "apart, peeked": run(apart=True, peek=True),
    }


def test_nearly_every_segment_ends_in_a_transaction(costs: dict[str, Cost]) -> None:
    assert all(cost.tails > 0.9 * SEGMENTS for cost in costs.values())


def test_a_tail_of_its_own_takes_most_second_copies_away(costs: dict[str, Cost]) -> None:
    before, after = costs["in one file"], costs["apart"]
    assert before.derived > 0.7 * before.files
    assert after.derived < 0.5 * after.files
    assert after.derived_rows < 0.5 * before.derived_rows


def test_what_was_peeked_waits_for_nothing(costs: dict[str, Cost]) -> None:
    assert costs["apart"].waited > 0
    assert costs["apart, peeked"].waited == 0
    assert costs["apart, peeked"].derived < 0.2 * costs["apart, peeked"].files
