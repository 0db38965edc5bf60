"""Runs one target in a child process, and sees when it dies, hangs, does not end, or breaks a promise.

`NUMBA_BOUNDSCHECK=1` makes a kernel that reads or writes beside its arrays raise instead. Compiled that way kernels are
others, so they have a cache of their own, one for each state of the sources.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rsm_bridge.serving.kernel_cache import sources_digest
from tests.fuzz.child import FAILURES_MAX, Orders
from tests.fuzz.page import PAGE_BYTES, Page, Progress, Stage
from tests.fuzz.registry import target_named
from tests.fuzz.target import MIB

ROOT = Path(__file__).resolve().parents[2]
#: Loading and compiling, before the first input.
PREPARE_SECONDS = 600.0
#: From the last input until the process has ended.
END_SECONDS = 60.0
#: What a child writes to its log beyond this is kept from here on only.
LOG_BYTES_MAX = 16 * MIB
_POLL_SECONDS = 0.2
_DEATHS_MAX = 5


@dataclass(slots=True)
class Result:
    """Of one target: how many inputs ended, failures with the files that hold their inputs, peak in bytes.

    `seconds` were spent on inputs: without loading and compiling.
    """

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
    failed, corpus, page_path, work = (plan.folder / kind / name for kind in ("failures", "corpus", "pages", "work"))
    for folder in (failed, corpus, page_path.parent, work):
        folder.mkdir(parents=True, exist_ok=True)
    with page_path.open("wb") as file:
        file.truncate(PAGE_BYTES)
    page = Page(page_path)
    until = time.monotonic() + plan.seconds if plan.seconds else 0.0
    at = Progress()
    while len(result.deaths) < _DEATHS_MAX:
        orders = Orders(name, plan.seed, at.begun, plan.inputs, until, page_path, failed, corpus)
        death = _Child(orders, page, work).watched(target_named(name).seconds_max)
        at = page.read()
        if death is None:
            break
        if at.stage == Stage.TRYING:
            (failed / f"{at.begun - 1}.input").write_bytes(page.input())
        result.deaths.append(death)
        say(f"{name}: {death}")
        if at.failures >= FAILURES_MAX or at.stage == Stage.ENDING or (until and time.monotonic() > until):
            break
        at.stage = Stage.PREPARING
        page.write(at)
    result.inputs, result.failures, result.peak_bytes, result.seconds = at.ended, at.failures, at.peak, at.seconds
    result.corpus = sum(1 for _ in corpus.glob("*.input"))
    page_path.unlink()
    shutil.rmtree(work, ignore_errors=True)
    return result


class _Child:
    """One child process. What it prints and logs goes into a file beside its failing inputs."""

    def __init__(self, orders: Orders, page: Page, work: Path) -> None:
        self._page = page
        self._log = orders.failed / "child.log"
        environment = {
            **os.environ,
            "NUMBA_BOUNDSCHECK": "1",
            "NUMBA_CACHE_DIR": str(_kernels()),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(work),
        }
        command = [sys.executable, "-m", "tests.fuzz.child", *orders.words()]
        with self._log.open("ab") as log:  # appended to: the child goes on behind a cut
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def watched(self, seconds_max: float) -> str | None:
        """Waits for its end; why it died, or None when all was tried."""
        patience = {
            Stage.PREPARING: PREPARE_SECONDS,
            Stage.TRYING: 3 * seconds_max,
            Stage.ENDING: END_SECONDS,
        }
        try:
            at, moved = self._page.read(), time.monotonic()
            while self._process.poll() is None:
                time.sleep(_POLL_SECONDS)
                self._cut_log()
                before, at = at, self._page.read()
                if (at.begun, at.ended, at.stage) != (before.begun, before.ended, before.stage):
                    moved = time.monotonic()
                elif time.monotonic() - moved > patience[Stage(at.stage)]:
                    self._process.send_signal(signal.SIGABRT)  # faulthandler then says where it hangs
                    self._process.wait(30)
                    return self._death(f"no end within {patience[Stage(at.stage)]:g} s")
            code = self._process.returncode
            return None if code in (0, 3) else self._death(f"died with {_named(code)}")
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait(30)

    def _death(self, how: str) -> str:
        at = self._page.read()
        when = {
            Stage.PREPARING: "before its first input",
            Stage.TRYING: f"input {at.begun - 1}",
            Stage.ENDING: "after its last input",
        }
        return f"{when[Stage(at.stage)]}: {how}; its last words are in {self._log}"

    def _cut_log(self) -> None:
        if self._log.stat().st_size > LOG_BYTES_MAX:
            os.truncate(self._log, 0)


def _kernels() -> Path:
    """Those of other states of the sources go."""
    found = ROOT / ".cache" / "fuzz-kernels" / sources_digest()
    for other in found.parent.glob("*"):
        if other != found:
            shutil.rmtree(other, ignore_errors=True)
    return found


def _named(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
