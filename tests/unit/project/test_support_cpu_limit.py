"""A unit test that takes too long is told so; what kernels take is not its own."""

from __future__ import annotations

import time

import numba
from numba.core import event

from tests.support.cpu_limit import CPU_SECONDS_MAX, LENIENCY, Meter, problem


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_own_work_counts_and_that_of_kernels_does_not() -> None:
    meter = Meter()
    with event.install_listener("numba:compiler_lock", meter):
        start = meter.seconds()
        burn(0.1)
        own = meter.seconds() - start
        with event.trigger_event("numba:compiler_lock"), event.trigger_event("numba:compiler_lock"):
            burn(0.3)
        both = meter.seconds() - start
    assert own >= 0.09
    assert both - own < 0.2


def test_numba_tells_of_what_it_compiles() -> None:
    """Else the first test of a fresh folder would be red."""
    meter = Meter()
    with event.install_listener("numba:compiler_lock", meter):
        assert numba.njit(lambda number: number + 1)(1) == 2
    assert meter._kernels > 0


def test_what_is_said() -> None:
    assert problem(CPU_SECONDS_MAX * LENIENCY) is None
    assert problem(30.04) == "took 30.0 CPU seconds: a unit test may take 2 where nothing else runs"
