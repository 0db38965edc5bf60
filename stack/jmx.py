"""A stock broker's own metrics over its JMX port, through a small Java program: no agent in the broker."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from stack.errors import StackError
from stack.limits import KILL_S, SCRAPE_S
from stack.ports import LOOPBACK

_PROGRAM = Path(__file__).with_name("JmxReader.java")
#: Java compiles the program first.
_START_S = 60.0


class JmxReader:
    """A connection to one broker; use as a context manager. Not for use by several threads at once."""

    def __init__(self, port: int) -> None:
        """Connects to a loopback port. The first read waits for the program to start."""
        self._process = subprocess.Popen(
            ["java", "-Xmx64m", str(_PROGRAM), f"{LOOPBACK}:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._timeout_s = _START_S
        threading.Thread(target=self._pump, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, pattern: str, attribute: str) -> dict[str, float]:
        """The attribute of every bean whose name matches, by canonical object name; empty when there is none.

        Raises:
            StackError: the reader ended or gave no answer in time.
        """
        if self._process.stdin is None:
            raise StackError("the JMX reader has no input")
        try:
            self._process.stdin.write(f"{pattern}\t{attribute}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise StackError(f"the JMX reader has ended: {error}") from error
        values: dict[str, float] = {}
        while line := self._next_line():
            name, _, value = line.partition("\t")
            values[name] = float(value)
        return values

    def topic_total(self, meter: str, topic: str) -> int:
        """A topic's count of a broker meter, for example `RemoteFetchBytesPerSec`.

        Counts from the broker's start; 0 when the meter was never marked.
        """
        pattern = f"kafka.server:type=BrokerTopicMetrics,name={meter},topic={topic}"
        return int(sum(self.read(pattern, "Count").values()))

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(KILL_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _next_line(self) -> str:
        try:
            line = self._lines.get(timeout=self._timeout_s)
        except queue.Empty as error:
            raise StackError(f"no JMX answer within {self._timeout_s:.0f} s") from error
        if line is None:
            raise StackError("the JMX reader has ended: is the broker running?")
        self._timeout_s = SCRAPE_S
        return line

    def _pump(self) -> None:
        if self._process.stdout is None:
            return
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
