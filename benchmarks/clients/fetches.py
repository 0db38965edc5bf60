"""Consumers straight at a bridge: each reads its own segments, 1 MiB a fetch and then hangs up, as a broker does.

Settings: target, file, topic, consumers, segments (per consumer), seconds, pace_ms (between the starts of a consumer's
fetches, which begin at a point of the first such time that is the consumer's own; 0: all at once, as fast as it goes).
Before the ready line each consumer's segments are copied. Figures: fetches, bytes, p50_ms, p99_ms, max_ms, cold_max_ms
(first fetch of a segment).
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.bridge_client import BridgeClient
from benchmarks.clients.protocol import number, serve, text
from benchmarks.limits import FETCH_BYTES
from benchmarks.meters import percentile
from benchmarks.segment_file import as_copy, open_segment
from converter.types import SegmentMetadata

_SEED = 20


@dataclass(slots=True)
class _Work:
    client: BridgeClient
    segments: list[list[SegmentMetadata]]  # by consumer
    seconds: int
    pace_s: float


@dataclass(slots=True)
class _Reads:
    cold_ms: list[float] = field(default_factory=list)
    warm_ms: list[float] = field(default_factory=list)
    bytes: int = 0


def _prepare(settings: dict[str, object]) -> _Work:
    client = BridgeClient(text(settings, "target"))
    file = open_segment(Path(text(settings, "file")))
    topic = text(settings, "topic")
    segments = [
        [
            client.copy(as_copy(file.metadata, f"{topic}-{place}", consumer), file.data)
            for place in range(number(settings, "segments"))
        ]
        for consumer in range(number(settings, "consumers"))
    ]
    return _Work(client, segments, number(settings, "seconds"), number(settings, "pace_ms") / 1000)


def _fetch_all(work: _Work) -> dict[str, object]:
    deadline = time.monotonic() + work.seconds
    with ThreadPoolExecutor(len(work.segments)) as threads:
        reads = list(threads.map(partial(_consume, work, deadline), work.segments, _begins(work)))
    cold = [ms for one in reads for ms in one.cold_ms]
    every = cold + [ms for one in reads for ms in one.warm_ms]
    return {
        "fetches": len(every),
        "bytes": sum(one.bytes for one in reads),
        "p50_ms": percentile(every, 50),
        "p99_ms": percentile(every, 99),
        "max_ms": max(every, default=0.0),
        "cold_max_ms": max(cold, default=0.0),
    }


def _begins(work: _Work) -> list[float]:
    """After how many seconds each consumer begins: they know nothing of each other."""
    draw = random.Random(_SEED)
    return [draw.uniform(0, work.pace_s) for _ in work.segments]


def _consume(work: _Work, deadline: float, segments: list[SegmentMetadata], begins_s: float) -> _Reads:
    reads = _Reads()
    time.sleep(begins_s)
    while True:
        for metadata in segments:
            position = 0
            while position < metadata.segment_size_bytes:
                if time.monotonic() >= deadline:
                    return reads
                started = time.monotonic()
                read = work.client.fetch(metadata, position, FETCH_BYTES)
                took_ms = (time.monotonic() - started) * 1000
                (reads.warm_ms if position else reads.cold_ms).append(took_ms)
                reads.bytes += read
                position += max(read, 1)
                time.sleep(max(0.0, work.pace_s - (time.monotonic() - started)))


if __name__ == "__main__":
    serve(_prepare, _fetch_all)
