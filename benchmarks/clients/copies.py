"""Copies one segment file again and again, as many partitions at once, straight to a bridge.

Settings: target, file, topic, copies (at once), each (copies per partition; 0: go on for `seconds`), seconds.
Figures: copies, bytes, longest_s.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bridge_client import BridgeClient
from benchmarks.clients.protocol import number, serve, text
from benchmarks.segment_file import SegmentFile, as_copy, open_segment


@dataclass(slots=True)
class _Work:
    client: BridgeClient
    file: SegmentFile
    topic: str
    copies: int
    each: int
    seconds: int


def _prepare(settings: dict[str, object]) -> _Work:
    return _Work(
        BridgeClient(text(settings, "target")),
        open_segment(Path(text(settings, "file"))),
        text(settings, "topic"),
        number(settings, "copies"),
        number(settings, "each"),
        number(settings, "seconds"),
    )


def _copy_all(work: _Work) -> dict[str, object]:
    deadline = time.monotonic() + work.seconds
    with ThreadPoolExecutor(work.copies) as threads:
        found = list(threads.map(lambda partition: _copy_one(work, partition, deadline), range(work.copies)))
    took = [seconds for one in found for seconds in one]
    return {
        "copies": len(took),
        "bytes": len(took) * len(work.file.data),
        "longest_s": max(took, default=0.0),
    }


def _copy_one(work: _Work, partition: int, deadline: float) -> list[float]:
    took: list[float] = []
    while len(took) < work.each or (not work.each and time.monotonic() < deadline):
        started = time.monotonic()
        # Each time a topic of its own: no two segments of one partition hold the same offsets.
        work.client.copy(as_copy(work.file.metadata, f"{work.topic}-{len(took)}", partition), work.file.data)
        took.append(time.monotonic() - started)
    return took


if __name__ == "__main__":
    serve(_prepare, _copy_all)
