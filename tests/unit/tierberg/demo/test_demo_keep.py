"""What a demo leaves behind, and what it says about it."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from rsm_bridge.storage.local import FolderLock
from tierberg.cli import app
from tierberg.demo.errors import DemoError
from tierberg.demo.keep import ended_in_order, how_to_use, own_command
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
    command = own_command()
    tried = (f"{command} demo --verbose ", f"{command} demo --keep ", "docs/first-topic.md ")
    assert [line.strip().startswith(what) for what, line in zip(tried, following, strict=True)] == [True] * 3
    kept = _last_words(tmp_path, running, keep=True)
    assert "go on running" in kept
    assert "--keep" not in kept
    for keep in (True, False):
        assert _last_words(tmp_path, None, keep=keep) == f"Everything is in {tmp_path}; no server was left running."


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


def test_the_command_is_named_as_a_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "a b" / ".venv" / "bin"
    own.mkdir(parents=True)
    for name in ("python", "tierberg"):
        (own / name).touch(0o755)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setenv("PATH", str(own))
    assert own_command() == "tierberg"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command() == f"'{own}/tierberg'"
    monkeypatch.chdir(tmp_path / "a b")
    assert own_command() == ".venv/bin/tierberg"


@pytest.mark.parametrize(
    ("version", "there", "java", "said"),
    [
        ("3.9.0", False, True, "Kafka 3.9.0 is not supported; choose 4.3.1 or 4.4.0"),
        ("4.3.1", False, False, "no java is on PATH; a JDK 17 or newer is needed"),
        ("4.3.1", True, True, "was not made by a demo; name another folder with --data-dir"),
    ],
)
def test_a_demo_that_cannot_begin_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, there: bool, java: bool, said: str
) -> None:
    programs, folder = tmp_path / "bin", tmp_path / "demo"
    programs.mkdir()
    if java:
        (programs / "java").write_text("#!/bin/sh\necho 'openjdk version \"17\"' >&2\n")
        (programs / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    if there:
        folder.mkdir()
        (folder / "precious").touch()
    done = CliRunner().invoke(app, ["demo", "--data-dir", str(folder), "--kafka-version", version])
    assert done.exit_code == 2
    assert done.output.startswith("tierberg: ")
    assert done.output.count("\n") == 1
    assert said in done.output
    assert folder.exists() == there
