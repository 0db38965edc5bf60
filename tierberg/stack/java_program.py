"""A small Java program beside us that answers questions line by line: what no client of ours can ask.

One question is one line; the answer is any number of lines and an empty one. A line that begins with `!` says why
there is no answer. The program is a single source file, compiled by `java` itself, and ends with its input.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tierberg.stack.errors import StackError
from tierberg.stack.limits import ANSWER_S, KILL_S, STOP_S

#: Java compiles the program first.
_START_S = 60.0
_REFUSAL = "!"


class JavaProgram:
    """The running program; use as a context manager. Not for use by several threads at once."""

    def __init__(self, source: Path, arguments: Sequence[str], *, jars: Path | None = None) -> None:
        """Starts it. The first question waits until it is compiled.

        Args:
            source: the file, with a `main`.
            arguments: of `main`.
            jars: folder of its class path; it logs nothing, whatever they bring.
        """
        self._name = source.stem
        libraries = [] if jars is None else ["-Dlog4j2.level=OFF", "-cp", f"{jars}/*"]
        self._process = subprocess.Popen(
            ["java", "-Xmx96m", "-XX:TieredStopAtLevel=1", *libraries, str(source), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._start_s = _START_S
        threading.Thread(target=self._pump, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, question: str, timeout_s: float = ANSWER_S) -> list[str]:
        """The lines of the answer; `timeout_s` counts for each of them.

        Raises:
            StackError: the program refused, ended, or gave no answer in time.
        """
        if self._process.stdin is None:
            raise StackError(f"{self._name} has no input")
        try:
            self._process.stdin.write(f"{question}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise StackError(f"{self._name} has ended: {error}") from error
        answer: list[str] = []
        while line := self._next_line(timeout_s + self._start_s):
            answer.append(line)
        self._start_s = 0.0
        if answer and answer[0].startswith(_REFUSAL):
            raise StackError(f"{self._name}: {question!r}: {answer[0][len(_REFUSAL) :]}")
        return answer

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(KILL_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _next_line(self, timeout_s: float) -> str:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty as error:
            raise StackError(f"no answer of {self._name} within {timeout_s:.0f} s") from error
        if line is None:
            raise StackError(f"{self._name} has ended: is the server it asks running?")
        return line

    def _pump(self) -> None:
        if self._process.stdout is None:
            return
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
