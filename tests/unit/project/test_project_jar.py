"""`tierberg jar` gives the broker's jar out of the installation."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tierberg.cli import app
from tierberg.stack import jars


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "jar"
    folder.mkdir()
    (folder / "tierberg-rsm-0.1.0.jar").write_bytes(b"jar")
    monkeypatch.setattr(jars, "SHIM_DIST", folder)
    return folder


def test_it_is_copied_and_named(tmp_path: Path, installed: Path) -> None:
    done = CliRunner().invoke(app, ["jar", "--output", str(tmp_path / "new" / "folder")])
    copied = tmp_path / "new" / "folder" / "tierberg-rsm-0.1.0.jar"
    assert (done.exit_code, done.output) == (0, f"{copied}\n")
    assert copied.read_bytes() == b"jar"


def test_an_installation_without_it_says_so(tmp_path: Path, installed: Path) -> None:
    (installed / "tierberg-rsm-0.1.0.jar").unlink()
    done = CliRunner().invoke(app, ["jar", "--output", str(tmp_path)])
    assert done.exit_code == 2
    assert done.output.startswith(f"tierberg: expected one jar in {installed}, found 0")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["jar", "--output", str(tmp_path / "file" / "below")])
    assert (done.exit_code, done.output) == (2, f"tierberg: --output {tmp_path}/file/below: Not a directory\n")
