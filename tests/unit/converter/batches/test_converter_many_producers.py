"""Files of a partition that very many producers write to: the work grows with the entries, not with their square."""

from __future__ import annotations

import random

import numpy as np
import pytest

from converter.batches.later_indexes import ABORTED, COMMITTED, UNKNOWN, LaterAborts
from converter.batches.transactions import Transactions
from tests.oracle.transactions import producer_snapshot, transaction_index

PRODUCERS = 150_000


@pytest.mark.timeout(60)  # by producer and entry they took minutes
def test_one_entry_for_each_of_many_producers() -> None:
    entries = [(producer, 10, 90) for producer in range(PRODUCERS)]
    snapshot = producer_snapshot([(producer, 95) for producer in range(PRODUCERS)])
    found = Transactions.parse(transaction_index(entries), snapshot)
    assert found.known
    assert len(found.aborted) == len(found.opened) == PRODUCERS
    later = LaterAborts.parse(
        [transaction_index([(producer, 95, 200) for producer in range(PRODUCERS)])], complete=True
    )
    assert (later.peek(found, 99).ends() == ABORTED).all()


def one_by_one(later: LaterAborts, opened: np.ndarray, end_offset: int) -> list[int]:
    """As the rule says it, transaction by transaction."""
    out = []
    for producer, begin in opened.tolist():
        firsts = [f for p, f, last, _ in later.aborted.tolist() if p == producer and f <= end_offset < last]
        if not firsts:
            out.append(COMMITTED if begin < later.stable else UNKNOWN)
        else:
            out.append(ABORTED if all(first == begin for first in firsts) else UNKNOWN)
    return out


@pytest.mark.parametrize("seed", range(200))
def test_many_at_once_are_judged_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    entries = [(rng.randrange(5), rng.randrange(12), 12 + rng.randrange(4) - 2) for _ in range(rng.randrange(12))]
    later = LaterAborts.parse([transaction_index(entries)], complete=rng.random() < 0.5)
    opened = np.array([(rng.randrange(6), rng.randrange(12)) for _ in range(rng.randrange(6))], np.int64).reshape(-1, 2)
    assert later.decide(opened, 11).tolist() == one_by_one(later, opened, 11)


@pytest.mark.parametrize("seed", range(50))
def test_an_entry_reaches_as_far_as_the_farthest_before_it(seed: int) -> None:
    rng = random.Random(seed)
    entries = [(rng.randrange(3), first := rng.randrange(20), first + rng.randrange(20)) for _ in range(15)]
    table = Transactions.parse(transaction_index(entries), None).aborted
    farthest: dict[int, int] = {}
    for producer, _, last, _ in table.tolist():
        assert last >= farthest.get(producer, 0)
        farthest[producer] = last
    assert {producer: max(last for p, _, last in entries if p == producer) for producer, _, _ in entries} == farthest
