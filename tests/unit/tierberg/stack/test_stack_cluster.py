"""How the nodes of a cluster are told of each other, and how Java programs beside us are asked; nothing is started
that needs a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierberg.stack.cluster import KafkaCluster
from tierberg.stack.errors import StackError
from tierberg.stack.java_program import JavaProgram
from tierberg.stack.servers import kafka
from tierberg.stack.servers.kafka import KafkaBroker, KafkaNode
from tierberg.stack.tiering import Plugin

PLUGIN = Plugin("a.B", "/plugins/b.jar")
ECHO = """
public final class Echo {
    public static void main(String[] args) throws Exception {
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("end")) return;
            if (line.equals("hang")) Thread.sleep(60_000);
            if (line.startsWith("!")) System.out.println(line);
            else for (String word : line.split(" ")) System.out.println(args[0] + word);
            System.out.println();
        }
    }
}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaCluster:
    monkeypatch.setattr(kafka, "broker_jars", lambda version: tmp_path / f"kafka-{version}")
    return KafkaCluster(
        tmp_path,
        PLUGIN,
        properties={"a": "1"},
        features={"transaction.version": 1},
    )


def test_brokers_share_one_controller(cluster: KafkaCluster) -> None:
    settings = {number: broker._settings() for number, broker in cluster.brokers.items()}
    assert sorted(settings) == [1, 2, 3]
    (voters,) = {found["controller.quorum.voters"] for found in settings.values()}
    controller = cluster._controller._settings()
    assert controller["controller.quorum.voters"] == voters
    assert controller["process.roles"] == "controller"
    assert controller["listeners"] == f"CONTROLLER://{voters.partition('@')[2]}"
    assert "advertised.listeners" not in controller
    assert {broker.node.cluster_id for broker in (*cluster.brokers.values(), cluster._controller)} == {
        cluster.brokers[1].node.cluster_id
    }


def test_every_broker_listens_for_itself_and_keeps_three_copies(cluster: KafkaCluster) -> None:
    assert cluster.bootstrap.split(",") == [broker.bootstrap for broker in cluster.brokers.values()]
    assert len(set(cluster.bootstrap.split(","))) == 3
    for number, broker in cluster.brokers.items():
        settings = broker._settings()
        assert settings["node.id"] == str(number)
        assert settings["process.roles"] == "broker"
        assert settings["listeners"] == settings["advertised.listeners"] == f"PLAINTEXT://{broker.bootstrap}"
        assert settings["offsets.topic.replication.factor"] == "3"
        assert settings["rlmm.config.remote.log.metadata.topic.replication.factor"] == "3"


def test_settings_of_one_broker_can_change_before_its_next_start(cluster: KafkaCluster) -> None:
    broker = cluster.brokers[3]
    broker.options = broker.options.with_properties({"b": "3"})
    assert [broker._settings().get("b") for broker in cluster.brokers.values()] == [None, None, "3"]
    assert {broker._settings()["a"] for broker in cluster.brokers.values()} == {"1"}


def test_a_broker_with_two_log_folders_sees_and_wipes_both(cluster: KafkaCluster) -> None:
    broker = cluster.brokers[2]
    assert broker._settings()["log.dirs"] == f"{broker.folder / 'data'},{broker.folder / 'data-2'}"
    for number, log_folder in enumerate(broker.log_folders):
        (log_folder / f"t-{number}").mkdir(parents=True)
        (log_folder / f"t-{number}" / "00000000000000000007.log").write_bytes(b"123")
    assert [broker.local_segments("t", number) for number in (0, 1)] == [{7: 3}, {7: 3}]
    broker.wipe()
    assert [broker.local_segments("t", number) for number in (0, 1)] == [{}, {}]


def test_a_node_alone_is_its_own_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "broker_jars", lambda version: tmp_path)
    broker = KafkaBroker(tmp_path / "broker", None)
    assert broker.node == KafkaNode()
    assert broker._settings()["controller.quorum.voters"] == broker.controller


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    source = tmp_path / "Echo.java"
    source.write_text(ECHO)
    return source


def test_a_java_program_answers_line_by_line(echo: Path) -> None:
    with JavaProgram(echo, [">"]) as program:
        assert program.ask("one two") == [">one", ">two"]
        with pytest.raises(StackError, match="no such thing"):
            program.ask("!no such thing")
        assert program.ask("three") == [">three"]
        with pytest.raises(StackError, match="Echo has ended"):
            program.ask("end")


def test_a_java_program_that_hangs_is_not_waited_for(echo: Path) -> None:
    with JavaProgram(echo, [">"]) as program:
        program.ask("up")
        with pytest.raises(StackError, match="no answer of Echo"):
            program.ask("hang", timeout_s=0.5)
        program._process.kill()
