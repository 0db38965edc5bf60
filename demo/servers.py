"""The two servers of the demo, a stock broker with the plugin and a bridge, in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.admin import TIERED, Admin
from stack.bridge import Bridge
from stack.kafka import BrokerOptions, KafkaBroker
from stack.tiering import tierberg

TOPIC = "flights"
TABLE = "kafka.flights"
PARTITIONS = (0, 1, 2)
BRIDGE_FOLDER = "bridge"

_TOPIC_CONFIG = {
    **TIERED,
    "segment.bytes": str(4 * 2**20),
    # The events are of 2013 and a year apart: close segments by size only.
    "segment.ms": str(20 * 365 * 24 * 3600 * 1000),
}


@dataclass(frozen=True, slots=True)
class Servers:
    """A running pair and its topic."""

    broker: KafkaBroker
    bridge: Bridge
    admin: Admin

    def index_objects(self) -> list[Path]:
        """The segment indexes in the store: one for each finished copy."""
        return [path for path in (self.bridge.folder / "store" / "index").rglob("*") if path.is_file()]

    def stored_bytes(self, kind: str) -> int:
        """Bytes of all objects of one kind: `data`, `kept` or `index`."""
        return sum(path.stat().st_size for path in (self.bridge.folder / "store" / kind).rglob("*") if path.is_file())

    def local_bytes(self) -> int:
        """Bytes of the topic's log files on the broker's disk."""
        return sum(sum(self.broker.local_segments(TOPIC, number).values()) for number in PARTITIONS)

    def local_starts(self) -> dict[int, int]:
        """The first offset on the broker's disk, by partition."""
        return {number: min(self.broker.local_segments(TOPIC, number), default=0) for number in PARTITIONS}


@contextmanager
def running_servers(folder: Path, kafka_version: str, *, keep: bool) -> Iterator[Servers]:
    """Start both and create the topic; stop both on leaving, unless `keep` and nothing failed.

    Raises:
        StackError: a server did not start.
    """
    bridge = Bridge(
        folder / BRIDGE_FOLDER,
        {"publish_interval": "2s", "topics": [{"pattern": TOPIC, "value_format": "string"}]},
    )
    plugin = tierberg(bridge.target, cluster_name="demo")
    broker = KafkaBroker(folder / "broker", plugin, BrokerOptions(version=kafka_version))
    left_running = False
    try:
        bridge.start()
        broker.start()
        admin = Admin(broker.bootstrap)
        admin.create_topic(TOPIC, len(PARTITIONS), _TOPIC_CONFIG)
        yield Servers(broker, bridge, admin)
        left_running = keep
    finally:
        if not left_running:
            broker.stop()
            bridge.stop()
