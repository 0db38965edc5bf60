"""What is kept of Trino's archive, and what its server is told; it is started in the end-to-end tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tierberg.stack import __main__ as command
from tierberg.stack.errors import StackError
from tierberg.stack.servers import trino
from tierberg.stack.servers.rest_catalog import S3Warehouse
from tierberg.stack.servers.trino import TrinoServer
from tierberg.stack.trino_files import unpack

S3 = S3Warehouse(
    uri="s3://lake/warehouse", endpoint="http://127.0.0.1:9", access_key="someone", secret_key="hunter2-hunter2"
)


def archive(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> None:
    with tarfile.open(path, "w:gz") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(f"trino-server-1/{name}")
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(f"trino-server-1/{name}")
            member.type, member.linkname = tarfile.LNKTYPE, f"trino-server-1/{target}"
            made.addfile(member)


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_what_iceberg_needs_is_kept_links_as_files(tmp_path: Path) -> None:
    files = {"lib/a.jar": b"a", "plugin/hive/shared.jar": b"shared", "plugin/iceberg/own.jar": b"own", "README": b"-"}
    links = {
        "plugin/iceberg/shared.jar": "plugin/hive/shared.jar",
        "lib/b.jar": "lib/a.jar",
        "plugin/x/c.jar": "README",
    }
    archive(tmp_path / "server.tar.gz", files, links)
    unpack(tmp_path)
    assert kept(tmp_path) == {
        "lib/a.jar": b"a",
        "lib/b.jar": b"a",
        "plugin/iceberg/own.jar": b"own",
        "plugin/iceberg/shared.jar": b"shared",
    }


def test_a_link_out_of_the_archive_is_refused(tmp_path: Path) -> None:
    archive(tmp_path / "server.tar.gz", {"lib/a.jar": b"a"}, {"lib/b.jar": "../../etc/passwd"})
    with pytest.raises(StackError, match="link to nothing"):
        unpack(tmp_path)


def test_another_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="found 0"):
        unpack(tmp_path)
    archive(tmp_path / "other.tar.gz", {"bin/a": b"a"})
    with pytest.raises(StackError, match="neither"):
        unpack(tmp_path)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrinoServer:
    monkeypatch.setattr(trino, "trino_server", lambda: tmp_path / "home")
    monkeypatch.setattr(trino, "java", lambda _: tmp_path / "java")
    return TrinoServer(
        tmp_path / "trino", "http://127.0.0.1:7", S3, {"iceberg.remove-orphan-files.min-retention": "0s"}
    )


def test_it_listens_on_loopback_only_and_uses_bounded_memory(server: TrinoServer) -> None:
    assert server._node()["node.bind-ip"] == "127.0.0.1"
    assert server._config()["discovery.uri"] == server.uri == f"http://127.0.0.1:{server.port}"
    assert "-Xmx1g" in server.process.argv
    assert not any("jmx" in word for word in server.process.argv)


def test_keys_are_in_no_command_line_and_in_files_for_us_only(
    server: TrinoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.process, "start", lambda: None)
    monkeypatch.setattr(server, "_answers", lambda: True)
    server.start()
    assert not any("hunter2" in word for word in server.process.argv)
    file = tmp_path / "trino" / "catalog" / "lake.properties"
    text = file.read_text()
    assert "s3.aws-secret-key=hunter2-hunter2\n" in text
    assert "iceberg.rest-catalog.uri=http://127.0.0.1:7\n" in text
    assert "iceberg.remove-orphan-files.min-retention=0s\n" in text
    assert file.stat().st_mode & 0o077 == 0


def test_the_stack_has_trino_only_with_the_rest_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--embedded", "--trino"])
    assert "--trino needs the REST catalog" in capsys.readouterr().err
