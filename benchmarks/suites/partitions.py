"""A topic of 1,000 partitions with short segments: how soon a copied segment is in the table, and at what cost.

Synthetic segments over gRPC to a real bridge, without brokers: 1,000 partitions of a broker with segments that short
would be the broker's limit, not ours. Visible means: the table's head, loaded anew, records a frontier above it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog

from benchmarks.clients.process import Client
from benchmarks.meters import median, memory_bytes, peak_memory_bytes, percentile, reset_peak_memory, tree_cpu_s
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.segment_file import write_segment
from benchmarks.segments import segment
from benchmarks.visible import Sightings
from iceberg_catalog.commit.head import recorded_state
from iceberg_catalog.commit.state import decode_state
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from tierberg.stack.servers.bridge import Bridge

_TOPIC = "partitions"
_THREADS = 8
_VALUE_BYTES = 14_000  # of one segment: one batch
_TIMEOUT_S = 60.0
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class _Load:
    partitions: int
    rate: int
    seconds: int


def measure(plan: Plan) -> Cases:
    """The case of partitions_lag_p99; commits, CPU and memory stand beside."""
    load = _Load(50, 10, 10) if plan.quick else _Load(1_000, 25, 120)
    file = write_segment(segment("synthetic-100", "none", "16k", _VALUE_BYTES), plan.folder / "short")
    bridge = Bridge(plan.folder / "bridge")
    bridge.start()
    try:
        case = _measure(bridge, file, load, plan.folder / "copied.txt")
    finally:
        bridge.stop()
    case.extra |= _commits(bridge.process.output(), load)
    say(f"  {case}")
    return {"partitions_lag_p99": [case]}


def _measure(bridge: Bridge, file: Path, load: _Load, log: Path) -> Case:
    settings = {
        "target": bridge.target,
        "file": str(file),
        "topic": _TOPIC,
        "threads": _THREADS,
        "log": str(log),
        "partitions": load.partitions,
        "rate": load.rate,
        "seconds": load.seconds,
    }
    catalog = open_catalog(embedded_settings(bridge.folder))
    idle = memory_bytes(bridge.process.pid)
    with Client("rolling", settings) as client, Sightings(lambda: frontiers(catalog, bridge.folder), _LOOK_S) as seen:
        client.wait_ready()
        reset_peak_memory(bridge.process.pid)
        cpu = tree_cpu_s(bridge.process.pid)
        client.go()
        figures = client.result()
        copied = [line.split() for line in log.read_text(encoding="ascii").splitlines()]
        ends: dict[int, int] = {}
        for partition, end, _ in copied:
            ends[int(partition)] = max(ends.get(int(partition), 0), int(end) + 1)
        seen.wait_for(ends, _TIMEOUT_S)
        cpu = tree_cpu_s(bridge.process.pid) - cpu
        peak = peak_memory_bytes(bridge.process.pid)
    lags = []
    for partition, end, answered in copied:
        at = seen.when(int(partition), int(end))
        lags.append(_TIMEOUT_S if at is None else max(at - float(answered), 0.0))
    extra = {
        "p50_s": percentile(lags, 50),
        "max_s": max(lags),
        "copies": figures["copies"],
        "copies_begun_late": figures["late"],
        "copy_p50_ms": figures["p50_ms"],
        "copy_p99_ms": figures["p99_ms"],
        "bridge_cpu_ms_per_segment": cpu / figures["copies"] * 1000,
        "peak_mib": peak / 2**20,
        "idle_mib": idle / 2**20,
    }
    return Case(f"{load.partitions:,} partitions, {load.rate} segments/s", percentile(lags, 99), extra=extra)


def frontiers(catalog: Catalog, folder: Path) -> Mapping[int, int]:
    """The frontier of each partition in the only table's head, loaded now."""
    table = catalog.load_table(catalog.list_tables("kafka")[0])
    snapshot = table.current_snapshot()
    state = recorded_state(table, snapshot) if snapshot is not None else None
    if state is None:
        return {}
    found = decode_state((folder / "store" / state.key).read_bytes(), state.sha256)
    return {number: item.frontier for number, item in found.items()}


def _commits(log: str, load: _Load) -> dict[str, float]:
    """What the bridge says of its commits: a line of JSON each."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    took = [float(line["duration_ms"]) for line in lines if line["event"] == "published"]
    return {
        "commits_per_minute": len(took) / load.seconds * 60,
        "commit_p50_ms": median(took),
        "commit_p99_ms": percentile(took, 99),
    }
