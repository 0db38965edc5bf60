"""Fields within structs, lists and maps that are renamed, leave or come, below a projection that has rows of before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from repartition.run import read_plan
from repartition.run.target import quoted
from tests.projections.projection_support import PROJECTION, framed, projection_world, sent

MODES = {"append": {}, "upsert": {"mode": "upsert", "key": ["id"]}}


@pytest.fixture(params=["append", "few changes", "many changes"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Keys of a rule; an upsert writes in one of two ways."""
    if request.param == "many changes":
        monkeypatch.setattr(read_plan, "FEW_OFFSETS_MAX", 0)
    return dict(MODES["append" if request.param == "append" else "upsert"])


def order(name: str, aliases: tuple[str, ...] = (), kind: str = "int") -> dict[str, Any]:
    """Avro's schema; the field `name` is in a struct, in one within it, in those of a list, and of a map of lists."""

    def at(record: str) -> dict[str, Any]:
        fields = [{"name": "z", "type": "string"}, {"name": name, "type": kind, "aliases": list(aliases)}]
        return {"type": "record", "name": record, "fields": fields}

    deep = {"type": "record", "name": "Deep", "fields": [{"name": "in", "type": ["null", at("In")]}]}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", at("At")]},
        {"name": "deep", "type": ["null", deep]},
        {"name": "stops", "type": ["null", {"type": "array", "items": ["null", at("Stop")]}]},
        {"name": "named", "type": ["null", {"type": "map", "values": {"type": "array", "items": at("Named")}}]},
    ]
    return {"type": "record", "name": "Order", "fields": fields}


def filled(number: int, name: str) -> dict[str, Any]:
    at = {"z": "z", name: number}
    return {"id": number, "at": at, "deep": {"in": at}, "stops": [at, None], "named": {"a": [at], "b": []}}


def shown(number: int, name: str) -> dict[str, Any]:
    """What `filled` is in a projection that knows both names."""
    at = {"z": "z", "x": None, "y": None} | {name: number}
    return {"id": number, "at": at, "deep": {"in": at}, "stops": [at, None], "named": {"a": [at], "b": []}}


def nothing(number: int, **but: Any) -> dict[str, Any]:
    return {"id": number, "at": None, "deep": None, "stops": None, "named": None} | but


def test_a_field_that_the_topic_renames_is_another_one(spark: Any, tmp_path: Path, mode: dict[str, Any]) -> None:
    """Wherever it is; what is null stays null, and lists and maps keep their places."""
    before, after = order("x"), order("y", aliases=("x",))
    with projection_world(spark, tmp_path, mode, schemas=(before, after)) as world:
        world.send([(b"1", framed(1, before, filled(n, "x"))) for n in range(3)])
        world.run()
        values = [filled(1, "y"), nothing(3), nothing(4, deep={"in": None}, stops=[None], named={}), filled(5, "y")]
        world.send([(b"1", framed(2, after, value)) for value in values])
        world.run()
        # By Spark: PyIceberg shows a null list of structs as an empty one.
        rows = (
            spark.table(quoted(world.settings.catalog.name, *PROJECTION))
            .orderBy("_kafka_offset")
            .select(*nothing(0))
            .collect()
        )
        found = {row["id"]: row.asDict(recursive=True) for row in rows}
        assert found == {
            0: shown(0, "x"),
            1: shown(1, "y"),
            2: shown(2, "x"),
            3: {**nothing(3)},
            4: nothing(4, deep={"in": None}, stops=[None], named={}),
            5: shown(5, "y"),
        }


FIRST = ["id", "named_struct('a', 1, 'b', who, 'c', 2) AS at", "array(named_struct('a', 1, 'b', n)) AS l"]
NARROWER = ["id", "named_struct('b', concat(who, '!')) AS at", "array(named_struct('b', n), null) AS l"]
#: In another order, with a new field, and of narrower types.
OTHER = ["id", "named_struct('d', 5L, 'b', who, 'a', 3Y) AS at", "array(named_struct('b', 7Y, 'a', 8S)) AS l"]


def test_fields_that_select_gives_no_more_are_null(spark: Any, tmp_path: Path, mode: dict[str, Any]) -> None:
    """Those too that were never null before."""
    with projection_world(spark, tmp_path, mode | {"select": FIRST}) as world:
        for select, number in ((FIRST, 0), (NARROWER, 1), (OTHER, 2)):
            world.change(mode | {"select": select})
            world.send([sent(n, {"id": n, "who": f"w{n}", "n": n}) for n in (number, 9)])
            world.run()
        found = {row["id"]: (row["at"], row["l"]) for row in world.rows()}
        last = {"a": 3, "c": None, "d": 5}, [{"a": 8, "b": 7}]
        assert found == {
            0: ({"a": 1, "b": "w0", "c": 2, "d": None}, [{"a": 1, "b": 0}]),
            1: ({"a": None, "b": "w1!", "c": None, "d": None}, [{"a": None, "b": 1}, None]),
            2: (last[0] | {"b": "w2"}, last[1]),
            9: (last[0] | {"b": "w9"}, last[1]),
        }


def test_a_layout_by_a_field_that_is_gone(spark: Any, tmp_path: Path, mode: dict[str, Any]) -> None:
    laid = mode | {"partition_by": ["truncate(10, at.a)"], "sort_by": ["at.a desc", "who"]}
    with projection_world(
        spark, tmp_path, laid | {"select": ["id", "named_struct('a', id, 'b', who) AS at", "who"]}
    ) as world:
        world.send([sent(n, {"id": n, "who": f"w{n}"}) for n in (1, 2)])
        world.run()
        world.change(laid | {"select": ["id", "named_struct('b', who) AS at"]})
        world.send([sent(n, {"id": n, "who": f"w{n}"}) for n in (2, 3)])
        world.run()
        found = {row["id"]: (row["at"], row["who"]) for row in world.rows()}
        assert found == {
            1: ({"a": 1, "b": "w1"}, "w1"),
            2: ({"a": None, "b": "w2"}, None),
            3: ({"a": None, "b": "w3"}, None),
        }


def test_a_struct_never_becomes_something_else(spark: Any, tmp_path: Path) -> None:
    with projection_world(
        spark, tmp_path, {"select": ["id", "named_struct('a', named_struct('b', 1)) AS at"]}
    ) as world:
        world.send([sent(1, {"id": 1})])
        world.run()
        world.send([sent(1, {"id": 1})])
        for other in ("array(id)", "map('a', id)", "id", "named_struct('a', array(id))", "named_struct('a', id)"):
            world.change({"select": ["id", f"{other} AS at"]})
            with pytest.raises(RepartitionError, match="another name in `select`") as raised:
                world.run()
            assert raised.value.kind == "bad_rule"
        assert [row["at"] for row in world.rows()] == [{"a": {"b": 1}}]
