"""A tiered topic read in full through the broker, by 1 and by 4 consumers, beside LocalTieredStorage; zstd producers.

Also what decides the form a batch is served in: the same reads with the producer's own batches (`mode: verbatim`), the
bytes on the wire and the broker's heap. Every round starts with a bridge whose caches are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.clients.process import run_together
from benchmarks.gc_log import collections_forced, heap_after_collections
from benchmarks.meters import median
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.systems import Kind, System, drop, empty_caches, fill, running

_RATES: dict[str, tuple[Kind, int]] = {
    "consume_rate_1": ("tierberg", 1),
    "consume_rate_4": ("tierberg", 4),
    "consume_rate_1_tls": ("tierberg-tls", 1),
    "consume_rate_4_tls": ("tierberg-tls", 4),
}
_FORMS = ("served_form_rate", "served_form_wire", "served_form_heap")
_FORM_KINDS: tuple[Kind, ...] = ("local-tier", "tierberg", "original")
_FORM_NAMES: dict[Kind, str] = {
    "local-tier": "LocalTieredStorage",
    "tierberg": "uncompressed",
    "original": "original bytes",
}
_CONSUMERS = (1, 4)
_BYTES_MAX = 240_000_000  # values per topic
#: Reads that do not count: a fresh broker spends most of its first gigabyte on compiling (measured: 14, 9, 5 CPU-s/GB).
_WARM_READS = 3


@dataclass(frozen=True, slots=True)
class _Read:
    """One full read. CPU seconds of broker, bridge and all consumers."""

    records_per_s: float
    wire_bytes: float  # per record
    broker_s: float
    bridge_s: float
    client_s: float


_Reads = dict[tuple[Kind, int], list[_Read]]


def measure(plan: Plan) -> Cases:
    """Cases of consume_* and served_form_*."""
    rounds = 1 if plan.quick else 3
    kinds: list[Kind] = ["local-tier", "tierberg"]
    kinds += ["tierberg-tls"] if plan.wants("consume_rate_1_tls", "consume_rate_4_tls") else []
    kinds += ["original"] if plan.wants(*_FORMS) else []
    cases: Cases = {name: [] for name in (*_RATES, "consume_wire_bytes", *_FORMS)}
    forms = set(plan.payloads(*_FORMS))
    with running(kinds, plan.folder) as systems:
        for payload in plan.payloads(*_RATES, "consume_wire_bytes", *_FORMS):
            topic = f"consume-{payload}"
            bytes_max = _BYTES_MAX // (3 if plan.quick else 1)
            chosen = [system for system in systems if system.kind != "original" or payload in forms]
            fill(chosen, topic, payload, bytes_max, "zstd")
            for system in chosen:
                system.tier(topic)
            reads = _read_all(chosen, topic, rounds)
            _add(cases, payload, reads)
            if payload in forms:
                _add_forms(cases, payload, reads)
                _add_heap(cases, payload, chosen, topic)
            drop(chosen, topic)
    return cases


def _read_all(systems: Sequence[System], topic: str, rounds: int) -> _Reads:
    """Every system in turn, every round; the first reads of each are not counted (they warm the broker's code)."""
    reads: _Reads = {(system.kind, consumers): [] for system in systems for consumers in _CONSUMERS}
    for system in systems:
        for _ in range(_WARM_READS):
            _read(system, topic, 1)
    for _ in range(rounds):
        for consumers in _CONSUMERS:
            empty_caches(systems)
            for system in systems:
                reads[system.kind, consumers].append(_read(system, topic, consumers))
    for (kind, consumers), found in reads.items():
        say(f"  {topic}, {kind}, {consumers}: {found}")
    return reads


def _read(system: System, topic: str, consumers: int) -> _Read:
    ends = system.ends[topic]
    shares = [{part: end for part, end in ends.items() if part % consumers == place} for place in range(consumers)]
    settings = [{"bootstrap": system.broker.bootstrap, "topic": topic, "ends": share} for share in shares]
    broker, bridge = system.broker_cpu_s(), system.bridge_cpu_s()
    results, _ = run_together("consume", settings)
    records = sum(ends.values())
    return _Read(
        records_per_s=records / max(result["wall_s"] for result in results),
        wire_bytes=sum(result["wire_bytes"] for result in results) / records,
        broker_s=system.broker_cpu_s() - broker,
        bridge_s=system.bridge_cpu_s() - bridge,
        client_s=sum(result["cpu_s"] for result in results),
    )


def _add(cases: Cases, payload: str, reads: _Reads) -> None:
    for name, (kind, consumers) in _RATES.items():
        if found := reads.get((kind, consumers)):
            floor = median(read.records_per_s for read in reads["local-tier", consumers])
            cases[name].append(_rate_case(payload, found, floor))
    ours, floor_reads = reads["tierberg", 1], reads["local-tier", 1]
    wire = median(read.wire_bytes for read in ours)
    cases["consume_wire_bytes"].append(Case(payload, wire, median(read.wire_bytes for read in floor_reads)))


def _rate_case(name: str, found: list[_Read], floor: float) -> Case:
    rates = [read.records_per_s for read in found]
    extra = {
        "times_floor": median(rates) / floor,
        "broker_cpu_s": median(read.broker_s for read in found),
        "bridge_cpu_s": median(read.bridge_s for read in found),
        "client_cpu_s": median(read.client_s for read in found),
    }
    return Case(name, median(rates), floor, rates, extra)


def _add_forms(cases: Cases, payload: str, reads: _Reads) -> None:
    for consumers in _CONSUMERS:
        yardstick = reads["local-tier", consumers]
        for kind in _FORM_KINDS:
            name = f"{payload}, {consumers} consumer{'s' if consumers > 1 else ''}, {_FORM_NAMES[kind]}"
            found = reads[kind, consumers]
            cases["served_form_rate"].append(_rate_case(name, found, median(read.records_per_s for read in yardstick)))
            cases["served_form_wire"].append(
                Case(name, median(read.wire_bytes for read in found), median(read.wire_bytes for read in yardstick))
            )


def _add_heap(cases: Cases, payload: str, systems: Sequence[System], topic: str) -> None:
    """Reads of their own: collections forced in the middle show what is held, and slow the read down."""
    for consumers in _CONSUMERS:
        held = {system.kind: _heap_mib(system, topic, consumers) for system in systems if system.kind in _FORM_KINDS}
        for kind in _FORM_KINDS:
            name = f"{payload}, {consumers} consumer{'s' if consumers > 1 else ''}, {_FORM_NAMES[kind]}"
            cases["served_form_heap"].append(Case(name, held[kind], held["local-tier"]))


def _heap_mib(system: System, topic: str, consumers: int) -> float:
    log_start = system.gc_log.stat().st_size
    with collections_forced(system.broker.process.pid):
        _read(system, topic, consumers)
    return max(heap_after_collections(system.gc_log, log_start))
