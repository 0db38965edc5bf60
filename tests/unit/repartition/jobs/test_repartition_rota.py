"""Whose turn it is, in any order of ends: nobody waits for more than one turn of each other one."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from repartition.jobs.rota import Rota


@given(
    st.integers(1, 4),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_all_is_done_once_and_nobody_is_passed_twice(lanes: int, backlogs: list[int], ends: list[int]) -> None:
    """`backlogs`: turns that each needs beyond its first; `ends`: which of those that run ends next."""
    turns: Rota[int] = Rota()
    turns.keep(range(len(backlogs)), 0.0)
    left, running, done, now = dict(enumerate(backlogs)), list[int](), list[int](), 1.0
    choices = iter(ends)
    while True:
        while len(running) < lanes and (one := turns.next(now)) is not None:
            assert one not in running
            running.append(one)
        if not running:
            break
        one = running.pop(next(choices, 0) % len(running))
        done.append(one)
        now += 1.0
        turns.over(one, began=now, now=now, again=left[one] > 0)
        left[one] -= 1
    assert turns.wait(now) is None
    assert sorted(done) == sorted(one for one, more in enumerate(backlogs) for _ in range(more + 1))
    if lanes == 1:
        rounds = [[one for one, more in enumerate(backlogs) if more >= number] for number in range(max(backlogs) + 1)]
        assert done == [one for each in rounds for one in each]


def test_who_has_everything_waits_for_the_interval_and_goes_before_a_backlog() -> None:
    turns: Rota[str] = Rota(interval=60.0)
    turns.keep("ab", 0.0)
    assert (turns.next(0.0), turns.next(0.0), turns.next(0.0)) == ("a", "b", None)
    assert turns.wait(0.0) == math.inf
    turns.over("a", began=0.0, now=10.0, again=True)
    turns.over("b", began=0.0, now=20.0, again=False)
    assert turns.next(20.0) == "a"
    assert turns.wait(20.0) == 40.0
    turns.over("a", began=20.0, now=70.0, again=True)
    assert turns.next(70.0) == "b", "it is due since 60"
    turns.over("b", began=70.0, now=140.0, again=False)
    assert turns.next(140.0) == "a"
    turns.keep("bc", 141.0)
    turns.over("a", began=140.0, now=142.0, again=True)
    assert (turns.next(142.0), turns.next(142.0), turns.next(142.0)) == ("b", "c", None)
