"""One server process: started, watched, stopped, killed, frozen, always by its own pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tierberg.stack.errors import StackError
from tierberg.stack.limits import KILL_S, LOG_TAIL_BYTES, STOP_S


class ServerProcess:
    """A child process whose output goes to one log file, appended across restarts.

    It runs in a session of its own: an interrupt at the terminal reaches us first, and servers are stopped in order.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Nothing is started yet; `env` is added to our own environment, `stop_signal` asks it to end."""
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.cwd = cwd
        self.env = dict(env or {})
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            StackError: it was never started.
        """
        if self._process is None:
            raise StackError(f"{self.name} was not started")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs now; a frozen process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """How it ended, the negative signal number if by one; None while it runs or was never started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it.

        Raises:
            StackError: it runs already, or the program is not there.
        """
        if self.alive:
            raise StackError(f"{self.name} runs already as process {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._log_start = out.tell()
            self._process = self._spawn(out)

    def _spawn(self, out: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.argv,
                cwd=self.cwd,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise StackError(f"cannot start {self.name}: {error}") from error

    def require_alive(self) -> None:
        """Raise StackError with the end of the log when the process has ended."""
        if not self.alive:
            raise StackError(f"{self.name} ended with code {self.returncode}; {self.log} ends:\n{self.log_tail()}")

    def output(self) -> str:
        """What it has written since its last start."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    def log_tail(self) -> str:
        """The end of its log, at most LOG_TAIL_BYTES."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ask it to end; kill it when it has not after `timeout_s` seconds. Does nothing when it has ended."""
        if self._process is None or not self.alive:
            return
        # A frozen process would not see the request.
        self.resume()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: no chance to clean up. Returns when the process is gone."""
        if self._process is None or not self.alive:
            return
        self._process.kill()
        try:
            self._process.wait(KILL_S)
        except subprocess.TimeoutExpired as error:
            raise StackError(f"{self.name} (process {self.pid}) survived SIGKILL for {KILL_S:.0f} s") from error

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: go on after :meth:`freeze`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
