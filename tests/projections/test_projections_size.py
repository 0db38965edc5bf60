"""What `tierberg status` says of a projection's rows, while deletes wait for compaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rsm_bridge.storage.projections.progress import ProjectionSize, read_one
from tests.projections.projection_support import TOPIC_ID, ProjectionWorld, projection_world, sent

PROJECTIONS = [
    {"table": f"v{version}", "mode": "upsert", "key": ["id"], "format_version": version} for version in (2, 3)
]  # fmt: skip


def size(world: ProjectionWorld, number: int) -> ProjectionSize | None:
    """As the last run told."""
    found = read_one(world.backend.store, world.job(number).projection.key(TOPIC_ID))
    return None if found is None else found.size


def test_rows_are_those_that_a_reader_meets(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, *PROJECTIONS) as world:
        for keys in (range(10), range(4), [2, 3, 4], [0]):
            world.send([sent(n, {"id": n, "n": n}) for n in keys])
            for number, projection in enumerate(PROJECTIONS):
                world.run(number)
                told = size(world, number)
                assert told is not None
                assert told.rows == world.count(("kafka", str(projection["table"]))) == 10
        for number in range(2):
            head = world.catalog.load_table(("kafka", f"v{number + 2}")).current_snapshot()
            assert head is not None
            assert head.summary is not None
            assert int(head.summary.additional_properties["total-records"]) > 10, "deletes wait"
