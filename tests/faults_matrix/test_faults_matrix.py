"""`make faults`: kill −9 of bridge and broker at every fail point; table, fetches and producers agree afterwards."""

from __future__ import annotations

import pytest

from tests.faults_matrix.cases import SAMPLE, Case, all_cases
from tests.faults_matrix.running import run_case
from tests.faults_matrix.world import World


@pytest.mark.e2e
@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_a_kill_at_a_point(world: World, case: Case) -> None:
    run_case(world, case)


@pytest.mark.e2e
@pytest.mark.smoke
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_the_sample(small_world: World, case: Case) -> None:
    run_case(small_world, case)
