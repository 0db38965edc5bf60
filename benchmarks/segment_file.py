"""A segment on disk, so that several client processes can send it without holding it."""

from __future__ import annotations

import json
import mmap
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.segments import Segment
from converter.types import LeaderEpoch, SegmentMetadata


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """The mapped bytes of a segment and its metadata."""

    data: memoryview
    metadata: SegmentMetadata


def write_segment(one: Segment, path: Path) -> Path:
    """Writes the log bytes to `path` and the metadata beside it; returns `path`."""
    path.write_bytes(one.data)
    facts = asdict(one.metadata)
    for key in ("topic_id", "segment_id", "custom_metadata"):
        facts[key] = facts[key].hex()
    _facts(path).write_text(json.dumps(facts), encoding="utf-8")
    return path


def open_segment(path: Path) -> SegmentFile:
    """The segment that write_segment() wrote, mapped into memory."""
    facts = json.loads(_facts(path).read_text(encoding="utf-8"))
    for key in ("topic_id", "segment_id", "custom_metadata"):
        facts[key] = bytes.fromhex(facts[key])
    facts["leader_epochs"] = tuple(LeaderEpoch(**epoch) for epoch in facts["leader_epochs"])
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return SegmentFile(memoryview(mapped), SegmentMetadata(**facts))


def as_copy(metadata: SegmentMetadata, topic: str, partition: int) -> SegmentMetadata:
    """The same segment as another one: a partition of its own in the topic of that name, a new segment id."""
    return replace(
        metadata,
        topic=topic,
        topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes,
        partition=partition,
        segment_id=uuid.uuid4().bytes,
    )


def _facts(path: Path) -> Path:
    return path.with_suffix(".json")
