"""A table of the user's becomes a projection (`adopt`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from tests.projections.projection_support import PROJECTION, ProjectionWorld, projection_world, sent

RULE = {"mode": "upsert", "key": ["id"], "adopt": True, "select": ["id", "name"]}


def made(world: ProjectionWorld, columns: str = "id bigint, name string", layout: str = "", rows: str = "") -> str:
    """A table of the user's; its name in Spark."""
    name = f"`{world.settings.catalog.name}`.`kafka`.`{PROJECTION[1]}`"
    world.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {layout}")
    if rows:
        world.spark.sql(f"INSERT INTO {name} VALUES {rows}")
    return name


def held(world: ProjectionWorld) -> dict[int, tuple[str, int | None]]:
    rows = world.catalog.load_table(PROJECTION).scan().to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["name"], row["_kafka_offset"]) for row in rows}


@pytest.mark.parametrize("order", ["partition", "timestamp"])
def test_a_table_of_the_user_s_becomes_a_projection(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    select = ["id", "name", *(["_kafka_timestamp"] if order == "timestamp" else [])]
    rule = {**RULE, "key_order": order, "select": select, "partition_by": ["bucket(2, id)"], "sort_by": ["name desc"]}
    with projection_world(spark, tmp_path, rule) as world:
        time = ", _kafka_timestamp timestamp" if order == "timestamp" else ""
        layout, null = "PARTITIONED BY (bucket(2, id))", ", NULL" if time else ""
        name = made(world, f"id bigint, name string{time}", layout, f"(1, 'a'{null}), (2, 'b'{null}), (3, 'c'{null})")
        spark.sql(f"ALTER TABLE {name} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY name DESC")
        world.send([sent(1, {"id": 1, "name": "new"}), sent(4, {"id": 4, "name": "d"})])

        def die(*_: Any) -> None:
            raise OSError("dies")

        with monkeypatch.context() as patched:
            patched.setattr("repartition.run.adopt.table_stamped", die)
            with pytest.raises(RepartitionError):
                world.run()
        assert {key: name for key, (name, _) in held(world).items()} == {1: "a", 2: "b", 3: "c"}
        world.run()
        assert held(world) == {1: ("new", 0), 2: ("b", None), 3: ("c", None), 4: ("d", 1)}
        world.change({**rule, "adopt": False, "select": [*select, "id % 2 AS odd"]})
        world.send([sent(2, {"id": 2, "name": "later"}), sent(5, {"id": 5, "name": "e"})])
        world.run()
        assert held(world)[2] == ("later", 2)
        assert len(held(world)) == 5
        assert world.run().ranges == 0


def test_a_table_without_rows_is_adopted_and_one_that_is_not_there_is_made(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, RULE) as world:
        made(world)
        world.send([sent(1, {"id": 1, "name": "a"})])
        world.run()
        assert held(world) == {1: ("a", 0)}
        world.catalog.drop_table(PROJECTION)
        world.run()
        assert held(world) == {1: ("a", 0)}


def test_a_truncation_takes_what_was_there_before(spark: Any, tmp_path: Path) -> None:
    rule = {**RULE, "envelope": "debezium"}
    with projection_world(spark, tmp_path, rule) as world:
        made(world, rows="(1, 'a'), (2, 'b')")
        world.send([sent(3, {"op": "c", "before": None, "after": {"id": 3, "name": "c"}})])
        world.run()
        assert set(held(world)) == {1, 2, 3}
        world.send([sent(None, {"op": "t"}), sent(4, {"op": "c", "before": None, "after": {"id": 4, "name": "d"}})])
        world.run()
        assert set(held(world)) == {4}


@pytest.mark.parametrize(
    ("columns", "layout", "rows", "said"),
    [
        ("name string", "", "", "it has no column id, which `key` names"),
        ("id bigint, name string, note string", "", "", "`select` gives no note, which would be null"),
        ("ID bigint, Name string", "", "", "`select` gives ID as id, Name as name"),
        ("id bigint NOT NULL, name string", "", "", "id may not be null there"),
        ("id bigint, name string, _pos int", "", "", "it has _pos, as Iceberg calls a column of its own; rename it"),
        ("id bigint, name string", "PARTITIONED BY (name)", "", r"partitioned by \[name\]; say that"),
        ("id bigint, name string", "", "(1, 'a'), (2, 'b'), (1, 'c')", r'have the key \{"id":1\}'),
        ("id string, name string", "", "", "cannot take what its rule gives"),
        (
            "id bigint, name string, _kafka_offset bigint",
            "",
            "(1, 'a', NULL), (2, 'b', 5)",
            "its rows have a _kafka_offset already",
        ),
        (
            "id bigint, name string, _kafka_partition int",
            "",
            "(1, 'a', NULL), (2, 'b', 5)",
            "its rows have a _kafka_partition already",
        ),
        (
            "id bigint, name string",
            "TBLPROPERTIES ('write.spark.accept-any-schema' = 'true', 'gc.enabled' = 'FALSE')",
            "",
            "its property write.spark.accept-any-schema is true: .*; its property gc.enabled is false: ",
        ),
        ("id bigint, name string, `a day` date", "PARTITIONED BY (`a day`)", "", "by a day, which no rule can name"),
    ],
)
def test_what_would_lose_something_is_refused(
    spark: Any, tmp_path: Path, columns: str, layout: str, rows: str, said: str
) -> None:
    with projection_world(spark, tmp_path, RULE) as world:
        made(world, columns, layout, rows)
        world.send([sent(1, {"id": 1, "name": "new"})])
        before = world.catalog.load_table(PROJECTION).metadata
        with pytest.raises(RepartitionError, match=said):
            world.run()
        assert world.catalog.load_table(PROJECTION).metadata == before


def test_what_is_within_a_column_is_not_lost_either(spark: Any, tmp_path: Path) -> None:
    rule = {**RULE, "select": ["id", "name", "pos", "way"]}
    with projection_world(spark, tmp_path, rule) as world:
        columns = "id bigint, name string, pos struct<lat: bigint, note: string>, way array<struct<n: bigint, m: int>>"
        made(world, columns)
        world.send([sent(1, {"id": 1, "name": "new", "pos": {"lat": 1}, "way": [{"n": 1}]})])
        with pytest.raises(RepartitionError, match=r"gives no pos\.note, way\.m, which would be null"):
            world.run()


def test_what_is_refused_for_its_layout_is_as_it_was(spark: Any, tmp_path: Path) -> None:
    """Of columns that only the rule has, too."""
    rule = {
        **RULE,
        "select": ["id", "cast(id AS decimal(9, 2)) AS name", "name AS text"],
        "sort_by": ["zorder(id, name)"],
    }
    with projection_world(spark, tmp_path, rule) as world:
        name = made(world, "id bigint, name decimal(9, 2)")
        spark.sql(f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY id, name")
        world.send([sent(1, {"id": 1, "name": "new"})])
        before = world.catalog.load_table(PROJECTION).metadata
        with pytest.raises(RepartitionError, match="zorder takes no column of type decimal"):
            world.run()
        assert world.catalog.load_table(PROJECTION).metadata == before


def test_nothing_is_adopted_that_belongs_to_somebody(spark: Any, tmp_path: Path) -> None:
    other = {"mode": "upsert", "key": ["id"], "select": ["id", "name"]}
    with projection_world(spark, tmp_path, other) as world:
        made(world)
        world.send([sent(1, {"id": 1, "name": "new"})])
        with pytest.raises(RepartitionError, match="one that you made yourself becomes the projection by `adopt`"):
            world.run()
        world.change({**other, "adopt": True})
        with world.catalog.load_table(PROJECTION).transaction() as changed:
            changed.set_properties({"tierberg.copy.topic-id": "ff"})
        with pytest.raises(RepartitionError, match="choose another `table`"):
            world.run()
