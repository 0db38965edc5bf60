"""A row for each item of a list or map (`explode`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from repartition.errors import RepartitionError
from rsm_bridge.config.projections import ProjectionRule
from tests.projections.projection_support import LETTERS, PROJECTION, ProjectionWorld, framed, projection_world, sent
from tests.projections.test_projections_races import die

LINES = {"explode": "lines"}


def line(sku: str | None, n: int | None = 1) -> dict[str, Any]:
    return {"sku": sku, "n": n}


def order(number: int, *lines: Any) -> dict[str, Any]:
    return {"id": number, "lines": list(lines)}


def told(world: ProjectionWorld, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("_kafka_offset", "_item_position", *names)) for row in world.rows())


def letters(world: ProjectionWorld) -> list[tuple[int, int | None, str]]:
    return [(row["_kafka_offset"], row["_item_position"], row["error"]) for row in world.rows(LETTERS)]


def test_each_item_is_a_row(spark: Any, tmp_path: Path) -> None:
    rule = {**LINES, "select": ["id", "_item.*", "_item.n * 2 AS twice"], "where": "id <> 7"}
    with projection_world(spark, tmp_path, rule) as world:
        world.send(
            [
                sent(1, order(1, line("a"), line("b", 2), line("a"))),
                sent(2, order(2)),
                sent(3, {"id": 3}),
                sent(4, {"id": 4, "lines": None}),
                sent(5, None),
                sent(6, order(6, line(None))),
                sent(7, order(7, line("gone"))),
            ]
        )
        assert world.run().dead_letters == 0
        first = [(0, 0, 1, "a", 1, 2), (0, 1, 1, "b", 2, 4), (0, 2, 1, "a", 1, 2), (5, 0, 6, None, 1, 2)]
        assert told(world, "id", "sku", "n", "twice") == first
        names = ["id", "sku", "n", "twice", "_kafka_partition", "_kafka_offset", "_item_position"]
        assert [name for name in world.rows()[0] if name != "_additional"] == names
        world.send([sent(n, order(n, line("x", n), line("y", n))) for n in range(20, 30)], 1)
        job = world.job()
        job.step = lambda step: die() if step == "publish" else None
        with pytest.raises(RepartitionError):
            job.run()
        assert told(world, "id", "sku", "n", "twice") == first
        world.run()
        assert len(world.rows()) == 24
        assert world.run().ranges == 0


def test_the_star_is_the_record_and_the_item(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, LINES) as world:
        world.send([sent(1, {"id": 1, "_item": "mine", "_ITEM_POSITION": 9, "lines": [line("a"), None]})])
        world.run()
        rows = world.rows()
        first, second = (row["_item"] for row in rows)
        assert ((first["sku"], first["n"]), second) == (("a", 1), None)
        assert [row["x__item"] for row in rows] == ["mine", "mine"]
        assert [row["x__ITEM_POSITION"] for row in rows] == [9, 9]
        assert "lines" not in rows[0]


def test_items_within_a_struct_and_of_a_map(spark: Any, tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "tags", "type": {"type": "map", "values": "int"}},
            {
                "name": "body",
                "type": {
                    "type": "record",
                    "name": "Body",
                    "fields": [{"name": "lines", "type": {"type": "array", "items": ["null", "string"]}}],
                },
            },
        ],
    }
    rules = [
        {"table": "by_tag", "explode": "tags", "select": ["_item.key AS tag", "_item.value AS n"]},
        {"table": "by_line", "explode": "body.lines", "select": ["upper(_item) AS line", "body"]},
    ]
    with projection_world(spark, tmp_path, *rules, schemas=[schema]) as world:
        value = {"tags": {"a": 1, "b": 2}, "body": {"lines": ["x", None]}}
        world.send([(b"1", framed(1, schema, value)), (b"2", framed(1, schema, {"tags": {}, "body": {"lines": []}}))])
        for number in range(2):
            world.run(number)
        tags = world.rows(("kafka", "by_tag"))
        assert {(row["tag"], row["n"], row["_item_position"]) for row in tags} == {("a", 1, 0), ("b", 2, 1)}
        lines = [(row["line"], row["_item_position"], row["body"]) for row in world.rows(("kafka", "by_line"))]
        assert sorted(lines, key=lambda row: row[1]) == [("X", 0, value["body"]), (None, 1, value["body"])]


def test_one_item_that_fails_is_a_dead_letter_and_is_replayed(spark: Any, tmp_path: Path) -> None:
    bad, mended = ({**LINES, "select": ["id", f"60 div {by} AS share"]} for by in ("_item.n", "nullif(_item.n, 0)"))
    with projection_world(spark, tmp_path, bad) as world:
        world.send([sent(1, order(1, line("a", 1), line("b", 0), line("c", 3))), (b"2", b"{"), sent(3, order(3))])
        assert world.run().dead_letters == 2
        assert told(world, "share") == [(0, 0, 60), (0, 2, 20)]
        unread = letters(world)[1]
        assert letters(world) == [(0, 1, "select failed"), unread]
        assert unread[:2] == (1, None)
        assert unread[2].startswith("undecodable")
        world.change(mended)
        job = world.job(replay=True)
        job.step = lambda step: die() if step == "dead letters" else None
        with pytest.raises(RepartitionError):
            job.run()
        world.job(replay=True).run()
        assert told(world, "share") == [(0, 0, 60), (0, 1, None), (0, 2, 20)]
        assert letters(world) == [unread]


def test_letters_from_before_there_were_items_get_their_place(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"select": ["id", "60 div id AS share"]}) as world:
        world.send([sent(1, order(0, line("a", 0), line("b", 0)))])
        assert world.run().dead_letters == 1
        world.catalog.drop_table(PROJECTION)
        world.change({**LINES, "select": ["id", "60 div _item.n AS share"]})
        assert world.run().dead_letters == 2
        assert {at for _, at, _ in letters(world)} >= {0, 1}


def test_what_has_no_items_is_refused(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"explode": "id"}) as world:
        world.send([sent(1, order(1, line("a")))])
        with pytest.raises(RepartitionError, match="explode: id is a column of type bigint, and only lists and maps"):
            world.run()
        world.change({"explode": "body.lines"})
        with pytest.raises(RepartitionError, match=r"the topic's table has no column body\.lines"):
            world.run()
        world.change(LINES)
        world.run()
        world.send([sent(2, order(2, line("a")))])
        world.change({})
        with pytest.raises(
            RepartitionError, match="a row for each item of lines, and the rule's `explode` is now none"
        ):
            world.run()
        world.change({**LINES, "select": ["7 AS _item_position"]})
        with pytest.raises(RepartitionError, match="gives _item_position another meaning"):
            world.run()


def test_rules_that_cannot_be() -> None:
    with pytest.raises(ValidationError, match="upsert takes no explode"):
        ProjectionRule(table="t", mode="upsert", key=("id",), explode="lines")
    with pytest.raises(ValidationError, match="is no column"):
        ProjectionRule(table="t", explode="split(text, ',')")
