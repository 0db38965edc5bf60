"""Copies with `mode: upsert`: the latest record of each key, in Kafka's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.copies.copy_support import copy_world, sent

RULE = {"mode": "upsert", "key": ["k"], "select": ["cast(_kafka_key AS string) AS k", "id", "who"]}


def state(rows: list[dict[str, Any]]) -> dict[Any, tuple[Any, ...]]:
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: (row["id"], row["who"], row["_kafka_offset"]) for row in rows}


@pytest.mark.parametrize("writes", ["merge-on-read", "copy-on-write"])
def test_the_latest_row_of_each_key(spark: Any, tmp_path: Path, writes: str) -> None:
    with copy_world(spark, tmp_path, {**RULE, "row_writes": writes, "partition_by": ["bucket(2, k)"]}) as world:
        world.send(
            [sent("a", {"id": 1, "who": "x"}), sent("b", {"id": 2, "who": "x"}), sent("a", {"id": 3, "who": "y"})]
        )
        world.run()
        assert state(world.rows()) == {'"a"': (3, "y", 2), '"b"': (2, "x", 1)}
        world.send(
            [sent("b", None), sent("c", {"id": 4, "who": "z"}), sent("c", None), sent("c", {"id": 5, "who": "z"})]
        )
        world.send([sent("d", {"id": 6, "who": "new"}), sent("d", None), sent("never", None)])
        world.run()
        assert state(world.rows()) == {'"a"': (3, "y", 2), '"c"': (5, "z", 6)}
        world.send([sent("nobody", None)])
        world.run()
        assert world.run().ranges == 0, "a run that changes no row has read all the same"
