"""One stock Kafka node (broker and controller) as a local process.

Everything it writes is in one folder: `server.properties`, `data/`, `broker.log`. It listens on the loopback interface,
on ports found free when the object is made and kept across restarts.
"""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from stack.errors import StackError
from stack.jars import KAFKA_VERSION, broker_jars
from stack.limits import BROKER_START_S, FORMAT_S
from stack.ports import LOOPBACK, free_ports
from stack.process import ServerProcess
from stack.tiering import Plugin, tiering_properties
from stack.waiting import wait_for

_LOG4J = Path(__file__).with_name("log4j2.yaml")


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How the node is run.

    Attributes:
        version: of the jars from the registry.
        heap: Java heap, as in `-Xmx`; also its initial size.
        jvm: more options of the Java machine.
        properties: lines of `server.properties` that win over ours.
    """

    version: str = KAFKA_VERSION
    heap: str = "512m"
    jvm: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


class KafkaBroker:
    """A single-node cluster. Make it, :meth:`start` it, :meth:`stop` it, and start it again on the same data."""

    def __init__(self, folder: Path, plugin: Plugin | None, options: BrokerOptions | None = None) -> None:
        """Nothing is written or started yet; without `plugin` the broker does not tier."""
        self.folder = folder
        self.options = options or BrokerOptions()
        self.port, self._controller_port, self.jmx_port = free_ports(3)
        self._plugin = plugin
        self._jars = broker_jars(self.options.version)
        self._properties = folder / "server.properties"
        self.data = folder / "data"
        self.process = ServerProcess("broker", self._argv(), folder / "broker.log", cwd=folder)

    @property
    def bootstrap(self) -> str:
        """What clients connect to."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Format the folder if it is new, start, and return when the broker answers.

        Raises:
            StackError: it ended or did not answer in BROKER_START_S; the message quotes its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if not (self.data / "meta.properties").exists():
            self._format()
        self.process.start()
        wait_for(f"the broker to answer at {self.bootstrap}", self._answers, BROKER_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def local_segments(self, topic: str, partition: int) -> dict[int, int]:
        """Size in bytes of each local segment's log file by base offset; those marked for deletion are not counted.

        The lowest base offset is the start of the local log: records below it can only come from the remote store.
        """
        sizes: dict[int, int] = {}
        for path in (self.data / f"{topic}-{partition}").glob("*.log"):
            # The broker may delete one between the listing and the look at its size.
            with contextlib.suppress(FileNotFoundError):
                sizes[int(path.stem)] = path.stat().st_size
        return sizes

    def _answers(self) -> bool:
        self.process.require_alive()
        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return len(client.list_topics(timeout=2).brokers) == 1
        except Exception as error:  # noqa: BLE001 - every failure of the client means "not yet"; the deadline decides
            del error
            return False

    def _settings(self) -> dict[str, str]:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{LOOPBACK}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        if self._plugin is not None:
            settings |= tiering_properties(self._plugin)
        return settings | dict(self.options.properties)

    def _argv(self) -> list[str]:
        jmx = "-Dcom.sun.management.jmxremote"
        return [
            "java",
            f"-Xms{self.options.heap}",
            f"-Xmx{self.options.heap}",
            "-XX:+ExitOnOutOfMemoryError",
            *self.options.jvm,
            f"{jmx}.port={self.jmx_port}",
            f"{jmx}.rmi.port={self.jmx_port}",
            f"{jmx}.host={LOOPBACK}",
            f"-Djava.rmi.server.hostname={LOOPBACK}",
            f"{jmx}.authenticate=false",
            f"{jmx}.ssl=false",
            f"-Dlog4j2.configurationFile={_LOG4J}",
            "-cp",
            f"{self._jars}/*",
            "kafka.Kafka",
            str(self._properties),
        ]

    def _format(self) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        argv = ["java", f"-Dlog4j2.configurationFile={_LOG4J}", "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        argv += ["format", f"--cluster-id={cluster_id}", "-c", str(self._properties)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FORMAT_S, check=False)
        if done.returncode != 0:
            raise StackError(f"cannot format {self.data}:\n{(done.stdout + done.stderr)[-2000:]}")
