"""What producers may send into a projection: a record changes its own row, or is a dead letter and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.projections.projection_support import LETTERS, PROJECTION, ProjectionWorld, projection_world, sent
from tests.projections.test_projections_cdc import RULE, customer, event, of, snapshot

UPSERT = {"mode": "upsert", "key": ["k"]}


def errors(world: ProjectionWorld) -> dict[int, str]:
    return {row["_kafka_offset"]: row["error"] for row in world.rows(LETTERS)}


def test_keys_that_look_like_variables_are_keys(spark: Any, tmp_path: Path) -> None:
    """Spark replaces them in its statements unless it is told not to, and the least and greatest key are in one."""
    keys = [
        "${env:HOME}",
        "${system:user.home}",
        "${spark.app.name}",
        "$",
        "{}",
        "'",
        "\\'",
        "\\",
        "it's",
        "a\nb",
        "`k`",
    ]
    with projection_world(spark, tmp_path, UPSERT) as world:
        for value in (1, 2):
            world.send([sent(key, {"k": key, "v": value}) for key in keys])
            world.run()
            for key in keys:
                world.send([sent(key, {"k": key, "v": value * 10})])
            world.run()
        assert {row["k"]: row["v"] for row in world.rows()} == dict.fromkeys(keys, 20)
        assert world.count(PROJECTION) == len(keys)


@pytest.mark.parametrize("soft", [False, True])
def test_a_change_that_is_a_dead_letter_changes_nothing(spark: Any, tmp_path: Path, soft: bool) -> None:
    rule = {**RULE, "select": ["*", "cast(city AS int) AS number"], "soft_deletes": soft}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([of(n, "r", None, customer(n, f"c{n}", city="7")) for n in range(8)])
        world.run()

        def update(number: int, after: Any, op: str = "u") -> Any:
            return sent({"id": number}, event(op, customer(number, "old", city="bad"), after))

        world.send(
            [
                update(0, customer(0, "new", city="bad")),
                update(1, "oops"),
                update(2, None),
                update(3, {}),
                update(4, customer(4, "new", city="8"), op="q"),
                update(5, customer(5, "new", city="8")),  # what `before` says beside its key need not make sense
                update(6, None, op="d"),
                sent({"id": 7}, event("u", {"name": "who?"}, customer(7, "new"))),
            ]
        )
        world.run()
        assert {row["id"]: row["name"] for row in world.rows() if not soft or not row["__deleted"]} == {
            **{n: f"c{n}" for n in (0, 1, 2, 3, 4, 7)}, 5: "new",
        }  # fmt: skip
        nothing = "a change event without a row in after"
        assert errors(world) == {
            8: "select failed",
            9: nothing,
            10: nothing,
            11: "the key is null",
            12: "no change event that is known: its op is q",
            15: "the key of before is null",
        }


def test_a_key_that_moves_takes_its_row_along_whatever_else_it_says(spark: Any, tmp_path: Path) -> None:
    rule = {**RULE, "key": ["place"], "select": ["*", "concat(city, id) AS place", "cast(name AS int) AS n"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([of(1, "r", None, customer(1, "7", city="a")), of(2, "r", None, customer(2, "8", city="a"))])
        world.run()
        world.send([of(1, "u", customer(1, "no number", city="a"), customer(1, "9", city="b"))])
        world.run()
        assert {row["place"]: row["n"] for row in world.rows()} == {"a2": 8, "b1": 9}


@pytest.mark.parametrize("case", [str, str.upper])
def test_members_with_names_of_ours_stop_nothing(spark: Any, tmp_path: Path, case: Callable[[str], str]) -> None:
    rule = {**RULE, "select": ["*", "_event.op AS op", "upper(name) AS hours"], "soft_deletes": True}
    taken = {case("_kafka_offset"): 7, "__deleted": "x", case("_event"): "y", "HOURS": 1, "op": "z"}
    with projection_world(spark, tmp_path, rule) as world:
        snapshot(world, 2)
        world.send([of(1, "u", customer(1, "c1"), customer(1, "new", **taken)), of(0, "d", customer(0, "c0"), None)])
        world.run()
        row, gone = sorted(world.rows(), key=lambda found: -found["id"])
        assert (row["name"], row["op"], row["hours"], row["_kafka_offset"], row["__deleted"]) == (
            "new",
            "u",
            "NEW",
            2,
            False,
        )
        ours = [f"x_{case(name)}" for name in ("_kafka_offset", "_event")]
        given = [row[name] for name in (ours[0], "__deleted__2", ours[1], "HOURS__2", "op__2")]
        assert given == [7, "x", "y", 1, "z"]
        assert (gone["name"], gone["__deleted"]) == ("c0", True)
        found = spark.table(f"{world.settings.catalog.name}.kafka.{PROJECTION[1]}").columns
        assert len({name.lower() for name in found}) == len(found), "engines take names in any case"


def test_a_column_of_the_topic_that_another_one_is_called_gives_way(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"select": ["*", "v * 2 AS hours"]}) as world:
        world.send([sent(1, {"v": 1})])
        world.run()
        world.send([sent(2, {"v": 2, "HOURS": 5, "hours__2": 6})])
        world.run()
        found = [(row["v"], row["hours"], row.get("HOURS__3"), row.get("hours__2")) for row in world.rows()]
        assert found == [(1, 2, None, None), (2, 4, 5, 6)]
