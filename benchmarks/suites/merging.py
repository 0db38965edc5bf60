"""A thousand small files of a topic with little traffic become a few, while consumers of a broker read all of it.

Real broker, real bridge; segments roll by the time of their records, as those of a quiet topic do. The bridge merges in
its background, beside the fetches it serves. Readers go to places drawn at random before, during and after it; every
record they get is compared with what was written.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from pyiceberg.exceptions import NoSuchTableError

from benchmarks.limits import TIERED_S
from benchmarks.meters import percentile, thread_cpu_s
from benchmarks.payloads import records
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.seekers import Place, Seekers
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.serving.scheduling.fetch_priority import COPY_NICENESS
from rsm_bridge.storage.lease import lease_key
from tierberg.stack.admin import Admin
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.tiering import tierberg
from tierberg.stack.waiting import wait_for

_TOPIC = "merging"
_CONSUMERS = 4
_RECORDS = 200  # of one segment
_RECORD_BYTES = 1000
_APART_MS = 2000  # between the records of one segment and those of the next
_FLUSH_S = 120
_MERGED_S = 900
#: Nothing is merged until all is there.
_SETTINGS = {"maintain_interval": "0s", "merge": {"age": "0s"}}
_TIERED = {"remote.storage.enable": "true", "segment.ms": "1000", "local.retention.ms": "1", "retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class _Load:
    partitions: int
    segments: int  # of each partition
    seconds: int  # of reading before, at least, and after


def measure(plan: Plan) -> Cases:
    """The case of merge_fetch_max; files, CPU and the other percentiles stand beside."""
    load = _Load(4, 20, 5) if plan.quick else _Load(10, 100, 30)
    bridge = Bridge(plan.folder / "bridge", _SETTINGS)
    broker = KafkaBroker(plan.folder, tierberg(bridge.target, cluster_name="benchmark"))
    bridge.start()
    try:
        broker.start()
        try:
            cases = _measure(broker, bridge, load)
        finally:
            broker.stop()
    finally:
        bridge.stop()
    say(f"  {cases}")
    return cases


def _measure(broker: KafkaBroker, bridge: Bridge, load: _Load) -> Cases:
    values = _produce(broker, load)
    count = load.partitions * load.segments
    wait_for("small files in the table", lambda: len(_files(bridge.folder)) >= count, TIERED_S)
    wait_for("closed segments to leave the broker", lambda: _only_remote(broker, load), TIERED_S)
    small = _files(bridge.folder)
    bridge.stop()
    bridge.settings["maintain_interval"] = f"{3 * load.seconds}s"  # the first pass begins after half of it at least
    bridge.start()
    topic_id = Admin(broker.bootstrap).topic_id(_TOPIC)
    lease = bridge.folder / "store" / lease_key(topic_id)
    pid = bridge.process.pid
    place = Place(broker.bootstrap, _TOPIC, load.partitions, load.segments * _RECORDS, values)
    with Seekers(place, _CONSUMERS) as seekers:
        time.sleep(load.seconds / 2)  # first touches
        began = time.time()
        wait_for("maintenance to begin", lease.exists, 4 * load.seconds, 0.02)
        started, spent = time.time(), _Spent(pid)
        wait_for("the merge", lambda: _maintained(bridge, spent), _MERGED_S, 0.1)
        ended = time.time()
        large = _files(bridge.folder)
        time.sleep(load.seconds)
        before, during = seekers.between(began, started), seekers.between(started, ended)
        after = seekers.between(ended, time.time())
    name = f"{len(small):,} files of {_RECORDS} records, {_CONSUMERS} consumers"
    files = {"files_before": len(small), "files_after": len(large), "merge_s": ended - started}
    fetches = {**_described("during", during), **_described("before", before), **_described("after", after)}
    extra = {**files, "merge_cpu_s": spent.cpu_s(), **fetches}
    return {"merge_fetch_max": [Case(name, max(during), max(before), extra=extra)]}


class _Spent:
    """CPU of the bridge's background threads from now on. They have a niceness of their own, and some end meanwhile."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = thread_cpu_s(pid, COPY_NICENESS)
        self._last = dict(self._before)

    def look(self) -> None:
        """To be called often: a thread that has ended tells nothing."""
        self._last |= thread_cpu_s(self._pid, COPY_NICENESS)

    def cpu_s(self) -> float:
        """Up to the last look."""
        return sum(self._last.values()) - sum(self._before.values())


def _maintained(bridge: Bridge, spent: _Spent) -> bool:
    """Whether a pass that merged has ended: the bridge says so in a line of JSON."""
    spent.look()
    lines = [json.loads(line) for line in bridge.process.output().splitlines() if line.startswith("{")]
    return any(line["event"] == "maintained" and line["merged"] for line in lines)


def _described(when: str, fetches_ms: list[float]) -> dict[str, float]:
    return {
        f"{when}_p50_ms": percentile(fetches_ms, 50),
        f"{when}_p99_ms": percentile(fetches_ms, 99),
        f"{when}_max_ms": max(fetches_ms),
        f"{when}_fetches": len(fetches_ms),
    }


def _produce(broker: KafkaBroker, load: _Load) -> list[bytes]:
    """Fills the topic; one segment more than is asked for, which stays open. Returns the values by offset."""
    Admin(broker.bootstrap).create_topic(_TOPIC, load.partitions, _TIERED)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 2})
    total = (load.segments + 1) * _RECORDS
    found = records("synthetic-1k", 2 * total * _RECORD_BYTES).values()[:total]
    begin_ms = int(time.time() * 1000) - (load.segments + 1) * _APART_MS
    for segment in range(load.segments + 1):
        for partition in range(load.partitions):
            for value in found[segment * _RECORDS : (segment + 1) * _RECORDS]:
                producer.produce(_TOPIC, value, partition=partition, timestamp=begin_ms + segment * _APART_MS)
        if producer.flush(_FLUSH_S):
            raise RuntimeError("not everything was delivered in time")
    return found


def _files(folder: Path) -> list[str]:
    """Paths of the table's live data files."""
    catalog = open_catalog(embedded_settings(folder))
    try:
        return [file.path for file in LiveFiles().read(catalog.load_table(("kafka", _TOPIC))).files]
    except NoSuchTableError:
        return []
    finally:
        catalog.close()


def _only_remote(broker: KafkaBroker, load: _Load) -> bool:
    end = load.segments * _RECORDS
    return all(min(broker.local_segments(_TOPIC, number), default=0) >= end for number in range(load.partitions))
