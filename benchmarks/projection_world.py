"""A stock broker with the stream of orders, on a bridge or on Kafka's own LocalTieredStorage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.exceptions import NoSuchTableError

from benchmarks.clients.process import run_together
from benchmarks.limits import TIERED_S
from benchmarks.meters import tree_cpu_s
from benchmarks.orders import DAY_MS, PARTITIONS, Sized
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from tierberg.stack.admin import Admin
from tierberg.stack.jmx import JmxReader
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.tiering import local_tier, tierberg
from tierberg.stack.waiting import wait_for

TOPIC = "orders"
#: Closed by the time of their records; they stay on the broker's disk until `tier`.
_CONFIG = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.ms": "-2",
    "segment.ms": str(7 * DAY_MS),
    "message.timestamp.before.max.ms": str(2**62),
}
_QUIET_S = 3.0


@dataclass(slots=True)
class Fed:
    """One broker; `bridge` is None on LocalTieredStorage, whose folder is `remote`."""

    sized: Sized
    broker: KafkaBroker
    bridge: Bridge | None
    remote: Path
    admin: Admin
    jmx: JmxReader
    sent: int = 0

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds of broker and bridge so far."""
        bridge = tree_cpu_s(self.bridge.process.pid) if self.bridge else 0.0
        return tree_cpu_s(self.broker.process.pid), bridge

    def egress_bytes(self) -> tuple[int, int]:
        """Bytes that the broker has sent to consumers, and to the remote store."""
        return self.jmx.topic_total("BytesOutPerSec", TOPIC), self.jmx.topic_total("RemoteCopyBytesPerSec", TOPIC)

    def stored_bytes(self) -> int:
        """In the remote store; with a bridge that is the topic's table too."""
        return sum(path.stat().st_size for path in self.remote.rglob("*") if path.is_file())

    def send(self, count: int) -> None:
        """The next events."""
        settings = {
            "bootstrap": self.broker.bootstrap,
            "topic": TOPIC,
            "orders": self.sized.orders,
            "days": self.sized.days,
            "first": self.sent,
            "count": count,
        }
        run_together("orders", [settings])
        self.sent += count

    def settle(self) -> None:
        """Returns when the broker copies nothing any more."""
        copied, since = -1, time.monotonic()
        while time.monotonic() - since < _QUIET_S:
            time.sleep(0.5)
            now = self.egress_bytes()[1]
            if now != copied:
                copied, since = now, time.monotonic()

    def tier(self) -> None:
        """Has everything copied, dropped locally and, with a bridge, in the topic's table.

        Raises:
            StackError: after TIERED_S.
        """
        self.admin.set_topic_config(TOPIC, {"local.retention.ms": "1000"})
        wait_for("everything to be tiered", self._only_remote, TIERED_S)
        if self.bridge:
            wait_for("everything to be in the table", lambda: self._rows() == self.sent, TIERED_S)

    def _only_remote(self) -> bool:
        ends = self.admin.end_offsets(TOPIC, range(PARTITIONS))
        return all(min(self.broker.local_segments(TOPIC, n), default=0) >= end for n, end in ends.items())

    def _rows(self) -> int:
        assert self.bridge is not None
        catalog = open_catalog(embedded_settings(self.bridge.folder))
        try:
            head = catalog.load_table(("kafka", TOPIC)).current_snapshot()
        except NoSuchTableError:
            return 0
        finally:
            catalog.close()
        return int(head.summary["total-records"] or 0) if head is not None and head.summary is not None else 0


@contextmanager
def fed(folder: Path, sized: Sized, *, bridged: bool) -> Iterator[Fed]:
    """A broker with an empty topic; stopped at the end."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        bridge = None
        remote = folder / "remote"
        if bridged:
            bridge = Bridge(folder / "bridge", {"topics": [{"pattern": TOPIC, "value_format": "json"}]})
            bridge.start()
            stack.callback(bridge.stop)
            plugin, remote = tierberg(bridge.target, cluster_name="benchmark"), bridge.folder
        else:
            remote.mkdir()
            plugin = local_tier(remote)
        broker = KafkaBroker(folder / "broker", plugin, BrokerOptions(heap="1g"))
        broker.folder.mkdir(parents=True)
        broker.start()
        stack.callback(broker.stop)
        admin = Admin(broker.bootstrap)
        admin.create_topic(TOPIC, PARTITIONS, _CONFIG)
        jmx = stack.enter_context(JmxReader(broker.jmx_port))
        yield Fed(sized, broker, bridge, remote, admin, jmx)
