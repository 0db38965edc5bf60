"""What a demo leaves behind, and what it says about it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rsm_bridge.storage.local import FolderLock
from tierberg.demo.errors import DemoError
from tierberg.demo.keep import ended_in_order, how_to_use
from tierberg.demo.main import _fresh_folder, _last_words


def servers(folder: Path) -> Any:
    def process(name: str, pid: int) -> SimpleNamespace:
        return SimpleNamespace(pid=pid, log=folder / f"{name}.log")

    return SimpleNamespace(
        broker=SimpleNamespace(bootstrap="127.0.0.1:1234", process=process("broker", 41)),
        bridge=SimpleNamespace(
            target="127.0.0.1:77", metrics_port=78, folder=folder / "bridge", process=process("bridge", 42)
        ),
        registry=SimpleNamespace(url="http://127.0.0.1:79/apis", process=process("registry", 43)),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_unwinds(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stopped: list[bool] = []
    with pytest.raises(SystemExit) as left, ended_in_order():  # noqa: PT012 the block is what is tested
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            stopped.append(True)
    assert left.value.code == 128 + number
    assert stopped
    assert signal.getsignal(number) is before


def test_the_commands_can_be_run_as_they_stand(tmp_path: Path) -> None:
    text = how_to_use(servers(tmp_path))
    programs = re.findall(r' -c "([^"]*)"$', text, re.MULTILINE)
    assert len(programs) == 2
    for program in programs:
        compile(program, "printed", "exec")
        assert not set("$`\\!") & set(program), "the shell would change it"
    consume, query = programs
    assert "127.0.0.1:1234" in consume
    assert f"sqlite:///{tmp_path / 'bridge' / 'catalog.db'}" in query
    assert text.endswith("kill 41 42 43")
    assert f"repartition flights --config {tmp_path / 'bridge' / 'tierberg.yaml'}\n" in text
    assert "http://127.0.0.1:79/apis" in text
    assert "http://127.0.0.1:78/metrics" in text


def test_the_last_words_are_true(tmp_path: Path) -> None:
    running = servers(tmp_path)
    where, *following = _last_words(tmp_path, running, keep=False).splitlines()
    assert str(tmp_path) in where
    tried = ("tierberg demo --verbose ", "tierberg demo --keep ", "docs/first-topic.md ")
    assert [line.strip().startswith(what) for what, line in zip(tried, following, strict=True)] == [True] * 3
    kept = _last_words(tmp_path, running, keep=True)
    assert "go on running" in kept
    assert "--keep" not in kept
    assert "no server was left running" in _last_words(tmp_path, None, keep=True)


def test_the_folder_of_a_demo_is_made_anew(tmp_path: Path) -> None:
    folder = _fresh_folder(tmp_path / "demo")
    (folder / "old").touch()
    assert not (_fresh_folder(folder) / "old").exists()


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(DemoError, match="was not made by a demo"):
        _fresh_folder(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_folder_whose_servers_run_is_left_alone(tmp_path: Path) -> None:
    folder = _fresh_folder(tmp_path / "demo")
    lock = FolderLock(folder / "bridge")
    with pytest.raises(DemoError, match="stop them first"):
        _fresh_folder(folder)
    assert (folder / "bridge").exists()
    lock.close()
    assert not (_fresh_folder(folder) / "bridge").exists()
