"""Runs one target in a child process, and sees when it dies, hangs, or breaks a promise.

`NUMBA_BOUNDSCHECK=1` makes a kernel that reads or writes beside its arrays raise instead. Compiled that way kernels are
others, so they have a cache of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.child import FAILURES_MAX, PAGE_BYTES, Page
from tests.fuzz.registry import target_named

ROOT = Path(__file__).resolve().parents[2]
#: Loading and compiling, before the first input.
PREPARE_SECONDS = 600.0
_POLL_SECONDS = 0.2
_DEATHS_MAX = 5


@dataclass(slots=True)
class Result:
    """Of one target: how many inputs ended, failures with the files that hold their inputs, peak in bytes."""

    name: str
    inputs: int = 0
    failures: int = 0
    deaths: list[str] = field(default_factory=list)
    seconds: float = 0.0
    peak_bytes: int = 0
    corpus: int = 0

    @property
    def passed(self) -> bool:
        """Nothing failed, and something ran."""
        return self.inputs > 0 and not self.failures and not self.deaths


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and where to: `inputs` 0 for as many as there is time for, `seconds` 0 for as long as it takes."""

    seed: str
    inputs: int
    seconds: float
    folder: Path


def fuzz(name: str, plan: Plan, say: Callable[[str], None]) -> Result:
    """Runs a target until its inputs or its time are used up, again from the next input on where a child died."""
    result = Result(name)
    failed, corpus, page_path = (plan.folder / kind / name for kind in ("failures", "corpus", "pages"))
    for folder in (failed, corpus, page_path.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with page_path.open("wb") as file:
        file.truncate(PAGE_BYTES)
    page = Page(page_path)
    started = time.monotonic()
    until = started + plan.seconds if plan.seconds else None
    first = 0
    while len(result.deaths) < _DEATHS_MAX:
        command = [name, plan.seed, str(first), str(plan.inputs), str(page_path), str(failed), str(corpus)]
        death = _one(command, page, until, target_named(name).seconds_max)
        first, result.inputs, result.failures, result.peak_bytes, _ = page.read()
        if death is None:
            break
        (failed / f"{first}.input").write_bytes(page.input())
        result.deaths.append(f"input {first}: {death}")
        say(f"{name}: {result.deaths[-1]}")
        if result.failures >= FAILURES_MAX or (until is not None and time.monotonic() > until):
            break
    result.seconds = time.monotonic() - started
    result.corpus = sum(1 for _ in corpus.glob("*.input"))
    page_path.unlink()
    return result


def _one(arguments: list[str], page: Page, until: float | None, seconds_max: float) -> str | None:
    """One child; why it died, or None when it ended or was ended for its time."""
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(ROOT / ".cache" / "fuzz-kernels"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    child = subprocess.Popen([sys.executable, "-m", "tests.fuzz.child", *arguments], cwd=ROOT, env=environment)
    try:
        begun, moved = -1, time.monotonic()
        patience = PREPARE_SECONDS
        while child.poll() is None:
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            if page.read()[0] != begun:
                patience = PREPARE_SECONDS if begun < 0 else 3 * seconds_max
                begun, moved = page.read()[0], now
            elif now - moved > patience:
                child.send_signal(signal.SIGABRT)  # faulthandler then says where it hangs
                child.wait(30)
                return f"no end within {patience:g} s"
            if until is not None and now > until and begun > 0:
                return None
        if child.returncode in (0, 3):
            return None
        return f"died with {_named(child.returncode)}"
    finally:
        if child.poll() is None:
            child.kill()
            child.wait(30)


def _named(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
