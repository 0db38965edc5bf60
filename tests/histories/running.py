"""Runs histories, counts what they did, and shrinks one that fails."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rsm_bridge.errors import BridgeError
from tests.histories.generator import setup_of, steps
from tests.histories.kafka_steps import Setup
from tests.histories.tiered_table import model_parts
from tests.histories.world import Step, World

SHRINK_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A history that shows something wrong: the steps that were done, the last of which did. `error`: one line."""

    seed: int
    setup: Setup
    steps: tuple[Step, ...]
    error: str
    trace: str = ""


@dataclass(slots=True)
class Counts:
    """Steps that did something, by action, and by action and fault or kind; histories; failures."""

    steps: int = 0
    histories: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, name: str, kinds: Iterable[str]) -> None:
        """One step."""
        self.steps += 1
        self.actions[name] += 1
        for kind in kinds:
            self.kinds[name, kind] += 1

    def update(self, other: Counts) -> None:
        """Adds up."""
        self.steps += other.steps
        self.histories += other.histories
        self.actions.update(other.actions)
        self.kinds.update(other.kinds)

    def report(self) -> str:
        """Each action and each of its faults and kinds, with how often it was."""
        lines: list[str] = []
        for name in sorted(self.actions):
            lines.append(f"{name:20} {'':40} {self.actions[name]:10,}")
            lines += [f"{'':20} {kind:40} {n:10,}" for (own, kind), n in sorted(self.kinds.items()) if own == name]
        return "\n".join([*lines, f"{self.steps:,} steps in {self.histories:,} histories"])


def replay(setup: Setup, given: Iterable[Step], counts: Counts | None = None) -> tuple[str, list[Step], str]:
    """Does the steps. (what is wrong, or nothing; the steps that did something; a traceback)."""
    world, done = World(setup), list[Step]()
    with model_parts(world.store, setup.epochs_recorded):
        for step in given:
            try:
                kinds = world.apply(step)
            except (AssertionError, BridgeError, LookupError, ValueError, TypeError) as error:
                return (
                    f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                    [
                        *done,
                        step,
                    ],
                    traceback.format_exc(),
                )
            if kinds is not None or step[0] == "publish":  # a run that changes nothing may remember something
                done.append(step)
            if kinds is not None and counts is not None:
                counts.add(step[0], kinds)
    return "", done, ""


def run_history(seed: int, *, clean: bool, retention: str | float, counts: Counts) -> Failure | None:
    """One history by its seed."""
    setup = setup_of(seed, clean=clean, retention=retention)
    error, done, trace = replay(setup, steps(seed, setup), counts)
    counts.histories += 1
    return Failure(seed, setup, tuple(done), error, trace) if error else None


def shrink(failure: Failure, seconds: float = SHRINK_SECONDS_MAX) -> Failure:
    """The shortest history found that fails with the same kind of error: fewer steps, then smaller numbers."""
    until = time.monotonic() + seconds
    kind = kind_of(failure.error)

    def fails(given: Sequence[Step], setup: Setup = failure.setup) -> Failure | None:
        error, done, trace = replay(setup, given)
        return Failure(failure.seed, setup, tuple(done), error, trace) if error and kind_of(error) == kind else None

    best = failure
    best = fails(best.steps) or best
    if best.setup.partitions > 1:
        for setup in (replace(best.setup, partitions=1),):
            best = fails(best.steps, setup) or best
    while time.monotonic() < until:
        smaller = _fewer(best, fails, until) or _simpler(best, fails, until)
        if smaller is None:
            break
        best = smaller
    return best


def kind_of(error: str) -> str:
    """The error without its numbers and names."""
    return "".join(char for char in error.partition("[")[0] if not char.isdigit())[:40]


_Fails = Callable[..., Failure | None]


def _fewer(best: Failure, fails: _Fails, until: float) -> Failure | None:
    size = max(len(best.steps) // 2, 1)
    while size:
        for start in range(0, len(best.steps), size):
            if time.monotonic() > until:
                return None
            made = fails((*best.steps[:start], *best.steps[start + size :]), best.setup)
            if made is not None and len(made.steps) < len(best.steps):
                return made
        size //= 2
    return None


def _simpler(best: Failure, fails: _Fails, until: float) -> Failure | None:
    """One number less, or one step that happens during another less."""
    for place, (name, numbers, during) in enumerate(best.steps):
        others: list[Step] = [(name, numbers, during[:n] + during[n + 1 :]) for n in range(len(during))]
        for n, number in enumerate(numbers):
            others += [(name, (*numbers[:n], small, *numbers[n + 1 :]), during) for small in smaller_than(number)]
        for other in others:
            if time.monotonic() > until:
                return None
            made = fails((*best.steps[:place], other, *best.steps[place + 1 :]), best.setup)
            if made is not None and len(made.steps) <= len(best.steps):
                return made
    return None


def smaller_than(number: int) -> list[int]:
    """Candidates."""
    return [] if number == 0 else sorted({0, 1, number // 2, number - 1} - {number})


def text_of(failure: Failure) -> str:
    """A failing history for people, and to be pasted into a test."""
    lines: list[Any] = [f"seed {failure.seed}, {failure.setup}", failure.error]
    lines += [f"    {step!r}," for step in failure.steps]
    return "\n".join(map(str, lines))
