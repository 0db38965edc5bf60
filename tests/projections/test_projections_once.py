"""What a run reads once: dead letters are counted while rows are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from repartition.changes.select import changes
from repartition.run import run
from tests.projections.projection_support import LETTERS, projection_world, sent

UPSERT = {"mode": "upsert", "key": ["id"]}


@pytest.mark.parametrize(
    ("rule", "few"),
    [
        ({}, True),
        ({"partition_by": ["bucket(4, id)"], "sort_by": ["who"]}, True),
        (UPSERT, True),
        (UPSERT, False),
        ({**UPSERT, "row_writes": "copy-on-write"}, False),
    ],
)
def test_no_dead_letter_costs_no_second_reading(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], few: bool
) -> None:
    if not few:
        monkeypatch.setattr("repartition.run.read_plan.FEW_OFFSETS_MAX", -1)
    counted: list[Any] = []

    def watched(*given: Any) -> Any:
        made = changes(*given)
        dead = Mock(wraps=made.dead, schema=made.dead.schema)
        dead.count = lambda: (counted.append(given), made.dead.count())[1]  # type: ignore[func-returns-value]
        return replace(made, dead=dead)

    monkeypatch.setattr(run, "changes", watched)
    with projection_world(spark, tmp_path, {**rule, "select": ["*", "10 / id AS share"]}) as world:
        world.send([sent(n, {"id": n, "who": f"w{n}"}) for n in range(1, 9)])
        assert world.run().dead_letters == 0
        world.send([sent(n, {"id": n, "who": "new"}) for n in range(5, 12)])
        assert world.run().dead_letters == 0
        assert len(counted) == 0
        world.send([sent(0, {"id": 0, "who": "nobody"}), sent(1, {"id": 1, "who": "x"})])
        assert world.run().dead_letters == 1
        assert len(counted) == 1
        assert [row["id"] for row in world.rows() if row["who"] == "x"] == [1]
        assert world.count(LETTERS) == 1
