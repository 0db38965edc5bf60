"""Columns and nested fields that come, go and change names, below a projection that has rows of before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.run import read_plan
from tests.projections.projection_support import ProjectionWorld, framed, projection_world, sent

KEYED = {"mode": "upsert", "key": ["id"]}


@pytest.fixture(params=["append", "few changes", "many changes"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Keys of a rule; an upsert writes in one of two ways."""
    if request.param == "many changes":
        monkeypatch.setattr(read_plan, "FEW_OFFSETS_MAX", 0)
    return {} if request.param == "append" else dict(KEYED)


def latest(world: ProjectionWorld, *names: str) -> dict[Any, tuple[Any, ...]]:
    """Of each `id`, the columns of its last row."""
    return {row["id"]: tuple(row[name] for name in names) for row in world.rows()}


def test_a_column_that_select_gives_no_more_is_null_in_new_rows(
    spark: Any, tmp_path: Path, mode: dict[str, Any]
) -> None:
    with projection_world(spark, tmp_path, mode | {"select": ["id", "who", "n"]}) as world:
        world.send([sent(n, {"id": n, "who": f"w{n}", "n": 1}) for n in range(3)])
        world.run()
        world.change(mode | {"select": ["id", "n"]})
        world.send([sent(n, {"id": n, "who": f"w{n}", "n": 2}) for n in (1, 3)])
        world.run()
        assert latest(world, "who", "n") == {0: ("w0", 1), 1: (None, 2), 2: ("w2", 1), 3: (None, 2)}


def order(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *fields]}


def test_a_column_that_the_topic_renames_is_another_one(spark: Any, tmp_path: Path, mode: dict[str, Any]) -> None:
    before = order({"name": "who", "type": "string"})
    after = order({"name": "by", "type": "string", "aliases": ["who"]})
    with projection_world(spark, tmp_path, mode, schemas=(before, after)) as world:
        world.send([(b"1", framed(1, before, {"id": n, "who": f"w{n}"})) for n in range(3)])
        world.run()
        world.send([(b"1", framed(2, after, {"id": n, "by": f"b{n}"})) for n in (1, 3)])
        world.run()
        assert latest(world, "who", "by") == {0: ("w0", None), 1: (None, "b1"), 2: ("w2", None), 3: (None, "b3")}
