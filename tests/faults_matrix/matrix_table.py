"""The closing table: a row for each point, a column for each victim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from iceberg_catalog.failpoints import POINTS
from tests.faults_matrix.cases import VICTIMS, Case

Outcome = Literal["passed", "FAILED", "SKIPPED", "BROKEN OFF"]


@dataclass(frozen=True, slots=True)
class Result:
    """How a case ended; seconds of all its phases."""

    outcome: Outcome
    seconds: float

    def __str__(self) -> str:
        return f"{self.outcome} {self.seconds:.0f} s"


def later(before: Result | None, outcome: Outcome | None, seconds: float) -> Result:
    """A case's result after one more of its phases: the worst of them, and the time of all.

    Args:
        before: after the phases so far; None: it is the first.
        outcome: of the phase; None where the case was only made ready, or cleaned up after, and that went well. A case
            of which nothing else is heard was broken off.
        seconds: of the phase.
    """
    so_far = before or Result("BROKEN OFF", 0.0)
    if outcome is None or so_far.outcome in ("FAILED", "SKIPPED"):
        outcome = so_far.outcome
    return Result(outcome, so_far.seconds + seconds)


def lines(results: Mapping[Case, Result]) -> Sequence[str]:
    """The table of the cases that ran, and the line `N passed, N failed`: a skip is a failure."""
    shown = [point for point in POINTS if any(case.point == point for case in results)]
    width = max((len(point) for point in shown), default=0)
    found = [f"{'step':<10}{'point':<{width + 2}}" + "".join(f"{victim:<14}" for victim in VICTIMS)]
    for point in shown:
        step = POINTS[point].step + ("*" if Case(point, "bridge").scenario.by_command else "")
        cells = [f"{results.get(Case(point, victim), '-')!s:<14}" for victim in VICTIMS]
        found.append(f"{step:<10}{point:<{width + 2}}{''.join(cells)}")
    found.append("* a command reaches the point and is killed in place of the bridge")
    passed = sum(result.outcome == "passed" for result in results.values())
    return [*(line.rstrip() for line in found), f"{passed} passed, {len(results) - passed} failed"]
