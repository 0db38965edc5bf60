"""The servers of a run: S3 server and REST catalog behind flaky proxies, bridges with clocks of their own, brokers."""

from __future__ import annotations

import os
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.flaky_proxy import FlakyProxy
from tests.chaos.limits import IN_SYNC_S
from tests.chaos.patient_admin import PatientAdmin, patiently
from tests.chaos.topics import Topic
from tierberg.stack.cluster import KafkaCluster
from tierberg.stack.lake import Lake
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.tiering import tierberg
from tierberg.stack.waiting import wait_for

_CLOCK = Path(__file__).with_name("shifted_clock")
_PROJECT = Path(__file__).parents[2]
_BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "10000",
    "log.retention.check.interval.ms": "4000",
    "log.segment.delete.delay.ms": "3000",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.cleaner.enable": "true",
    "message.max.bytes": "2000000",
    "replica.fetch.max.bytes": "2000000",
}
_BRIDGE: Mapping[str, Any] = {
    "publish_interval": "1s",
    "reclaim_grace": "5s",
    "mass_delete_grace": "10s",
    "maintain_interval": "20s",
    "merge": {"files_min": 4, "age": "15s"},
    "topics": [
        {"pattern": "text-.*", "value_format": "string"},
        {"pattern": "kept", "table_retention": "keep"},
    ],
}


@dataclass(slots=True)
class Servers:
    """The whole topology. Broker ids begin at 1."""

    folder: Path
    lake: Lake
    store: FlakyProxy
    catalog: FlakyProxy
    bridges: list[Bridge]
    kafka: KafkaCluster
    admin: PatientAdmin

    @classmethod
    def make(cls, folder: Path, brokers: int, bridges: int, shim: Mapping[str, str]) -> Servers:
        """Nothing runs yet but what makes ports known."""
        lake = Lake(folder / "lake")
        store = FlakyProxy(folder / "store-proxy", lake.s3.port)
        catalog = FlakyProxy(folder / "catalog-proxy", lake.catalog.port)
        settings: dict[str, Any] = {**lake.bridge_settings(), **_BRIDGE}
        settings["store"]["options"]["endpoint"] = store.endpoint
        settings["store"]["fetch_timeout"] = "2s"
        settings["catalog"]["properties"] |= {"uri": catalog.endpoint, "s3.endpoint": store.endpoint}
        settings["catalog"]["read_timeout"] = "10s"
        made = [_bridge(folder / f"bridge-{number}", settings) for number in range(bridges)]
        plugin = tierberg(",".join(one.target for one in made), cluster_name="chaos", settings=shim)
        replicated = {"min.insync.replicas": "2"} if brokers > 1 else {}
        version = os.environ.get("KAFKA_VERSION", "4.3.1")
        kafka = KafkaCluster(
            folder / "kafka", plugin, brokers=brokers, version=version, properties={**_BROKER, **replicated}
        )
        return cls(folder, lake, store, catalog, made, kafka, PatientAdmin(kafka.bootstrap))

    def start(self) -> None:
        """All run when it returns; none is left running when it raises."""
        try:
            self.lake.start()
            self.store.start()
            self.catalog.start()
            with ThreadPoolExecutor(len(self.bridges)) as pool:
                list(pool.map(Bridge.start, self.bridges))
            self.kafka.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for process in self.processes():
            process.resume()
        self.kafka.stop()
        for bridge in self.bridges:
            bridge.stop()
        self.store.stop()
        self.catalog.stop()
        self.lake.stop()

    def processes(self) -> list[ServerProcess]:
        """Those that were started."""
        brokers = [broker.process for broker in self.kafka.brokers.values()]
        bridges = [bridge.process for bridge in self.bridges]
        found = [*brokers, *bridges, self.lake.s3.process, self.lake.catalog.process]
        return [process for process in found if process.alive]

    def heal(self) -> None:
        """Everything runs, the weather is fair, all clocks are right, every replica is in sync."""
        self.store.set()
        self.catalog.set()
        for process in self.processes():
            process.resume()
        if not self.lake.s3.process.alive:
            self.lake.s3.start()
        if not self.lake.catalog.process.alive:
            self.lake.catalog.start()
        for bridge in self.bridges:
            set_clock(bridge, 0)
        self.start_ended()
        self.wait_in_sync()

    def start_ended(self) -> None:
        """Bridges and brokers that do not run."""
        servers: list[Bridge | KafkaBroker] = [*self.bridges, *self.kafka.brokers.values()]
        for server in servers:
            if not server.process.alive:
                server.start()

    def wait_in_sync(self) -> None:
        wait_for("all replicas to be in sync", lambda: not self.admin.under_replicated(), IN_SYNC_S, 0.5)

    def create(self, topic: Topic) -> None:
        """Makes it, on all brokers, and notes its id."""
        brokers = sorted(self.kafka.brokers)
        replicas = [brokers[part % len(brokers) :] + brokers[: part % len(brokers)] for part in topic.partitions]

        def made() -> None:
            # It may be there from a request whose answer was lost.
            if topic.name not in self.admin.topic_names():
                self.admin.create_topic(topic.name, len(replicas), topic.config, replicas=replicas)

        patiently(made)
        if topic.topic_id:
            topic.former.append(topic.topic_id)
        raw = uuid.UUID(hex=self.admin.topic_id(topic.name)).bytes
        topic.topic_id = urlsafe_b64encode(raw).decode().rstrip("=")
        topic.deleted_below, topic.retained = {}, False

    def leader(self, topic: str, partition: int) -> KafkaBroker:
        number = wait_for(
            f"a leader of {topic}-{partition}", lambda: self.admin.leader(topic, partition), IN_SYNC_S, 0.5
        )
        return self.kafka.brokers[number]

    def local_start(self, topic: str, partition: int) -> int:
        """The first offset on the leader's disk."""
        return min(self.leader(topic, partition).local_segments(topic, partition), default=0)


def set_clock(bridge: Bridge, seconds: float) -> None:
    """Its clock is wrong by so much from now on."""
    bridge.folder.mkdir(parents=True, exist_ok=True)
    (bridge.folder / "clock").write_text(str(seconds))


def _bridge(folder: Path, settings: Mapping[str, Any]) -> Bridge:
    bridge = Bridge(folder, settings)
    bridge.process.env |= {"CHAOS_CLOCK": str(folder / "clock"), "PYTHONPATH": f"{_CLOCK}:{_PROJECT}"}
    return bridge
