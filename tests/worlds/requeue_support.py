"""Segments of a small table that are stored as they are, and `tierberg requeue` over it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from rsm_bridge.storage.segments.known import KnownSegment, read_segments
from tests.worlds.maintain_support import World
from tierberg.cli import app


def run(tmp_path: Path, *arguments: str, topics: str = "[]") -> Result:
    config = tmp_path / "tierberg.yaml"
    config.write_text(f"data_dir: {tmp_path / 'data'}\ntopics: {topics}\n")
    return CliRunner().invoke(app, ["requeue", *arguments, "--config", str(config)])


def verbatim(world: World, count: int) -> KnownSegment:
    """A segment that could not be converted, with plain records."""
    log = world.log()
    first = log.end
    log.write(count)
    return stored_as_it_is(world, first, log.end - 1)


def stored_as_it_is(world: World, first: int, last: int) -> KnownSegment:
    world.copy_range(first, last, mode="verbatim")
    return next(known for known in segments(world) if known.key.base == first)


def segments(world: World) -> list[KnownSegment]:
    return read_segments(world.store, world.topic_id)


def gap_of_three(world: World) -> None:
    """Offsets 0-8; 3 to 5 are tiered and not in the table."""
    world.copy(3)
    verbatim(world, 3)
    world.copy(3)
    world.publish()
    assert world.offsets() == [0, 1, 2, 6, 7, 8]
