"""docs/first-topic.md, block by block: folders and ports are the test's own, nothing else differs.

The scripts of Kafka's download are not among its jars in the registry; two stand-ins take the same options.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.servers.rest_catalog import RestCatalogServer, S3Warehouse
from tierberg.stack.servers.versitygw import VersityGateway
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
    """A reader who copies the page's blocks into a shell.

    places: what stands in the page, and what this test has in its place.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, (port,) = folder, free_ports(1)
        self.listen = f"{LOOPBACK}:{port}"
        self.places = {
            "/var/lib/tierberg": str(folder / "data"),
            "127.0.0.1:7410": self.listen,
            "/opt/tierberg": str(folder),
        }
        tools = folder / "bin"
        tools.mkdir()
        for name, text in STAND_INS.items():
            (tools / name).write_text(f"#!{sys.executable}{text}", encoding="utf-8")
            (tools / name).chmod(0o755)
        self.env = {**os.environ, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def own(self, text: str) -> str:
        """The block with this test's folders, ports and names."""
        for place, mine in self.places.items():
            text = text.replace(place, mine)
        return text

    def shell(self, text: str) -> str:
        """Runs it, as a person would; returns what it printed."""
        argv = ["bash", "-euo", "pipefail", "-c", self.own(text)]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def save(self, name: str, block_name: str) -> None:
        """A file with what a block says."""
        (self.folder / name).write_text(self.own(block(block_name)), encoding="utf-8")

    def serve(self, text: str, log: str) -> ServerProcess:
        """Starts a bridge by the block's last line, on this test's port."""
        line = self.own(text).strip().splitlines()[-1]
        argv = [*line.split(), "--listen", self.listen]
        argv[0] = str(Path(sys.executable).with_name("tierberg"))
        process = ServerProcess("bridge", argv, self.folder / log, cwd=self.folder, env=self.env)
        process.start()
        wait_for("the bridge", lambda: "tierberg ready" in (self.folder / log).read_text(encoding="utf-8"), 60)
        return process

    @contextmanager
    def broker(self) -> Iterator[None]:
        """A broker with the page's lines, the topic of step 4 and its records."""
        self.shell("\n".join(line for line in block("install").splitlines() if line.startswith("tierberg jar")))
        lines = dict(line.split("=", 1) for line in self.own(block("server.properties")).splitlines())
        assert Path(lines["remote.log.storage.manager.class.path"]).is_file()
        quick = {"remote.log.manager.task.interval.ms": "500", "log.retention.check.interval.ms": "1000"}
        broker = KafkaBroker(self.folder / "broker", None, BrokerOptions(properties={**lines, **quick}))
        try:
            broker.start()
            self.places["localhost:9092"] = broker.bootstrap
            self.shell(block("topic"))
            yield
        finally:
            broker.stop()

    def await_answer(self) -> None:
        """Until ask.py prints what the page does."""
        (wanted,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        wait_for("the rows", lambda: self.shell("python ask.py || true").strip() == wanted.strip(), 60)


def test_from_nothing_to_a_select(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    bridge = walk.serve(block("serve"), "bridge.log")
    try:
        with walk.broker():
            walk.save("ask.py", "select")
            wait_for("a table", (tmp_path / "data" / "warehouse").is_dir, 60)
            walk.shell(f"{block('status').strip()} || [ $? = 1 ]")
            walk.await_answer()
        bridge.stop()
        walk.save("tierberg.yaml", "tierberg.yaml")
        check, _ = block("config").strip().splitlines()
        assert "orders" in walk.shell(check)
        bridge = walk.serve(block("config"), "again.log")
    finally:
        bridge.stop()


def test_the_same_on_a_rest_catalog(tmp_path: Path) -> None:
    """Credentials are in the environment, as the page says."""
    walk = Walk(tmp_path)
    s3 = VersityGateway(tmp_path / "s3")
    warehouse = S3Warehouse(
        uri="s3://my-bucket/warehouse", endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key
    )
    catalog = RestCatalogServer(tmp_path / "catalog", warehouse)
    walk.env |= {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    walk.places |= {"http://localhost:7070": s3.endpoint, "http://localhost:8181": catalog.uri}
    walk.save("rest.yaml", "rest.yaml")
    with ExitStack() as stack:
        for server in (s3, catalog):
            stack.callback(server.stop)
            server.start()
        first, _ = block("rest").strip().splitlines()
        walk.shell(first)
        bridge = walk.serve(block("rest"), "bridge.log")
        stack.callback(bridge.stop)
        stack.enter_context(walk.broker())
        walk.save("ask.py", "rest-select")
        walk.await_answer()
