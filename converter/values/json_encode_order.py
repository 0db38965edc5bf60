"""The order in which a writer puts an object's members, from the orders in which a sample has some of them."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

#: Different sequences of members that are looked at, the most frequent first.
_SEQUENCES_MAX: Final = 32


def member_order(count: int, seen: Counter[tuple[int, ...]], names: Sequence[str]) -> tuple[int, ...]:
    """All of 0 … count - 1 in an order that most of the sequences follow.

    Members no sequence has come as early as the schema's order allows; or, where all sequences are sorted by name and
    not as in the schema, at their place by name.

    Args:
        count: of members.
        seen: sequences of distinct numbers, by how often they were seen.
        names: of the members; those from len(names) on have none and are last where nothing else is seen.
    """
    ranks = list(range(count))
    if not all(map(_rises, seen)) and all(_rises([names[i] for i in one if i < len(names)]) for one in seen):
        by_name = sorted(range(len(names)), key=names.__getitem__)
        for rank, member in enumerate(by_name):
            ranks[member] = rank
    order = sorted(range(count), key=ranks.__getitem__)
    edges: set[tuple[int, int]] = set()
    for sequence, _ in seen.most_common(_SEQUENCES_MAX):
        more = edges | set(itertools.pairwise(sequence))
        places = {member: place for place, member in enumerate(order)}
        if not _rises([places[member] for member in sequence]):
            found = _sorted(ranks, more)
            if found is None:
                continue
            order = found
        edges = more
    return tuple(order)


def _rises(numbers: Sequence[int] | Sequence[str]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))  # type: ignore[operator]


def _sorted(ranks: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int] | None:
    """The order that follows all edges, lowest ranks first; None where they go in a circle."""
    behind: dict[int, list[int]] = {}
    waits = [0] * len(ranks)
    for before, after in edges:
        behind.setdefault(before, []).append(after)
        waits[after] += 1
    ready = [(rank, member) for member, rank in enumerate(ranks) if waits[member] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, member = heapq.heappop(ready)
        order.append(member)
        for after in behind.get(member, ()):
            waits[after] -= 1
            if waits[after] == 0:
                heapq.heappush(ready, (ranks[after], after))
    return order if len(order) == len(ranks) else None
