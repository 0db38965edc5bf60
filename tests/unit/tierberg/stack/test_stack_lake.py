"""What the catalog behind REST is told, and who may read it; the servers are started in the end-to-end tests."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tierberg.stack import __main__ as command
from tierberg.stack import lake as lake_module
from tierberg.stack.errors import StackError
from tierberg.stack.lake import Lake
from tierberg.stack.servers import rest_catalog
from tierberg.stack.servers.rest_catalog import RestCatalogServer, S3Warehouse

S3 = S3Warehouse(
    uri="s3://lake/warehouse", endpoint="http://127.0.0.1:9", access_key="someone", secret_key="hunter2-hunter2"
)


@pytest.fixture(autouse=True)
def nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_catalog, "rest_catalog_jars", lambda: tmp_path / "jars")


def test_tables_on_files(tmp_path: Path) -> None:
    server = RestCatalogServer(tmp_path / "catalog")
    settings = server._settings()
    assert settings["warehouse"] == f"file://{tmp_path}/catalog/warehouse"
    assert settings["io-impl"] == "org.apache.iceberg.hadoop.HadoopFileIO"
    assert server.client_properties() == {"type": "rest", "uri": server.uri}


def test_tables_in_s3(tmp_path: Path) -> None:
    server = RestCatalogServer(tmp_path / "catalog", S3)
    settings = server._settings()
    assert settings["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert settings["warehouse"] == "s3://lake/warehouse"
    assert settings["client.region"] == server.client_properties()["s3.region"] == "us-east-1"
    assert settings["s3.path-style-access"] == "true"
    assert server.client_properties()["s3.endpoint"] == "http://127.0.0.1:9"


def test_keys_are_in_no_command_line_and_in_a_file_for_us_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RestCatalogServer(tmp_path / "catalog", S3)
    monkeypatch.setattr(server.process, "start", lambda: None)
    monkeypatch.setattr(server, "_answers", lambda: True)
    server.start()
    assert not any("hunter2" in word for word in server.process.argv)
    file = tmp_path / "catalog" / "catalog.properties"
    assert "s3.secret-access-key=hunter2-hunter2\n" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_a_bridge_is_told_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierberg.stack.servers.versitygw.binary", lambda: tmp_path / "versitygw")
    made = Lake(tmp_path)
    settings = made.bridge_settings()
    assert settings["store"]["url"] == f"s3://{lake_module.BUCKET}/tierberg"
    assert settings["store"]["options"]["endpoint"] == made.s3.endpoint
    assert settings["catalog"]["properties"]["uri"] == made.catalog.uri
    assert settings["catalog"]["properties"]["s3.secret-access-key"] == made.s3.secret_key


def test_what_was_started_is_stopped_when_the_next_server_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped: list[str] = []

    class Sound:
        target, metrics_port, process = "127.0.0.1:1", 2, None

        def __init__(self, *_: object) -> None:
            """Any arguments."""

        def start(self) -> None:
            """Starts."""

        def stop(self) -> None:
            stopped.append(type(self).__name__)

    class Broken(Sound):
        bootstrap = "127.0.0.1:3"

        def start(self) -> None:
            raise StackError("the broker ended")

    monkeypatch.setattr(command, "Bridge", Sound)
    monkeypatch.setattr(command, "KafkaBroker", Broken)
    monkeypatch.setattr(command, "tierberg", lambda *_, **__: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert command.main(["--embedded", "--data-dir", str(tmp_path)]) == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert stopped == ["Broken", "Sound"]
    assert "the broker ended" in capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.timeout(1500)
def test_the_whole_stack_starts_and_ends_with_one_signal(tmp_path: Path) -> None:
    """The real command and the real servers."""
    argv = [sys.executable, "-m", "tierberg.stack", "--data-dir", str(tmp_path / "stack")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("ready"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate(timeout=10)[1]
        said = [line.split()[0] for line in lines]
        assert said == ["S3", "catalog", "bridge", "broker", "ready;"]
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        rest, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert rest == "stopping\n"
        assert time.monotonic() - started < 90
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=30)
