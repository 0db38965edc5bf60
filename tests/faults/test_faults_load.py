"""30 concurrent copies and 20 consumers on one bridge process: the figures of the benchmark, as a test that can fail.

The processor is shared with the clients, so the latency that must hold is that of consumers at 2 MiB/s each; as fast as
it goes, 20 fetches of 1 MiB are in flight always and the latency follows from the number of cores (printed only).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measures import load_measures, select
from benchmarks.run import Plan
from benchmarks.suites.load import measure

FETCH_MS_MAX = 500.0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_fetches_stay_quick_and_memory_bounded(tmp_path: Path) -> None:
    measures = select(load_measures(), ["load_fetch_max", "load_memory"])
    cases = measure(Plan(measures, quick=True, folder=tmp_path))
    target = measures["load_memory"].target
    assert target is not None
    for fetch, memory in zip(cases["load_fetch_max"], cases["load_memory"], strict=True):
        print(f"{fetch.name}: slowest {fetch.value:.0f} ms, alone {fetch.floor:.0f} ms, {fetch.extra}")
        print(f"{memory.name}: {memory.value:.0f} MiB, idle {memory.floor:.0f} MiB")
        assert memory.floor is not None
        assert memory.value <= memory.floor + (target.plus_floor or 0.0)
        assert fetch.extra["copies"] >= 30
    paced = [case for case in cases["load_fetch_max"] if "each" in case.name]
    assert len(paced) == 1
    assert paced[0].value <= FETCH_MS_MAX
