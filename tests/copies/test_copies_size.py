"""What `tierberg status` says of a copy's rows, while deletes wait for compaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rsm_bridge.storage.projections.progress import CopySize, read_one
from tests.copies.copy_support import TOPIC_ID, CopyWorld, copy_world, sent

COPIES = [
    {"table": f"v{version}", "mode": "upsert", "key": ["id"], "format_version": version} for version in (2, 3)
]  # fmt: skip


def size(world: CopyWorld, number: int) -> CopySize | None:
    """As the last run told."""
    found = read_one(world.backend.store, world.job(number).copy.key(TOPIC_ID))
    return None if found is None else found.size


def test_rows_are_those_that_a_reader_meets(spark: Any, tmp_path: Path) -> None:
    with copy_world(spark, tmp_path, *COPIES) as world:
        for keys in (range(10), range(4), [2, 3, 4], [0]):
            world.send([sent(n, {"id": n, "n": n}) for n in keys])
            for number, copy in enumerate(COPIES):
                world.run(number)
                told = size(world, number)
                assert told is not None
                assert told.rows == world.count(("kafka", str(copy["table"]))) == 10
        for number in range(2):
            head = world.catalog.load_table(("kafka", f"v{number + 2}")).current_snapshot()
            assert head is not None
            assert head.summary is not None
            assert int(head.summary.additional_properties["total-records"]) > 10, "deletes wait"
