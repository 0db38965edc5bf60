"""The matrix: every fail point of the product, with each victim. A point whose step nobody can reach raises here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_catalog.failpoints import POINTS
from tests.faults_matrix.case_run import Victim
from tests.faults_matrix.scenarios import Deleting, Evolving, Fetching, Refused, Scenario, StateSweep
from tests.faults_matrix.scenarios_command import DeletingDerived, Dropping, Maintaining, Undeleting, Undoing
from tests.faults_matrix.scenarios_merge import Merging
from tests.faults_matrix.scenarios_requeue import Requeueing

VICTIMS: tuple[Victim, ...] = ("bridge", "broker")

#: How a step is reached.
STEPS: Mapping[str, Scenario] = {
    "copy": Scenario(),
    "evolve": Evolving(),
    "fetch": Fetching(),
    "publish": Scenario(),
    "delete": Deleting(),
    "reclaim": Deleting(),
    "maintain": Maintaining(),
    "merge": Merging(),
    "undelete": Undeleting(),
    "requeue": Requeueing(),
    "drop": Dropping(),
}
#: Points that need more than their step.
SPECIAL: Mapping[str, Scenario] = {
    "convert": Scenario(hit=2),
    "upload-write": Scenario(hit=2),
    "fetch-send": Fetching(hit=2),
    "refused": Refused(),
    "state-sweep": StateSweep(),
    "before-tombstone": Deleting(hit=2),
    "reclaim-derived": DeletingDerived(),
    "merge-pointer": Merging(hit=2),
    "undelete-turn": Undeleting(hit=2),
    "undelete-undo": Undoing(hit=2),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One point and who is killed there; `broker`: while whoever reached the point is stopped at it."""

    point: str
    victim: Victim

    @property
    def step(self) -> str:
        """Of the point."""
        return POINTS[self.point].step

    @property
    def scenario(self) -> Scenario:
        """How it is reached. Raises KeyError for a step without a scenario."""
        return SPECIAL.get(self.point) or STEPS[self.step]

    def __str__(self) -> str:
        return f"{self.step}:{self.point}:{self.victim}"


def all_cases() -> list[Case]:
    """In the order of the table of points."""
    return [Case(point, victim) for point in POINTS for victim in VICTIMS]


#: What CI runs, on the embedded store: a copy, a commit and an answer cut off.
SAMPLE: tuple[Case, ...] = (Case("before-index", "bridge"), Case("after-swap", "bridge"), Case("after-index", "broker"))
