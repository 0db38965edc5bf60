"""Short segments of many partitions, one after the other, straight to a bridge at a steady rate.

Settings: target, file (a segment of one batch), topic, partitions, threads, rate (copies per second in all), seconds,
log (where to write `partition end_offset answered_s` lines, seconds since the epoch). Figures: copies, late (copies
that began over a second after they were due), p50_ms, p99_ms.
"""

from __future__ import annotations

import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.bridge_client import BridgeClient
from benchmarks.clients.protocol import number, serve, text
from benchmarks.meters import percentile
from benchmarks.segment_file import SegmentFile, as_copy, open_segment

_LATE_S = 1.0


@dataclass(slots=True)
class _Work:
    client: BridgeClient
    file: SegmentFile
    topic: str
    partitions: int
    threads: int
    rate: int
    seconds: int
    log: Path


@dataclass(frozen=True, slots=True)
class _Copied:
    partition: int
    end: int
    answered_s: float
    took_s: float
    late: bool


def _prepare(settings: dict[str, object]) -> _Work:
    return _Work(
        BridgeClient(text(settings, "target")),
        open_segment(Path(text(settings, "file"))),
        text(settings, "topic"),
        number(settings, "partitions"),
        number(settings, "threads"),
        number(settings, "rate"),
        number(settings, "seconds"),
        Path(text(settings, "log")),
    )


def _copy_all(work: _Work) -> dict[str, object]:
    started = time.time()
    with ThreadPoolExecutor(work.threads) as threads:
        found = [
            one
            for part in threads.map(lambda thread: _copy_some(work, thread, started), range(work.threads))
            for one in part
        ]
    work.log.write_text("".join(f"{one.partition} {one.end} {one.answered_s}\n" for one in found), encoding="ascii")
    took_ms = [one.took_s * 1000 for one in found]
    return {
        "copies": len(found),
        "late": sum(one.late for one in found),
        "p50_ms": percentile(took_ms, 50),
        "p99_ms": percentile(took_ms, 99),
    }


def _copy_some(work: _Work, thread: int, started: float) -> list[_Copied]:
    """Every `threads`th copy; a partition always belongs to the same thread, for Kafka copies in order."""
    found: list[_Copied] = []
    own = range(thread, work.partitions, work.threads)
    for turn in range(work.rate * work.seconds // work.threads):
        due = started + (turn * work.threads + thread) / work.rate
        time.sleep(max(due - time.time(), 0.0))
        found.append(_copy(work, own[turn % len(own)], turn // len(own), due))
    return found


def _copy(work: _Work, partition: int, generation: int, due: float) -> _Copied:
    began = time.time()
    metadata = as_copy(work.file.metadata, work.topic, partition)
    base = generation * (metadata.end_offset + 1)
    end = base + metadata.end_offset
    # The base offset of a batch lies before what its CRC covers.
    data = bytearray(work.file.data)
    struct.pack_into(">q", data, 0, base)
    work.client.copy(replace(metadata, start_offset=base, end_offset=end), memoryview(data))
    now = time.time()
    return _Copied(partition, end, now, now - began, began - due > _LATE_S)


if __name__ == "__main__":
    serve(_prepare, _copy_all)
