"""Changes in the order of the database's log (`key_order: source`), whatever order Kafka has them in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from tests.projections.projection_support import LETTERS, Sent, projection_world, sent
from tests.projections.test_projections_cdc import customer, event, names, of

RULE = {
    "mode": "upsert",
    "key": ["id"],
    "envelope": "debezium",
    "select": ["*", "_event.source.lsn AS lsn"],
    "key_order": "source",
    "source_order": ["lsn"],
}


def test_what_a_connector_sends_again_changes_nothing(spark: Any, tmp_path: Path) -> None:
    """A connector that is started again sends what it had sent: with what came later, and in runs of their own."""
    first = [of(n, "r", None, customer(n, f"c{n}"), lsn=10) for n in range(4)]
    later = [
        of(1, "u", customer(1, "c1"), customer(1, "new"), lsn=20),
        of(2, "d", customer(2, "c2"), None, lsn=30),
        of(3, "u", customer(3, "c3"), customer(30, "moved"), lsn=40),
        of(1, "u", customer(1, "new"), customer(1, "newest"), lsn=50),
    ]
    wanted = {0: "c0", 1: "newest", 30: "moved"}
    with projection_world(spark, tmp_path, {**RULE, "soft_deletes": True}) as world:

        def live() -> dict[int, str]:
            return {row["id"]: row["name"] for row in world.rows() if not row["__deleted"]}

        world.send(first + later)
        world.run()
        assert live() == wanted
        for again in (first, later[:2], later[:1]):
            world.send(again)
            world.run()
            assert live() == wanted
        world.send([*first, of(0, "u", None, customer(0, "u0"), lsn=60), *later[:3]], 1)
        world.run()
        assert live() == wanted | {0: "u0"}
        assert not world.catalog.table_exists(LETTERS)


def test_keys_may_move_where_the_source_orders_them(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, RULE) as world:
        world.send([of(n, "u", None, customer(n, f"late {n}"), lsn=9) for n in range(2)])
        world.run()
        world.send([of(0, "u", None, customer(0, "early"), lsn=8), of(1, "d", customer(1, ""), None, lsn=10)], 1)
        world.run()
        assert names(world) == {0: "late 0"}


def test_a_row_that_gets_another_key_goes_by_the_change_that_says_so(spark: Any, tmp_path: Path) -> None:
    """Not by the position that the row had, which is its own, at an offset and in a partition that count as later."""
    rule = {**RULE, "select": ["*"], "source_order": ["version"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([of(n, "r", None, customer(n, f"c{n}", version=1)) for n in range(4)], 1)
        world.run()
        moved = [of(3, "u", customer(3, "c3", version=1), customer(30, "moved", version=2))]
        world.send([*moved, of(2, "u", {"id": 2, "name": "c2"}, customer(20, "moved", version=2))])
        world.run()
        assert names(world) == {0: "c0", 1: "c1", 20: "moved", 30: "moved"}
        assert not world.catalog.table_exists(LETTERS)


def test_a_position_of_several_columns(spark: Any, tmp_path: Path) -> None:
    """MySQL's: the file, the place in it and the row of the event."""

    def at(number: int, name: str, file: str, pos: int, row: int) -> Sent:
        source = {"connector": "mysql", "file": file, "pos": pos, "row": row}
        return sent({"id": number}, {**event("u", None, customer(number, name)), "source": source})

    order = ["file", "pos", "row"]
    rule = {**RULE, "select": ["*", *(f"_event.source.{name}" for name in order)], "source_order": order}
    places = [("bin.000009", 700, 0), ("bin.000010", 4, 0), ("bin.000010", 4, 1), ("bin.000010", 5, 0)]
    changes = [at(n, f"{n} at {place}", *place) for place in places for n in range(3)]
    random.Random(7).shuffle(changes)
    with projection_world(spark, tmp_path, rule) as world:
        for start in range(0, len(changes), 5):
            world.send(changes[start : start + 5], start // 5 % 2)
            world.run()
        assert names(world) == {n: f"{n} at {places[-1]}" for n in range(3)}


def test_changes_that_do_not_say_their_position(spark: Any, tmp_path: Path) -> None:
    """A row gives way to those that say one. A delete would do nothing, so it is a dead letter."""
    rule = {"mode": "upsert", "key": ["id"], "key_order": "source", "source_order": ["version", "part"]}

    def row(number: int, version: int | None, name: str) -> Sent:
        return sent(number, {"id": number, "version": version, "part": version, "name": name})

    rule["select"] = ["*", "cast(cast(_kafka_key AS string) AS int) AS k"]
    rule["key"] = ["k"]
    with projection_world(spark, tmp_path, rule) as world:
        world.send([row(1, 1, "c1"), row(2, None, "c2"), row(3, None, "c3")])
        world.run()
        world.send([row(1, None, "older"), row(2, None, "newer"), row(4, None, "c4")], 1)
        world.send([row(3, 1, "newest"), row(3, None, "older"), sent(1, None)])
        world.run()
        assert {found["k"]: found["name"] for found in world.rows()} == {1: "c1", 2: "newer", 3: "newest", 4: "c4"}
        errors = [(found["_kafka_offset"], found["error"]) for found in world.rows(LETTERS)]
        assert errors == [(5, "a delete that does not say version, part")]


def test_rows_from_before_the_rule_give_way(spark: Any, tmp_path: Path) -> None:
    """They have no position: what comes next is later, whichever it is."""
    plain = {"mode": "upsert", "key": ["id"], "envelope": "debezium"}
    with projection_world(spark, tmp_path, plain) as world:
        world.send([of(n, "r", None, customer(n, f"c{n}"), lsn=10) for n in range(2)])
        world.run()
        world.change(RULE)
        world.send([of(1, "u", None, customer(1, "new"), lsn=5)], 1)
        world.run()
        assert names(world) == {0: "c0", 1: "new"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_order": ["gone"]}, "`source_order` needs gone"),
        ({"select": ["*", "_event.source AS lsn"]}, "source_order: lsn is a column of type struct"),
    ],
)
def test_a_position_that_is_none(spark: Any, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with projection_world(spark, tmp_path, {**RULE, **change}) as world:
        world.send([of(1, "r", None, customer(1, "c1"))])
        with pytest.raises(RepartitionError, match=message) as raised:
            world.run()
        assert raised.value.kind == "bad_rule"
