"""One stock Kafka node as a local process: broker and controller in one, or one node of a cluster (`stack/cluster.py`).

Everything it writes is in one folder: `server.properties`, `data/`, `broker.log`. It listens on the loopback interface,
on ports found free when the object is made and kept across restarts.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tierberg.stack.command import run_to_end
from tierberg.stack.jars import KAFKA_VERSION, broker_jars
from tierberg.stack.limits import BROKER_START_S, FORMAT_S
from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.tiering import Plugin, tiering_properties
from tierberg.stack.waiting import wait_for

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

    def with_properties(self, more: Mapping[str, str]) -> BrokerOptions:
        """The same with more properties, which win over those given."""
        return replace(self, properties={**self.properties, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """What the node is in its cluster; by default all of it.

    Attributes:
        number: its id.
        roles: `broker`, `controller` or both.
        cluster_id: None: a new cluster.
        controller: id and `host:port` of the one controller, as in `1@127.0.0.1:9093`; None: it is itself.
        copies: replicas of Kafka's own topics.
        log_folders: how many; replicas can be moved between them.
        features: levels to format with that differ from the version's own, for example `transaction.version`.
    """

    number: int = 1
    roles: tuple[str, ...] = ("broker", "controller")
    cluster_id: str | None = None
    controller: str | None = None
    copies: int = 1
    log_folders: int = 1
    features: Mapping[str, int] = field(default_factory=dict)


def new_cluster_id() -> str:
    """An id in the form Kafka gives them."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class KafkaBroker:
    """One node. Make it, :meth:`start` it, :meth:`stop` it, and start it again on the same data.

    Attributes:
        options: may be replaced; the next start reads them.
        data: its first log folder.
        log_folders: all of them.
    """

    def __init__(
        self, folder: Path, plugin: Plugin | None, options: BrokerOptions | None = None, node: KafkaNode | None = None
    ) -> None:
        """Nothing is written or started yet; without `plugin` the broker does not tier."""
        self.folder = folder
        self.options = options or BrokerOptions()
        self.node = node or KafkaNode()
        self.port, self._controller_port, self.jmx_port = free_ports(3)
        self._plugin = plugin
        self._jars = broker_jars(self.options.version)
        self._properties = folder / "server.properties"
        self.data = folder / "data"
        self.log_folders = (self.data, *(folder / f"data-{more}" for more in range(2, self.node.log_folders + 1)))
        self.process = ServerProcess("broker", self._argv(), folder / "broker.log", cwd=folder)

    @property
    def bootstrap(self) -> str:
        """What clients connect to."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def controller(self) -> str:
        """What other nodes call their controller when this node is it."""
        return f"{self.node.number}@{LOOPBACK}:{self._controller_port}"

    def start(self) -> None:
        """Format the folder if it is new, start, and return when the node answers.

        Raises:
            StackError: it ended or did not answer in BROKER_START_S; the message quotes its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if not (self.data / "meta.properties").exists():
            self._format()
        self.process.start()
        wait_for(f"node {self.node.number} to answer at {self.bootstrap}", self._answers, BROKER_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def wipe(self) -> None:
        """Lose everything on its disk, as a new machine under the old name; only while it is down."""
        for log_folder in self.log_folders:
            shutil.rmtree(log_folder, ignore_errors=True)

    def local_segments(self, topic: str, partition: int) -> dict[int, int]:
        """Size in bytes of each local segment's log file by base offset; those marked for deletion are not counted.

        The lowest base offset is the start of the local log: records below it can only come from the remote store.
        """
        sizes: dict[int, int] = {}
        folders = [log_folder / f"{topic}-{partition}" for log_folder in self.log_folders]
        for path in (path for folder in folders for path in folder.glob("*.log")):
            # The broker may delete one between the listing and the look at its size.
            with contextlib.suppress(FileNotFoundError):
                sizes[int(path.stem)] = path.stat().st_size
        return sizes

    def _answers(self) -> bool:
        self.process.require_alive()
        if "broker" not in self.node.roles:
            return accepts(self._controller_port)
        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            # In a cluster another node may answer for it before it serves.
            return self.node.number in client.list_topics(timeout=2).brokers
        except Exception as error:  # noqa: BLE001 - every failure of the client means "not yet"; the deadline decides
            del error
            return False

    def _settings(self) -> dict[str, str]:
        node, copies = self.node, str(self.node.copies)
        listeners = {"broker": f"PLAINTEXT://{self.bootstrap}"}
        listeners["controller"] = f"CONTROLLER://{LOOPBACK}:{self._controller_port}"
        advertised = {"advertised.listeners": listeners["broker"]} if "broker" in node.roles else {}
        settings = {
            "process.roles": ",".join(node.roles),
            "node.id": str(node.number),
            "controller.quorum.voters": node.controller or self.controller,
            "listeners": ",".join(listeners[role] for role in node.roles),
            **advertised,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": ",".join(map(str, self.log_folders)),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "1",
        }
        if self._plugin is not None:
            settings |= tiering_properties(self._plugin, copies=node.copies)
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
        cluster_id = self.node.cluster_id or new_cluster_id()
        argv = ["java", f"-Dlog4j2.configurationFile={_LOG4J}", "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        argv += ["format", f"--cluster-id={cluster_id}", "-c", str(self._properties)]
        argv += [part for name, level in self.node.features.items() for part in ("--feature", f"{name}={level}")]
        run_to_end(f"format {self.data}", argv, seconds=FORMAT_S)
