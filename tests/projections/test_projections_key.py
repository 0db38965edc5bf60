"""What a rule cannot change in a table that is there: which columns make a row's key, and its format version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from repartition.run.target import quoted
from tests.projections.projection_support import PROJECTION, ProjectionWorld, projection_world, sent

ODD = "größe \"'\\ b"
KEYED = {"mode": "upsert", "key": ["id"], "select": ["id", "who", f"who AS `{ODD}`"]}


def refused(world: ProjectionWorld, *said: str) -> None:
    """A run ends with `bad_rule`, says this and what to do, and has not touched the table."""
    before = world.catalog.load_table(PROJECTION).metadata_location
    with pytest.raises(RepartitionError) as raised:
        world.run()
    assert raised.value.kind == "bad_rule"
    for text in ("table kafka.orders_projection", *said, "choose another `table`, or drop this one"):
        assert text in str(raised.value)
    assert world.catalog.load_table(PROJECTION).metadata_location == before


def test_another_key_is_refused(spark: Any, tmp_path: Path) -> None:
    """Also while nothing is new; until the rule is set back, or the table is gone."""
    with projection_world(spark, tmp_path, KEYED) as world:
        world.send([sent(n, {"id": n, "who": f"w{n // 2}"}) for n in range(4)])
        world.run()
        for key in (["who"], ["id", "who"], [ODD]):
            world.change(KEYED | {"key": key})
            refused(world, 'one row per ["id"]', "`key`")
        world.send([sent(1, {"id": 1, "who": "w9"})])
        refused(world, 'one row per ["id"]')
        world.change(KEYED)
        world.run()
        assert {row["id"]: row["who"] for row in world.rows()} == {0: "w0", 1: "w9", 2: "w1", 3: "w1"}
        spark.sql(f"DROP TABLE {quoted(world.settings.catalog.name, *PROJECTION)}")
        world.change(KEYED | {"key": [ODD]})
        world.run()
        assert {row[ODD]: row["id"] for row in world.rows()} == {"w0": 1, "w9": 1, "w1": 3}
        world.run()


def test_the_order_of_a_key_is_no_difference(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, KEYED | {"key": ["id", ODD]}) as world:
        world.send([sent(1, {"id": 1, "who": "x"})])
        world.run()
        world.change(KEYED | {"key": [ODD, "id"]})
        world.send([sent(2, {"id": 2, "who": "x"})])
        world.run()
        assert world.count(PROJECTION) == 2


def test_a_table_that_does_not_say_its_key_is_refused(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, KEYED) as world:
        world.send([sent(1, {"id": 1, "who": "x"})])
        world.run()
        name = quoted(world.settings.catalog.name, *PROJECTION)
        spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('tierberg.copy.key')")
        refused(world, "one row per unknown key")


@pytest.mark.parametrize("rule", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_a_format_version_comes_and_never_goes_back(spark: Any, tmp_path: Path, rule: dict[str, Any]) -> None:
    with projection_world(spark, tmp_path, rule) as world:
        for version in (2, 3):
            world.change(rule | {"format_version": version})
            world.send([sent(1, {"id": version})])
            world.run()
            assert world.catalog.load_table(PROJECTION).format_version == version
        world.change(rule)
        refused(world, "format version 3", "`format_version: 3`")
        world.send([sent(1, {"id": 4})])
        refused(world, "format version 3")
        assert [row["id"] for row in world.rows()] == [2, 3]
