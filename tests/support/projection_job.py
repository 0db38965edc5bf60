"""`tierberg repartition` as a process that tests watch, wait for and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from tierberg.stack.ports import LOOPBACK

STAGES = ("start", "read", "write", "dead letters", "publish", "record", "maintenance")


class ProjectionJob:
    """The process, with the stage it is in; standard output and error are its `lines`."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Starts it: the command itself, or `spark-submit` with it."""
        self.process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable},
        )
        self.stage, self.lines = "start", list[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            said = line.strip().partition(": ")[2]
            if said in STAGES:
                self.stage = said
            elif said in {"compaction", "manifests", "expiry", "orphans", "retention"}:
                self.stage = "maintenance"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def reaches(self, stage: str, timeout_s: float = 240) -> bool:
        """Whether it came to the stage before it ended."""
        end = time.monotonic() + timeout_s
        while self.stage != stage and self.alive and time.monotonic() < end:
            time.sleep(0.005)
        return self.stage == stage

    def kill(self) -> None:
        """SIGKILL for all of it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.ended(30)

    def ended(self, timeout_s: float) -> int:
        """Waits for it. Its exit code."""
        code = self.process.wait(timeout_s)
        self._reader.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def end(self, timeout_s: float = 400) -> list[str]:
        """Waits for it. All that it said; it must have gone well."""
        code = self.ended(timeout_s)
        assert code == 0, "\n".join(line for line in self.lines if not line.startswith("\tat "))
        return self.lines
