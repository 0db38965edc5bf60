"""Meters: CPU seconds, peak memory and percentiles. CPU always includes every thread of the process."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import psutil


@dataclass(slots=True)
class Spent:
    """What a piece of work took; filled when it ends."""

    cpu_s: float = 0.0
    wall_s: float = 0.0


@contextmanager
def spent() -> Iterator[Spent]:
    """CPU seconds of this process (all threads, user and system) and wall seconds of the `with` body."""
    result = Spent()
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        yield result
    finally:
        result.cpu_s = time.process_time() - cpu
        result.wall_s = time.perf_counter() - wall


def interleaved(work: Sequence[Callable[[], Spent]], rounds: int) -> list[list[Spent]]:
    """Runs every work once per round, in turn, so that drift of the machine meets all of them alike.

    Returns one list per work, one entry per round.
    """
    results: list[list[Spent]] = [[] for _ in work]
    for _ in range(rounds):
        for runs, one in zip(results, work, strict=True):
            runs.append(one())
    return results


def median(values: Iterable[float]) -> float:
    """The median; 0 for no values."""
    found = list(values)
    return statistics.median(found) if found else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` per cent lie, interpolated; 0 for no values."""
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent)) if len(values) else 0.0


def process_tree(pid: int) -> list[psutil.Process]:
    """The process and all its living descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def tree_cpu_s(pid: int) -> float:
    """CPU seconds the process and its descendants, ended children included, have used so far."""
    total = 0.0
    for process in process_tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
        if process.pid == pid:
            total += times.children_user + times.children_system
    return total


def thread_cpu_s(pid: int, niceness: int) -> dict[int, float]:
    """CPU seconds so far of each living thread of a process that has this niceness, by thread id (proc(5), stat)."""
    found: dict[int, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            fields = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[16]) == niceness:
                found[int(task.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def reset_peak_memory(pid: int) -> None:
    """Makes VmHWM of every process of the tree start again from its present size (proc(5), clear_refs 5)."""
    for process in process_tree(pid):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")


def peak_memory_bytes(pid: int) -> int:
    """Sum of VmHWM over the process tree."""
    return sum(_status_bytes(process.pid, "VmHWM") for process in process_tree(pid))


def memory_bytes(pid: int) -> int:
    """Sum of VmRSS over the process tree."""
    return sum(_status_bytes(process.pid, "VmRSS") for process in process_tree(pid))


def _status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


class Sampler:
    """Calls `sample` every `interval_s` seconds in a thread and keeps the largest value. Use as a context manager."""

    def __init__(self, sample: Callable[[], float], interval_s: float) -> None:
        self._sample = sample
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.peak = max(self.peak, self._sample())
