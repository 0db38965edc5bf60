"""Settings and folders of the local servers, without starting any."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tierberg.stack import jars
from tierberg.stack.errors import StackError
from tierberg.stack.ports import accepts, free_ports
from tierberg.stack.servers import kafka
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.tiering import Plugin, tierberg, tiering_properties

PLUGIN = Plugin("a.B", "/plugins/b.jar", {"bridge.target": "127.0.0.1:1"})


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaBroker:
    monkeypatch.setattr(kafka, "broker_jars", lambda version: tmp_path / f"kafka-{version}")
    return KafkaBroker(tmp_path / "broker", PLUGIN, BrokerOptions(heap="300m", properties={"node.id": "7"}))


def test_ports_differ_and_are_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(map(accepts, ports[:3]))


def test_accepts_sees_a_listener() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert accepts(listener.getsockname()[1])


def test_the_broker_listens_on_loopback_only(broker: KafkaBroker) -> None:
    settings = broker._settings()
    for key in ("listeners", "advertised.listeners"):
        assert all("://127.0.0.1:" in listener for listener in settings[key].split(","))
    argv = broker.process.argv
    assert "-Dcom.sun.management.jmxremote.host=127.0.0.1" in argv
    assert {"-Xmx300m", "-Xms300m"} <= set(argv)
    assert argv[-2:] == ["kafka.Kafka", str(broker.folder / "server.properties")]


def test_given_properties_win(broker: KafkaBroker) -> None:
    assert broker._settings()["node.id"] == "7"


def test_plugin_settings_get_their_prefix() -> None:
    lines = tiering_properties(PLUGIN)
    assert lines["remote.log.storage.system.enable"] == "true"
    assert lines["remote.log.storage.manager.class.name"] == "a.B"
    assert lines["remote.log.storage.manager.class.path"] == "/plugins/b.jar"
    assert lines["rsm.config.bridge.target"] == "127.0.0.1:1"


def test_without_plugin_the_broker_does_not_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "broker_jars", lambda version: tmp_path)
    assert not any("remote" in key for key in KafkaBroker(tmp_path, None)._settings())


def test_local_segments_are_the_log_files(broker: KafkaBroker) -> None:
    folder = broker.data / "t-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000010.log").write_bytes(b"12345")
    (folder / "00000000000000000020.log").write_bytes(b"")
    (folder / "00000000000000000000.log.deleted").write_bytes(b"gone")
    (folder / "00000000000000000010.index").write_bytes(b"index")
    assert broker.local_segments("t", 0) == {10: 5, 20: 0}
    assert broker.local_segments("t", 1) == {}


def test_the_shim_jar_must_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "SHIM_DIST", tmp_path)
    with pytest.raises(StackError, match="make shim"):
        tierberg("127.0.0.1:1")
    (tmp_path / "a.jar").touch()
    plugin = tierberg("127.0.0.1:1", cluster_name="c", settings={"fetch.timeout.ms": "5"})
    assert plugin.class_name == "io.tierberg.rsm.TierbergRemoteStorageManager"
    assert plugin.settings == {"bridge.target": "127.0.0.1:1", "cluster.name": "c", "fetch.timeout.ms": "5"}
    (tmp_path / "b.jar").touch()
    with pytest.raises(StackError, match="found 2"):
        jars.shim_jar()


class FakeMaven:
    """Stands for Maven: makes the folder it was told to fill."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append(argv)
        target = next(part.partition("=")[2] for part in argv if part.startswith("-DoutputDirectory="))
        assert Path(target).is_dir()
        return subprocess.CompletedProcess(argv, self.code, "", "no such artifact")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jars, "BUILD", tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: "mvn")
    return tmp_path


def test_jars_are_fetched_once(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = FakeMaven()
    monkeypatch.setattr(subprocess, "run", maven)
    assert jars.broker_jars("4.4.0") == build / "kafka-4.4.0" == jars.broker_jars("4.4.0")
    assert len(maven.calls) == 1
    assert "-Dkafka.version=4.4.0" in maven.calls[0]


def test_a_failed_fetch_leaves_nothing_behind(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", FakeMaven(code=1))
    with pytest.raises(StackError, match="no such artifact"):
        jars.spark_jars()
    assert not (build / "spark-4.1").exists()


def test_maven_is_asked_for(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(StackError, match="mvn"):
        jars.local_tier_jars()


def test_bridge_settings(tmp_path: Path) -> None:
    bridge = Bridge(tmp_path, {"publish_interval": "1s"})
    assert bridge.settings["listen"] == bridge.target
    assert bridge.settings["data_dir"] == str(tmp_path)
    assert bridge.settings["publish_interval"] == "1s"
    with pytest.raises(StackError, match="metrics"):
        bridge.metrics()
