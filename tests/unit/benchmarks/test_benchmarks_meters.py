"""Meters measure what they say."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from benchmarks.machine import load_average, machine, versions
from benchmarks.meters import (
    Sampler,
    Spent,
    interleaved,
    median,
    memory_bytes,
    peak_memory_bytes,
    percentile,
    reset_peak_memory,
    spent,
    thread_cpu_s,
    tree_cpu_s,
)
from rsm_bridge.serving.scheduling.fetch_priority import lower_priority


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_and_wall_are_told_apart() -> None:
    with spent() as busy:
        burn(0.05)
    with spent() as idle:
        time.sleep(0.05)
    assert 0.05 <= busy.cpu_s < 0.5
    assert idle.cpu_s < 0.04 < 0.05 <= idle.wall_s


def test_figures_are_kept_when_the_work_raises() -> None:
    box: list[Spent] = []

    def fails() -> None:
        with spent() as one:
            box.append(one)
            time.sleep(0.01)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert box[0].wall_s >= 0.01


def test_work_is_done_in_turn() -> None:
    order: list[str] = []

    def work(name: str) -> Callable[[], Spent]:
        def once() -> Spent:
            order.append(name)
            return Spent(cpu_s=float(len(order)))

        return once

    runs = interleaved([work("a"), work("b")], 3)
    assert order == ["a", "b"] * 3
    assert [[run.cpu_s for run in one] for one in runs] == [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]


def test_percentiles_and_medians() -> None:
    values = [float(number) for number in range(1, 102)]
    assert percentile(values, 50) == 51.0
    assert percentile(values, 99) == 100.0
    assert (percentile([], 99), median([]), median([3.0, 1.0, 2.0])) == (0.0, 0.0, 2.0)


def test_a_child_counts_with_its_parent() -> None:
    before = tree_cpu_s(os.getpid())
    subprocess.run(
        [sys.executable, "-c", "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"],
        check=True,
        timeout=60,
    )
    # The kernel counts in ticks of 10 ms.
    assert tree_cpu_s(os.getpid()) - before >= 0.25


def test_the_peak_starts_again_after_a_reset() -> None:
    pid = os.getpid()
    block = bytearray(os.urandom(64 * 1024 * 1024))
    high = peak_memory_bytes(pid)
    del block
    reset_peak_memory(pid)
    assert memory_bytes(pid) <= peak_memory_bytes(pid) < high - 32 * 1024 * 1024


def test_a_sampler_keeps_the_largest_value() -> None:
    values = iter([1.0, 7.0, 3.0] + [2.0] * 1000)
    with Sampler(lambda: next(values), 0.001) as sampler:
        time.sleep(0.1)
    assert sampler.peak == 7.0


def test_the_machine_and_versions_are_named() -> None:
    assert {"processor", "cores", "memory_gib", "system"} == set(machine())
    assert {"python", "commit", "pyarrow", "numba"} <= set(versions())
    assert load_average() >= 0


def test_cpu_of_threads_is_told_apart_by_niceness() -> None:
    ended = threading.Event()
    started = threading.Event()

    def work() -> None:
        lower_priority(7)
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            pass
        started.set()
        ended.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait(30)
        found = thread_cpu_s(os.getpid(), 7)
    finally:
        ended.set()
        thread.join()
    assert list(found) == [thread.native_id]
    assert all(cpu_s >= 0.05 for cpu_s in found.values())
