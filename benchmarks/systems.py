"""What is compared: a stock broker on LocalTieredStorage, and the same broker on a bridge in its several forms.

All brokers run at once and are measured in turn; an idle one costs about two per cent of a core. Kafka's defaults
everywhere (1 GiB heap and segments), but for the intervals of tierberg.stack.tiering, which only shorten waiting.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.certificates import make_certificates
from benchmarks.clients.process import run_together
from benchmarks.limits import TIERED_S
from benchmarks.meters import tree_cpu_s
from tierberg.stack.admin import Admin
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.tiering import Plugin, local_tier, tierberg
from tierberg.stack.waiting import wait_for

#: `original`: a bridge under `mode: verbatim`, which serves what the producer sent.
Kind = Literal["local-tier", "tierberg", "tierberg-tls", "original"]

PARTITIONS = 4
#: Of Kafka's Java producer.
BATCH_BYTES_DEFAULT = 16_384

_TIERED = {"remote.storage.enable": "true", "retention.ms": "-1"}
#: Closes and copies what is idle for a second, and drops it from the broker's disk.
_TIER_NOW = {"local.retention.ms": "1000"}


@dataclass(slots=True)
class System:
    """One broker, with its bridge unless it is the yardstick."""

    kind: Kind
    broker: KafkaBroker
    bridge: Bridge | None
    admin: Admin
    gc_log: Path
    ends: dict[str, dict[int, int]] = field(default_factory=dict)

    def broker_cpu_s(self) -> float:
        """CPU seconds of the broker so far."""
        return tree_cpu_s(self.broker.process.pid)

    def bridge_cpu_s(self) -> float:
        """CPU seconds of the bridge so far; 0 without one."""
        return tree_cpu_s(self.bridge.process.pid) if self.bridge else 0.0

    def produce(self, topic: str, payload: str, bytes_max: int, compression: str) -> dict[str, float]:
        """Makes the topic and fills it; nothing is tiered yet. Returns the producer's figures."""
        self.admin.create_topic(topic, PARTITIONS, _TIERED)
        settings = {
            "bootstrap": self.broker.bootstrap,
            "topic": topic,
            "partitions": PARTITIONS,
            "payload": payload,
            "bytes_max": bytes_max,
            "compression": compression,
            "batch_bytes": BATCH_BYTES_DEFAULT,
        }
        results, _ = run_together("produce", [settings])
        self.ends[topic] = self.admin.end_offsets(topic, range(PARTITIONS))
        return results[0]

    def log_bytes(self, topic: str) -> int:
        """Bytes of the topic's local log."""
        return sum(sum(self.broker.local_segments(topic, number).values()) for number in range(PARTITIONS))

    def tier(self, topic: str) -> None:
        """Has everything copied and dropped locally; returns when it is. Raises StackError after TIERED_S."""
        self.admin.set_topic_config(topic, _TIER_NOW)
        wait_for(f"{topic} to be tiered on {self.kind}", lambda: self._only_remote(topic), TIERED_S)

    def restart_bridge(self) -> None:
        """Empties the bridge's caches."""
        if self.bridge:
            self.bridge.stop()
            self.bridge.start()

    def _only_remote(self, topic: str) -> bool:
        return all(
            min(self.broker.local_segments(topic, partition), default=0) >= end
            for partition, end in self.ends[topic].items()
        )


@contextmanager
def running(kinds: Sequence[Kind], folder: Path) -> Iterator[list[System]]:
    """Starts one system of each kind, in order; stops them all at the end, whatever happens."""
    with ExitStack() as stack:
        systems = []
        for kind in kinds:
            system = _make(kind, folder / kind)
            if system.bridge:
                system.bridge.start()
                stack.callback(system.bridge.stop)
            system.broker.start()
            stack.callback(system.broker.stop)
            systems.append(system)
        yield systems


def fill(systems: Sequence[System], topic: str, payload: str, bytes_max: int, compression: str) -> None:
    """Makes the topic on every system and fills it; nothing is tiered yet."""
    _on_each(systems, lambda system: system.produce(topic, payload, bytes_max, compression))


def empty_caches(systems: Sequence[System]) -> None:
    """Restarts the bridges."""
    _on_each(systems, System.restart_bridge)


def _on_each(systems: Sequence[System], act: Callable[[System], object]) -> None:
    """What is not measured is done on all systems at once."""
    with ThreadPoolExecutor(len(systems)) as threads:
        list(threads.map(act, systems))


def drop(systems: Sequence[System], topic: str) -> None:
    """Deletes a topic everywhere and gives the brokers time to be done with it."""
    for system in systems:
        system.admin.delete_topic(topic)
    time.sleep(3)
    for system in systems:
        if system.kind == "local-tier":
            for left in (system.broker.folder / "remote").glob(f"*/{topic}-*"):
                shutil.rmtree(left, ignore_errors=True)


def _make(kind: Kind, folder: Path) -> System:
    folder.mkdir(parents=True)
    gc_log = folder / "gc.log"
    options = BrokerOptions(heap="1g", jvm=(f"-Xlog:gc*:file={gc_log}:uptime:filecount=0",))
    if kind == "local-tier":
        remote = folder / "remote"
        remote.mkdir()
        broker = KafkaBroker(folder, local_tier(remote), options)
        return System(kind, broker, None, Admin(broker.bootstrap), gc_log)
    bridge, plugin = _bridge(kind, folder)
    broker = KafkaBroker(folder, plugin, options)
    return System(kind, broker, bridge, Admin(broker.bootstrap), gc_log)


def _bridge(kind: Kind, folder: Path) -> tuple[Bridge, Plugin]:
    if kind == "tierberg-tls":
        files = make_certificates(folder / "tls")
        tls = {
            "certificate_file": str(files.bridge.certificate),
            "key_file": str(files.bridge.key),
            "client_ca_file": str(files.authority),
        }
        bridge = Bridge(folder / "bridge", {"tls": tls})
        shim = {
            "bridge.tls.enabled": "true",
            "bridge.tls.ca.file": str(files.authority),
            "bridge.tls.certificate.file": str(files.broker.certificate),
            "bridge.tls.key.file": str(files.broker.key),
        }
        return bridge, tierberg(bridge.target, cluster_name="benchmark", settings=shim)
    rules = {"topics": [{"pattern": ".*", "mode": "verbatim"}]} if kind == "original" else {}
    bridge = Bridge(folder / "bridge", rules)
    return bridge, tierberg(bridge.target, cluster_name="benchmark")
