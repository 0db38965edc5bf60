"""What is kept of the schema registry's archive; the server is started in the end-to-end tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tierberg.stack.errors import StackError
from tierberg.stack.registry_files import SERVER, unpack


def archive(path: Path, names: list[str]) -> None:
    with tarfile.open(path, "w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            made.addfile(member, io.BytesIO(b"x"))


def test_the_archive_is_replaced_by_its_content(tmp_path: Path) -> None:
    archive(tmp_path / "app.tar.gz", [SERVER, "lib/main/a.jar"])
    unpack(tmp_path)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {SERVER, "lib/main/a.jar"}


def test_nothing_is_written_outside_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    archive(inside / "app.tar.gz", [SERVER, "../outside"])
    with pytest.raises(StackError, match=r"cannot unpack app\.tar\.gz"):
        unpack(inside)
    assert not (tmp_path / "outside").exists()


def test_another_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="found 0"):
        unpack(tmp_path)
    archive(tmp_path / "other.tar.gz", ["README"])
    with pytest.raises(StackError, match="has no quarkus-run"):
        unpack(tmp_path)
    (tmp_path / "other.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(StackError, match="cannot unpack"):
        unpack(tmp_path)
