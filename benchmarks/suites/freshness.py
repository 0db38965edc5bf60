"""How old a record is when a new Iceberg scan first shows it, on a real broker, beside the broker's own tiering.

`segment.ms` of one second, a task interval of 200 ms, 100 records per second. A scan is a table loaded anew and read:
only offsets that came since the scan before are asked for, as a reader that follows would. Tiered is when the segment's
index is in the store: the copy's answer to the broker follows at once. The record with which a segment is closed is in
the next one, so a record waits up to a second for that alone; then up to 200 ms for the broker's task.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyiceberg.catalog import Catalog

from benchmarks.clients.process import Client
from benchmarks.meters import percentile, tree_cpu_s
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.visible import Sightings
from converter.parquet.columns import OFFSET
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.storage.keys import parse_index_key
from tierberg.stack.admin import Admin
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import BrokerOptions, KafkaBroker
from tierberg.stack.tiering import tierberg

_TOPIC = "freshness"
_RATE = 100
_EVERY = 10  # each tenth record is a sample
_LOOK_S = 0.05
_TIMEOUT_S = 60.0
#: Produced after the samples, so that their segments close.
_RUN_OUT_S = 10
_WARM_S = 10
_PROPERTIES = {"remote.log.manager.task.interval.ms": "200"}
_TIERED = {"remote.storage.enable": "true", "segment.ms": "1000", "local.retention.ms": "1000", "retention.ms": "-1"}


class _Scans:
    """New scans of a table, one partition."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._next = 0

    def __call__(self) -> Mapping[int, int]:
        """The next offset a new scan does not show."""
        table = self._catalog.load_table(("kafka", _TOPIC))
        scan = table.scan(row_filter=f"{OFFSET} >= {self._next}", selected_fields=(OFFSET,))
        offsets = scan.to_arrow()[OFFSET]
        if len(offsets):
            self._next = max(offsets.to_pylist()) + 1
        return {0: self._next}


def measure(plan: Plan) -> Cases:
    """The case of freshness_p99; send to tiered of the same records stands beside."""
    seconds = 15 if plan.quick else 90
    bridge = Bridge(plan.folder / "bridge")
    broker = KafkaBroker(
        plan.folder, tierberg(bridge.target, cluster_name="benchmark"), BrokerOptions(properties=_PROPERTIES)
    )
    bridge.start()
    try:
        broker.start()
        try:
            Admin(broker.bootstrap).create_topic(_TOPIC, 1, _TIERED)
            case = _measure(broker, bridge, seconds)
        finally:
            broker.stop()
    finally:
        bridge.stop()
    say(f"  {case}")
    return {"freshness_p99": [case]}


def _measure(broker: KafkaBroker, bridge: Bridge, seconds: int) -> Case:
    total = _WARM_S + seconds + _RUN_OUT_S
    settings = {
        "bootstrap": broker.bootstrap,
        "topic": _TOPIC,
        "payload": "synthetic-1k",
        "rate": _RATE,
        "seconds": total,
    }
    scans = _Scans(open_catalog(embedded_settings(bridge.folder)))
    last = (_WARM_S + seconds) * _RATE
    with Client("latency", settings) as client, Sightings(scans, _LOOK_S) as seen:
        client.wait_ready()
        cpu = tree_cpu_s(bridge.process.pid)
        client.go()
        produced = client.result()
        cpu = (tree_cpu_s(bridge.process.pid) - cpu) / total
        seen.wait_for({0: last}, _TIMEOUT_S)
    tiered = tiered_at(bridge.folder / "store")
    samples = range(_WARM_S * _RATE, last, _EVERY)
    due = [produced["started_s"] + offset / _RATE for offset in samples]
    visible = [_age(seen.when(0, offset), at) for offset, at in zip(samples, due, strict=True)]
    tiering = [_age(_tiered(tiered, offset), at) for offset, at in zip(samples, due, strict=True)]
    looks = [after - before for (before, _), (after, _) in zip(seen.seen, seen.seen[1:], strict=False)]
    extra = {
        "p50_s": percentile(visible, 50),
        "max_s": max(visible),
        "tiered_p50_s": percentile(tiering, 50),
        "tiered_p99_s": percentile(tiering, 99),
        "samples": len(visible),
        "timed_out": sum(age >= _TIMEOUT_S for age in visible),
        "scan_p50_s": percentile(looks, 50),
        "bridge_cores": cpu,
    }
    return Case(f"{_RATE} records/s", percentile(visible, 99), percentile(tiering, 99), extra=extra)


def tiered_at(store: Path) -> list[tuple[int, float]]:
    """(last offset, seconds since the epoch at which its index was in the store) of every segment, ascending."""
    found: list[tuple[int, float]] = []
    for path in (store / "index").rglob("*"):
        key = parse_index_key(str(path.relative_to(store)))
        if key is not None:
            found.append((key.last, path.stat().st_mtime))
    return sorted(found)


def _tiered(segments: list[tuple[int, float]], offset: int) -> float | None:
    return next((at for last, at in segments if last >= offset), None)


def _age(at: float | None, due: float) -> float:
    """Seconds; what never came counts as its whole wait."""
    return _TIMEOUT_S if at is None else min(at - due, _TIMEOUT_S)
