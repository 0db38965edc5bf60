"""Deletes of segments nobody has heard of, as a broker sends for copies that failed when a topic goes.

Settings: target, calls (all for ids of their own), in_flight. The requests are built before the ready line.
Figures: calls, wall_s, cpu_s (of this process), p50_ms, p99_ms.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

from grpc import aio

from benchmarks.bridge_client import HEADERS, SERVICE, delete_request
from benchmarks.clients.protocol import number, serve, text
from benchmarks.limits import CALL_S
from benchmarks.meters import percentile, spent
from converter.types import LeaderEpoch, SegmentMetadata

_PARTITIONS = 8
_RECORDS = 1000  # per segment


@dataclass(slots=True)
class _Work:
    target: str
    requests: list[bytes]
    in_flight: int


def _prepare(settings: dict[str, object]) -> _Work:
    topic_id = secrets.token_bytes(16)
    requests = [delete_request(_segment(topic_id, place)) for place in range(number(settings, "calls"))]
    return _Work(text(settings, "target"), requests, number(settings, "in_flight"))


def _segment(topic_id: bytes, place: int) -> SegmentMetadata:
    start = place // _PARTITIONS * _RECORDS
    return SegmentMetadata(
        cluster_name="benchmark",
        topic="removed",
        topic_id=topic_id,
        partition=place % _PARTITIONS,
        segment_id=secrets.token_bytes(16),
        start_offset=start,
        end_offset=start + _RECORDS - 1,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_bytes=1_000_000,
        leader_epochs=(LeaderEpoch(0, start),),
        custom_metadata=b"",
    )


def _delete_all(work: _Work) -> dict[str, object]:
    return asyncio.run(_run(work))


async def _run(work: _Work) -> dict[str, object]:
    took_ms: list[float] = []
    left = iter(work.requests)
    async with aio.insecure_channel(work.target) as channel:
        delete = channel.unary_unary(f"{SERVICE}DeleteSegment", None, None)
        with spent() as took:
            await asyncio.gather(*(_one_by_one(delete, left, took_ms) for _ in range(work.in_flight)))
    return {
        "calls": len(took_ms),
        "wall_s": took.wall_s,
        "cpu_s": took.cpu_s,
        "p50_ms": percentile(took_ms, 50),
        "p99_ms": percentile(took_ms, 99),
    }


async def _one_by_one(
    delete: aio.UnaryUnaryMultiCallable[bytes, bytes], left: Iterator[bytes], took_ms: list[float]
) -> None:
    for request in left:
        started = time.perf_counter()
        await delete(request, metadata=HEADERS, timeout=CALL_S)
        took_ms.append((time.perf_counter() - started) * 1000)


if __name__ == "__main__":
    serve(_prepare, _delete_all)
