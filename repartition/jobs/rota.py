"""Whose turn it is: projections that one job keeps take turns, however many of them run at once. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class Rota(Generic[T]):
    """Who waited longest is next; who has a backlog has another turn behind all that wait.

    Attributes:
        interval: seconds from the beginning of a turn after which there was nothing left, to that of the next one; inf:
            there is none.
    """

    interval: float = math.inf
    _due: dict[T, tuple[float, int]] = field(default_factory=dict, init=False)
    _running: set[T] = field(default_factory=set, init=False)
    _number: count[int] = field(default_factory=count, init=False)

    def keep(self, those: Iterable[T], now: float) -> None:
        """Has these and no others; new ones are due. What runs ends by itself."""
        self._due = {one: self._due.get(one) or (now, next(self._number)) for one in those}

    def next(self, now: float) -> T | None:
        """Whose turn it is, and has begun; None: nobody's."""
        due = [(at, one) for one, at in self._due.items() if at[0] <= now and one not in self._running]
        if not due:
            return None
        _, one = min(due, key=lambda item: item[0])
        self._running.add(one)
        return one

    def over(self, one: T, *, began: float, now: float, again: bool) -> None:
        """The turn has ended. `again`: there is more to do at once."""
        self._running.discard(one)
        if one in self._due:
            self._due[one] = (now if again else max(now, began + self.interval), next(self._number))

    def wait(self, now: float) -> float | None:
        """Seconds until who does not run is due; inf: not before a turn is over. None: there is no turn more."""
        waiting = [at for one, (at, _) in self._due.items() if one not in self._running]
        if not self._running and all(math.isinf(at) for at in waiting):
            return None
        return max(0.0, min(waiting, default=math.inf) - now)
