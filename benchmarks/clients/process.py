"""Starting client processes together, and collecting what they found."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from benchmarks.limits import CLIENT_READY_S, CLIENT_WORK_S


class ClientError(Exception):
    """A client process failed, ended early or was too slow; the message has its last words."""


class Client:
    """One `python -m benchmarks.clients.<name>`. Ready on entry; killed, if still alive, on exit."""

    def __init__(self, name: str, settings: Mapping[str, object]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.clients.{name}", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def wait_ready(self) -> None:
        """Raises ClientError when it is not ready in CLIENT_READY_S."""
        self._next(CLIENT_READY_S)

    def go(self) -> None:
        """Lets it work."""
        if self._process.stdin is None:
            raise ClientError(f"{self.name} has no input")
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self, timeout_s: float = CLIENT_WORK_S) -> dict[str, float]:
        """Its figures. Raises ClientError after `timeout_s` seconds or when it ended without."""
        return {key: float(value) for key, value in self._next(timeout_s).items()}

    def _next(self, timeout_s: float) -> dict[str, float]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty as error:
            raise ClientError(f"{self.name}: nothing within {timeout_s:.0f} s") from error
        if line is None:
            raise ClientError(f"{self.name} ended with code {self._process.wait(timeout=10)}")
        found: dict[str, float] = json.loads(line)
        return found

    def _pump(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)


def run_together(name: str, settings: Sequence[Mapping[str, object]]) -> tuple[list[dict[str, float]], float]:
    """Starts one client per setting, lets all go at once; returns their figures and the wall seconds until the last."""
    clients = [Client(name, one) for one in settings]
    try:
        for client in clients:
            client.wait_ready()
        started = time.perf_counter()
        for client in clients:
            client.go()
        results = [client.result() for client in clients]
        return results, time.perf_counter() - started
    finally:
        for client in clients:
            client.__exit__(None, None, None)
