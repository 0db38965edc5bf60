"""The fault matrix is whole: a case for each fail point and victim, and nothing counts as passed that did not run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from iceberg_catalog.failpoints import POINTS
from tests.faults_matrix.cases import SAMPLE, SPECIAL, STEPS, VICTIMS, Case, all_cases
from tests.faults_matrix.matrix_table import Outcome, Result, later, lines

ROOT = Path(__file__).resolve().parents[3]


def test_each_point_has_a_case_for_each_victim() -> None:
    cases = all_cases()
    assert Counter(case.point for case in cases) == dict.fromkeys(POINTS, len(VICTIMS))
    assert len(set(cases)) == len(cases) >= 40
    assert set(VICTIMS) == {"bridge", "broker"}


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_each_case_can_be_provoked(case: Case) -> None:
    assert case.step in STEPS, f"{case.point}: no scenario in tests/faults_matrix/cases.py reaches step {case.step}"
    assert case.scenario.hit >= 1


def test_no_scenario_is_for_nothing() -> None:
    assert set(STEPS) == {point.step for point in POINTS.values()}
    assert set(SPECIAL) <= set(POINTS)


def test_the_sample_is_of_the_matrix_and_has_both_victims() -> None:
    assert set(SAMPLE) <= set(all_cases())
    assert {case.victim for case in SAMPLE} == set(VICTIMS)


def test_nothing_in_the_matrix_may_be_skipped() -> None:
    skipping = re.compile(r"pytest\.(skip|xfail|importorskip)|mark\.(skip|xfail)")
    found = [path.name for path in (ROOT / "tests" / "faults_matrix").glob("*.py") if skipping.search(path.read_text())]
    assert not found


def test_the_table_counts_a_skip_as_failed() -> None:
    results = {
        Case("before-index", "bridge"): Result("passed", 11.6),
        Case("before-index", "broker"): Result("SKIPPED", 0.0),
        Case("after-drop", "bridge"): Result("FAILED", 60.2),
    }
    assert list(lines(results)) == [
        "step      point         bridge        broker",
        "copy      before-index  passed 12 s   SKIPPED 0 s",
        "drop*     after-drop    FAILED 60 s   -",
        "* a command reaches the point and is killed in place of the bridge",
        "1 passed, 2 failed",
    ]


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        ([None, "passed", None], "passed"),
        (["FAILED", None], "FAILED"),
        ([None, "FAILED", None], "FAILED"),
        ([None, "passed", "FAILED"], "FAILED"),
        (["SKIPPED", None], "SKIPPED"),
        ([None], "BROKEN OFF"),
        ([None, None], "BROKEN OFF"),
    ],
)
def test_the_worst_phase_of_a_case_decides_and_one_never_run_is_no_pass(
    phases: list[Outcome | None], outcome: Outcome
) -> None:
    result = None
    for phase in phases:
        result = later(result, phase, 1.5)
    assert result == Result(outcome, 1.5 * len(phases))
