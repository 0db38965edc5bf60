"""Unit tests are quick: with few examples, one that takes too much CPU fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.cpu_limit import Meter


@pytest.fixture(scope="session")
def cpu_meter() -> Iterator[Meter]:
    from numba.core import event

    from tests.support.cpu_limit import Meter

    meter = Meter()
    with event.install_listener("numba:compiler_lock", meter):
        yield meter


@pytest.fixture(autouse=True)
def _is_quick(cpu_meter: Meter) -> Iterator[None]:
    """Comes before the fixtures of the test alone, so that they count; what a module shares does not."""
    from tests.support.cpu_limit import problem

    start = cpu_meter.seconds()
    yield
    said = problem(cpu_meter.seconds() - start)
    if said is not None and settings.get_current_profile_name() == "quick":
        pytest.fail(said, pytrace=False)
