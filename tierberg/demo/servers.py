"""The servers of the demo, a stock broker with the plugin, a bridge and a schema registry, in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierberg.stack.admin import TIERED, Admin
from tierberg.stack.jars import spark_jars
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.servers.registry import RegistryServer
from tierberg.stack.tiering import tierberg

#: Plain JSON; its rule names the format, the columns are inferred.
TOPIC = "flights"
#: Avro in the registry's wire format; no rule names it.
AVRO_TOPIC = "flights_avro"
TOPICS = (TOPIC, AVRO_TOPIC)
TABLES = {topic: f"kafka.{topic}" for topic in TOPICS}
PARTITIONS = (0, 1, 2)
BRIDGE_FOLDER = "bridge"
#: The projection of `flights`: by destination and month instead of airport and offset.
PROJECTION = "kafka.flights_by_dest"
SPARK_FOLDER = "spark"

_PROJECTION_RULE = {
    "table": PROJECTION,
    "partition_by": ["month", "bucket(16, dest)"],
    "sort_by": ["dest", "day"],
}

_TOPIC_CONFIG = {
    **TIERED,
    "segment.bytes": str(4 * 2**20),
    # The events are of 2013 and a year apart: close segments by size only.
    "segment.ms": str(20 * 365 * 24 * 3600 * 1000),
}


@dataclass(frozen=True, slots=True)
class Servers:
    """What runs, and its topics."""

    broker: KafkaBroker
    bridge: Bridge
    registry: RegistryServer
    admin: Admin

    def index_objects(self) -> list[Path]:
        """The segment indexes in the store: one for each finished copy."""
        return [path for path in (self.bridge.folder / "store" / "index").rglob("*") if path.is_file()]

    def stored_bytes(self, topic: str, kind: str) -> int:
        """Bytes of a topic's objects of one kind: `data`, `kept` or `index`."""
        folder = self.bridge.folder / "store" / kind / self.admin.topic_id(topic)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def local_bytes(self) -> int:
        """Bytes of the topics' log files on the broker's disk."""
        logs = [self.broker.local_segments(topic, number) for topic in TOPICS for number in PARTITIONS]
        return sum(sum(log.values()) for log in logs)

    def local_starts(self, topic: str) -> dict[int, int]:
        """The first offset on the broker's disk, by partition."""
        return {number: min(self.broker.local_segments(topic, number), default=0) for number in PARTITIONS}


def config_file(servers: Servers) -> Path:
    """The bridge's settings, for commands."""
    return servers.bridge.folder / "tierberg.yaml"


@contextmanager
def running_servers(folder: Path, kafka_version: str, *, keep: bool) -> Iterator[Servers]:
    """Start them and create the topics; stop them on leaving, unless `keep` and nothing failed.

    Raises:
        StackError: a server did not start.
    """
    registry = RegistryServer(folder / "registry")
    bridge = Bridge(folder / BRIDGE_FOLDER, _settings(folder, registry.url))
    plugin = tierberg(bridge.target, cluster_name="demo")
    broker = KafkaBroker(folder / "broker", plugin, BrokerOptions(version=kafka_version))
    left_running = False
    try:
        registry.start()
        bridge.start()
        broker.start()
        admin = Admin(broker.bootstrap)
        for topic in TOPICS:
            admin.create_topic(topic, len(PARTITIONS), _TOPIC_CONFIG)
        yield Servers(broker, bridge, registry, admin)
        left_running = keep
    finally:
        if not left_running:
            broker.stop()
            bridge.stop()
            registry.stop()


def _settings(folder: Path, registry_url: str) -> dict[str, Any]:
    """Of the bridge, and of the commands that share its file."""
    return {
        "publish_interval": "2s",
        "schema_registry": {"url": registry_url},
        "topics": [{"pattern": TOPIC, "value_format": "json", "copies": [_PROJECTION_RULE]}],
        "repartition": {
            "spark": {
                "spark.jars": ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar"))),
                "spark.local.dir": str(folder / SPARK_FOLDER),
                "spark.sql.shuffle.partitions": "4",
            }
        },
    }
