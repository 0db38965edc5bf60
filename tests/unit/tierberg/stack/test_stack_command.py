"""A program that is run to its end says why it failed, and a folder appears whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tierberg.stack.command import appearing, run_to_end
from tierberg.stack.errors import StackError


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_program_gets_its_variables_and_its_folder(tmp_path: Path) -> None:
    code = "import os; open(os.environ['NAME'], 'w').write(os.environ['PATH'])"
    run_to_end("write", _python(code), seconds=30, env={"NAME": "out"}, cwd=tmp_path)
    assert (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("argv", "seconds", "message"),
    [
        (_python("import sys; print('first'); sys.exit('last words')"), 30, r"cannot build it:\n.*first\n.*last words"),
        (_python("import time; time.sleep(60)"), 1, "cannot build it: it took longer than 1 s"),
        (["/nowhere/at/all"], 30, "cannot build it: .*No such file"),
    ],
)
def test_a_program_that_fails_says_why(argv: list[str], seconds: float, message: str) -> None:
    with pytest.raises(StackError, match=f"(?s){message}"):
        run_to_end("build it", argv, seconds=seconds)


def test_a_folder_appears_when_it_is_filled(tmp_path: Path) -> None:
    folder = tmp_path / "build" / "thing-1.0"
    with pytest.raises(StackError), appearing(folder) as partial:
        run_to_end("fill it", _python("open('half', 'w'); raise SystemExit(1)"), seconds=30, cwd=partial)
    assert not folder.exists()
    with appearing(folder) as partial:
        assert not list(partial.iterdir())
        (partial / "whole").touch()
        assert not folder.exists()
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_of_two_that_fill_a_folder_at_once_the_first_stays(tmp_path: Path) -> None:
    folder = tmp_path / "build" / "thing-1.0"
    with appearing(folder) as late:
        with appearing(folder) as first:
            (first / "first").touch()
        (late / "late").touch()
    assert [path.name for path in folder.iterdir()] == ["first"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
