"""With a rule switched off, random histories go wrong: the world is wide enough to need it, and the oracle sees it.

Rules that random histories miss too seldom have fixed tests alone (test_catalog_plan_switches.py): that a hole ends
transactions, and that what was taken in gives no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from iceberg_catalog.plan import decide, judge, lineage_record, plan, walk
from iceberg_catalog.plan import files as plan_files
from iceberg_catalog.plan.inputs import Input
from iceberg_catalog.plan.types import Keep, PartState, Plan, Segment, SegmentState
from rsm_bridge.tables.publish import planning
from tests.histories.running import Counts, run_history

HISTORIES_MAX = 6000


@dataclass(frozen=True)
class Switch:
    """A rule, what takes its place (owner and name → stand-in), and the world in which it must be missed."""

    rule: str
    instead: dict[tuple[Any, str], Any]
    clean: bool = True
    retention: str | float = "follow-kafka"


def all_alive(segments: Iterable[Segment], *_: object) -> list[Input]:
    return [Input(segment=segment, valid_end=segment.last + 1) for segment in segments]


def withdrawals_raise(floor: int, alive: Sequence[Input], _: object) -> int:
    return max([floor, *(item.valid_end for item in alive if item.segment.state != SegmentState.LIVE)])


def live_only(alive: Sequence[Input], *_: object) -> list[Input]:
    return [item for item in alive if item.segment.state == SegmentState.LIVE and not item.spent]


def any_marker(view: decide.View, ends: Any) -> Any:
    return decide.decide(replace(view, producer_id=np.zeros_like(view.producer_id)), ends)


def believed_at_once(*args: Any, relisted: bool, **named: Any) -> Any:
    return plan.plan(*args, relisted=True, **named)


def never_cut(files: Any, *rest: Any) -> Any:
    remove, _, _ = plan_files.outgoing(files, *rest)
    return remove, [], []


def kept_for_ever(first: int, last: int, newest: int | None, floor: int, _policy: Any) -> bool:
    return EXPIRED(first, last, newest, floor, Keep())


def without_midst(**parts: Any) -> Plan:
    return Plan(**{**parts, "midst": None})


EXPIRED = plan_files.expired
SWITCHES = [
    Switch("R1 the recorded lineage counts", {(plan, "fold"): lambda s, _: lineage_record.fold(s, PartState())}, False),
    Switch("R2 validity", {(plan, "living"): all_alive}, False),
    Switch("R3 rewind", {(plan, "rewound"): lambda _e, _f, _a, state: (None, state.frontier, state.floor)}, False),
    Switch("R4 a withdrawal is no deletion", {(plan, "raised"): withdrawals_raise}),
    Switch("R5 the floor rises", {(plan, "raised"): lambda floor, *_: floor}),
    Switch("R6 deleted segments give rows under keep", {(walk, "sources"): live_only}, True, "keep"),
    Switch("R7 list again", {(planning, "plan"): believed_at_once}),
    Switch("R8 the same producer's marker", {(judge, "decide"): any_marker}),
    Switch("R9 undecided rows wait", {(plan, "first_waiting"): lambda _, end: end}),
    Switch("R10 files of dead branches are cut", {(plan, "outgoing"): never_cut}, False),
    Switch("a commit's midst goes back with its rows", {(plan, "Plan"): without_midst}, False),
    Switch("R10 files below the floor leave", {(plan_files, "expired"): kept_for_ever}),
]


@contextmanager
def switched(instead: dict[tuple[Any, str], Any]) -> Iterator[None]:
    patches = [mock.patch.object(owner, name, stand_in) for (owner, name), stand_in in instead.items()]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.rule)
def test_without_the_rule_a_history_goes_wrong(switch: Switch) -> None:
    with switched(switch.instead):
        for seed in range(HISTORIES_MAX):
            failure = run_history(seed, clean=switch.clean, retention=switch.retention, counts=Counts())
            if failure is not None:
                assert failure.error.startswith("AssertionError"), failure.trace
                return
    raise AssertionError(f"{HISTORIES_MAX} histories do not miss rule {switch.rule}")
