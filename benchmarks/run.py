"""Runs suites, writes one result file per measure, and says what is missing."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from benchmarks.machine import load_average
from benchmarks.measures import Measure
from benchmarks.results import RESULTS_DIR, Cases, missing, summarise, write_result


@dataclass(frozen=True, slots=True)
class Plan:
    """What a suite is asked for. `folder` is its own, empty, and removed after it."""

    measures: Mapping[str, Measure]
    quick: bool
    folder: Path

    def payloads(self, *ids: str) -> list[str]:
        """Payloads of those of the measures `ids` that are asked for, each once, in order."""
        found = [payload for name in ids if name in self.measures for payload in self.measures[name].payloads]
        return list(dict.fromkeys(found))

    def wants(self, *ids: str) -> bool:
        """Whether any of these measures is asked for."""
        return any(name in self.measures for name in ids)


class Suite(Protocol):
    """A module of benchmarks/suites/."""

    def measure(self, plan: Plan) -> Cases:
        """Cases for at least every measure of `plan`."""


def run(measures: Mapping[str, Measure], *, quick: bool, directory: Path = RESULTS_DIR) -> list[str]:
    """Runs every suite these measures need and writes their result files.

    A suite that raises is reported and the others go on. Returns the ids without a result, in order.
    """
    written: dict[str, object] = {}
    for suite in _suites(measures.values()):
        wanted = {name: measure for name, measure in measures.items() if measure.suite == suite}
        say(f"{suite}: {', '.join(wanted)} (load average {load_average()})")
        started = time.perf_counter()
        try:
            cases = _run_suite(suite, wanted, quick=quick)
        except Exception:  # noqa: BLE001 - one broken suite must not hide the figures of the others; it fails the run
            traceback.print_exc()
            continue
        for name, measure in wanted.items():
            if cases.get(name):
                result = summarise(measure, cases[name], quick=quick)
                write_result(result, directory)
                written[name] = result
        say(f"{suite}: done in {time.perf_counter() - started:.0f} s")
    return missing(measures, written)


def say(text: str) -> None:
    """One progress line, on standard error."""
    print(text, file=sys.stderr, flush=True)


def _run_suite(suite: str, measures: Mapping[str, Measure], *, quick: bool) -> Cases:
    module = cast("Suite", import_module(f"benchmarks.suites.{suite}"))
    with tempfile.TemporaryDirectory(prefix="tierberg-bench-", ignore_cleanup_errors=True) as folder:
        return module.measure(Plan(measures, quick, Path(folder)))


def _suites(measures: Iterable[Measure]) -> list[str]:
    return list(dict.fromkeys(measure.suite for measure in measures))
