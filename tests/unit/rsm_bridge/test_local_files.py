"""Files named on the command line are read up to a limit, whatever they are, and what is wrong names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rsm_bridge.limits import CHECKPOINT_BYTES_MAX
from rsm_bridge.local_files import read_local
from rsm_bridge.status.verify import inspection
from tests.worlds.maintain_support import make_world, published
from tierberg.cli import app


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_local(path, 5) == read_local(path, 5, (b"12", b"34")) == b"12345"
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_local(path, 4)
    with pytest.raises(ValueError, match="does not begin with ab or cd"):
        read_local(Path(os.devnull), 5, (b"ab", b"cd"))
    with pytest.raises(OSError, match="No such file"):
        read_local(tmp_path / "none", 5)


def test_a_checkpoint_has_a_limit(tmp_path: Path) -> None:
    published(make_world(tmp_path))
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n1\n0 6\n".ljust(CHECKPOINT_BYTES_MAX, b"\n"))
    command = ["leader-epochs", "orders", "0", "--data-dir", str(tmp_path), "--current"]
    assert CliRunner().invoke(app, [*command, str(path)]).exit_code in (0, 1)
    path.write_bytes(path.read_bytes() + b"\n")
    for name in (str(path), "/dev/zero"):
        done = CliRunner().invoke(app, [*command, name])
        assert done.exit_code == 2
        assert f"--current {name}: larger than {CHECKPOINT_BYTES_MAX} bytes" in done.output


def test_what_is_inspected_has_the_limit_of_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path)
    published(world)
    path = Path(world.store.uri(world.stored("index").pop()).removeprefix("file://"))
    size = path.stat().st_size
    monkeypatch.setattr(inspection, "INDEX_BYTES_MAX", size)
    assert CliRunner().invoke(app, ["inspect", "index", str(path)]).exit_code == 0
    monkeypatch.setattr(inspection, "INDEX_BYTES_MAX", size - 1)
    done = CliRunner().invoke(app, ["inspect", "index", str(path)])
    assert done.exit_code == 1
    assert f"{path}: no segment index: larger than {size - 1} bytes" in done.output


@pytest.mark.parametrize("name", ["/dev/zero", "/etc/passwd", "/dev/null"])
def test_what_is_no_index_is_named_and_not_read(name: str) -> None:
    for kind in ("index", "segment"):
        done = CliRunner().invoke(app, ["inspect", kind, name])
        assert done.exit_code == 1
        assert f"{name}: no segment index: it does not begin with TBIX or TBTS" in done.output


def test_a_damaged_index_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"TBIX" + bytes(100))
    done = CliRunner().invoke(app, ["inspect", "index", str(path)])
    assert done.exit_code == 1
    assert f"tierberg: {path}: " in done.output


@pytest.mark.parametrize("command", [["status"], ["topic", "forget", "orders"], ["config", "check"]])
@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_server_is_a_usage_error(command: list[str], given: str) -> None:
    done = CliRunner().invoke(app, [*command, "--bootstrap-server", given])
    assert done.exit_code == 2
    assert "is empty" in done.output
