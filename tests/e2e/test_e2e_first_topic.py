"""docs/first-topic.md, block by block: folders and ports are the test's own, nothing else differs.

The scripts of Kafka's download are not among its jars in the registry; two stand-ins take the same options.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-topic.md"
STAND_INS = {
    "kafka-topics.sh": """
import argparse, os
from confluent_kafka.admin import AdminClient, NewTopic
asked = argparse.ArgumentParser()
asked.add_argument("--bootstrap-server"); asked.add_argument("--create", action="store_true")
asked.add_argument("--topic"); asked.add_argument("--partitions", type=int)
asked.add_argument("--config", action="append")
given = asked.parse_args()
config = dict(pair.split("=", 1) for pair in given.config)
topic = NewTopic(given.topic, num_partitions=given.partitions, replication_factor=1, config=config)
admin = AdminClient({"bootstrap.servers": given.bootstrap_server})
admin.create_topics([topic])[given.topic].result(30)
""",
    "kafka-console-producer.sh": """
import argparse, sys
from confluent_kafka import Producer
asked = argparse.ArgumentParser()
asked.add_argument("--bootstrap-server"); asked.add_argument("--topic")
given = asked.parse_args()
producer = Producer({"bootstrap.servers": given.bootstrap_server})
for line in sys.stdin:
    producer.produce(given.topic, line.rstrip("\\n").encode())
assert producer.flush(30) == 0
""",
}


def block(name: str) -> str:
    found = re.search(rf"```\w+ {re.escape(name)}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, name
    return found[1]


class Walk:
    """A reader who copies the page's blocks into a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder, (self.port,) = folder, free_ports(1)
        self.kafka = ""
        tools = folder / "bin"
        tools.mkdir()
        for name, text in STAND_INS.items():
            (tools / name).write_text(f"#!{sys.executable}{text}", encoding="utf-8")
            (tools / name).chmod(0o755)
        self.env = {**os.environ, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def own(self, text: str) -> str:
        """The block with this test's folders and ports."""
        text = text.replace("/var/lib/tierberg", str(self.folder / "data")).replace("localhost:9092", self.kafka)
        return text.replace("127.0.0.1:7410", f"{LOOPBACK}:{self.port}").replace("/opt/tierberg", str(self.folder))

    def shell(self, text: str) -> str:
        """Runs it, as a person would; returns what it printed."""
        argv = ["bash", "-euo", "pipefail", "-c", self.own(text)]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def serve(self, text: str, log: str) -> ServerProcess:
        """Starts a bridge by the block's last line, on this test's port."""
        line = self.own(text).strip().splitlines()[-1]
        argv = [*line.split(), "--listen", f"{LOOPBACK}:{self.port}"]
        argv[0] = str(Path(sys.executable).with_name("tierberg"))
        process = ServerProcess("bridge", argv, self.folder / log, cwd=self.folder)
        process.start()
        wait_for("the bridge", lambda: "tierberg ready" in (self.folder / log).read_text(encoding="utf-8"), 60)
        return process


def test_from_nothing_to_a_select(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    walk.shell("\n".join(line for line in block("install").splitlines() if line.startswith("tierberg jar")))
    lines = dict(line.split("=", 1) for line in walk.own(block("server.properties")).splitlines())
    assert Path(lines["remote.log.storage.manager.class.path"]).is_file()
    quick = {"remote.log.manager.task.interval.ms": "500", "log.retention.check.interval.ms": "1000"}
    broker = KafkaBroker(tmp_path / "broker", None, BrokerOptions(properties={**lines, **quick}))
    bridge = walk.serve(block("serve"), "bridge.log")
    try:
        broker.start()
        walk.kafka = broker.bootstrap
        walk.shell(block("topic"))
        (tmp_path / "ask.py").write_text(walk.own(block("select")), encoding="utf-8")
        wait_for("a table", (tmp_path / "data" / "warehouse").is_dir, 60)
        walk.shell(f"{block('status').strip()} || [ $? = 1 ]")
        (wanted,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        wait_for("the rows", lambda: walk.shell("python ask.py || true").strip() == wanted.strip(), 60)
        bridge.stop()
        (tmp_path / "tierberg.yaml").write_text(walk.own(block("tierberg.yaml")), encoding="utf-8")
        check, _ = block("config").strip().splitlines()
        assert "orders" in walk.shell(check)
        bridge = walk.serve(block("config"), "again.log")
    finally:
        broker.stop()
        bridge.stop()
