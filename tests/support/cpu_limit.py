"""What unit tests may take. CPU and not time on the clock, which a busy machine stretches."""

from __future__ import annotations

import os
import time

from numba.core import event

#: Of a unit test with few examples, where nothing else runs.
CPU_SECONDS_MAX = 2.0
#: How much more it may take where much else runs, or where it is the first to import a library: a gate that is red
#: without cause is soon taken for noise.
LENIENCY = 8.0 if os.environ.get("CI") else 4.0


class Meter(event.Listener):
    """CPU seconds of this process, but for what kernels take: who calls one first compiles or loads it for all.

    Processes that a test starts are left out, since they may have kernels to compile, too.
    """

    def __init__(self) -> None:
        self._kernels = 0.0
        self._since = 0.0
        self._depth = 0

    def on_start(self, event: object) -> None:
        if self._depth == 0:
            self._since = time.process_time()
        self._depth += 1

    def on_end(self, event: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._kernels += time.process_time() - self._since

    def seconds(self) -> float:
        """Until now."""
        return time.process_time() - self._kernels


def problem(taken: float) -> str | None:
    """What is to be said of a test that took so many CPU seconds."""
    if taken <= CPU_SECONDS_MAX * LENIENCY:
        return None
    return f"took {taken:.1f} CPU seconds: a unit test may take {CPU_SECONDS_MAX:g} where nothing else runs"
