"""Servers are started, stopped, killed and frozen by their own pid, and say why they ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tierberg.stack.errors import StackError
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

STUBBORN = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PATIENT = "import time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def made() -> Iterator[list[ServerProcess]]:
    processes: list[ServerProcess] = []
    yield processes
    for process in processes:
        process.kill()


def server(made: list[ServerProcess], folder: Path, program: str) -> ServerProcess:
    process = ServerProcess("server", [sys.executable, "-c", program], folder / "log", cwd=folder)
    made.append(process)
    return process


def started(made: list[ServerProcess], folder: Path, program: str) -> ServerProcess:
    process = server(made, folder, program)
    process.start()
    wait_for("its first line", lambda: "up" in process.output(), 20)
    return process


def test_stop_asks_first(made: list[ServerProcess], tmp_path: Path) -> None:
    process = started(made, tmp_path, PATIENT)
    pid = process.pid
    process.stop(20)
    assert not process.alive
    assert not psutil.pid_exists(pid)


def test_stop_kills_what_will_not_end(made: list[ServerProcess], tmp_path: Path) -> None:
    process = started(made, tmp_path, STUBBORN)
    process.stop(0.2)
    assert not process.alive


def test_stop_reaches_a_frozen_process(made: list[ServerProcess], tmp_path: Path) -> None:
    process = started(made, tmp_path, PATIENT)
    process.freeze()
    wait_for("it to be frozen", lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 10)
    assert process.alive
    process.stop(20)
    assert not process.alive


def test_resume_lets_it_go_on(made: list[ServerProcess], tmp_path: Path) -> None:
    process = started(made, tmp_path, PATIENT)
    process.freeze()
    process.resume()
    wait_for("it to go on", lambda: psutil.Process(process.pid).status() != psutil.STATUS_STOPPED, 10)


def test_kill_and_start_again_keep_one_log(made: list[ServerProcess], tmp_path: Path) -> None:
    process = started(made, tmp_path, PATIENT)
    first = process.pid
    process.kill()
    process.start()
    wait_for("its second first line", lambda: "up" in process.output(), 20)
    assert process.pid != first
    assert process.output().count("up") == 1
    assert process.log.read_text().count("up") == 2


def test_an_early_end_is_explained_by_the_log(made: list[ServerProcess], tmp_path: Path) -> None:
    process = server(made, tmp_path, "raise SystemExit('no such luck')")
    process.start()
    wait_for("its end", lambda: not process.alive, 20)
    with pytest.raises(StackError, match=r"ended with code 1; .*\n.*no such luck"):
        process.require_alive()


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    process = ServerProcess("server", [str(tmp_path / "nothing")], tmp_path / "log", cwd=tmp_path)
    with pytest.raises(StackError, match="cannot start server"):
        process.start()
    with pytest.raises(StackError, match="was not started"):
        _ = process.pid
    process.stop()
    process.kill()


def test_it_runs_once(made: list[ServerProcess], tmp_path: Path) -> None:
    process = started(made, tmp_path, PATIENT)
    with pytest.raises(StackError, match="runs already"):
        process.start()


def test_waiting_has_a_deadline() -> None:
    before = time.monotonic()
    with pytest.raises(StackError, match="gave up after 0 s waiting for nothing"):
        wait_for("nothing", lambda: None, 0.2, 0.01)
    assert 0.2 <= time.monotonic() - before < 5


def test_waiting_returns_what_came_and_looks_at_the_deadline() -> None:
    answers = iter([0, "", "here"])
    assert wait_for("something", lambda: next(answers), 10, 0.01) == "here"
    assert wait_for("a last look", lambda: True, 0) is True
