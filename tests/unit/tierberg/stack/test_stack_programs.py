"""A program that a server of the stack needs and that is not there is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierberg.stack.errors import StackError
from tierberg.stack.go_program import GoProgram
from tierberg.stack.servers import azurite, postgres


@pytest.fixture(autouse=True)
def nothing_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def test_go() -> None:
    absent = GoProgram("example.com/some/server", "v0.0.0")
    assert not absent.can_be_had()
    with pytest.raises(StackError, match="Go is needed to build server"):
        absent.path()


def test_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azurite, "_FOLDER", tmp_path / "absent")
    with pytest.raises(StackError, match=r"Node\.js with npm is needed"):
        azurite.program()


def test_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_FOLDERS", ())
    with pytest.raises(StackError, match="PostgreSQL's program postgres is needed"):
        postgres.PostgresServer(tmp_path / "postgres")
    assert not list(tmp_path.rglob("data"))


def test_programs_that_are_not_on_the_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("14", "15"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "initdb").touch()
    monkeypatch.setattr(postgres, "_FOLDERS", (f"{tmp_path}/*/bin",))
    assert postgres._program("initdb") == str(tmp_path / "15" / "bin" / "initdb")
