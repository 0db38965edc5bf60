"""What producers may send into a projection: a record changes its own row, or is a dead letter and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
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


INNER = ("kafka", "deleted", "seen", "was", "fault", "kept", "step", "rank", "told_name", "row", "keep", "bad_row")


@pytest.mark.parametrize("select", [["*"], ["id"], ["_item.*", "id"]])
def test_members_with_names_that_a_run_uses_within_stop_nothing(spark: Any, tmp_path: Path, select: list[str]) -> None:
    members = {f"__tierberg_{name}": "x" for name in INNER} | {"__TIERBERG_after": 1}
    rules: list[dict[str, Any]] = [
        {"table": "plain", "select": select, "explode": "lines"} if "_item.*" in select else {"table": "plain"},
        {"table": "keyed", "mode": "upsert", "key": ["id"], "soft_deletes": True},
        {"table": "events", **RULE, "soft_deletes": True},
    ]
    if "_item.*" not in select:
        rules[0]["select"] = select
        rules[1]["select"] = [*select]
    with projection_world(spark, tmp_path, *rules) as world:
        row = {"id": 7, "lines": [{"n": 1, **members}], **members}
        world.send([sent({"id": 7}, {"op": "c", "before": None, "after": {"id": 8}, **row})])
        world.send([sent({"id": 7}, {"op": "c", "before": None, "after": {"id": 8, **members}, **row})])
        for number, rule in enumerate(rules):
            world.run(number)
            found = world.rows(("kafka", str(rule["table"])))
            assert {item["id"] for item in found} == ({8} if number == 2 else {7})
            ours = [name.lower() for name in found[-1] if "tierberg" in name.lower()]
            assert all(name.startswith("x___tierberg") for name in ours)
            assert ours or select == ["id"]
            assert not world.rows(("kafka", f"{rule['table']}__dead_letters"))


def test_members_of_an_item_give_way_to_what_select_names(spark: Any, tmp_path: Path) -> None:
    rule = {"explode": "lines", "select": ["id", "_item.*"], "partition_by": ["bucket(2, id)"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent(1, {"id": 1, "lines": [{"n": 1}]})])
        world.run()
        world.send(
            [sent(2, {"id": 2, "lines": [{"n": 2, "ID": 9, "id_bucket": 4, "_item_position": 7, "_KAFKA_offset": 8}]})]
        )
        world.run()
        found = [(row["id"], row["n"], row.get("ID__2"), row.get("id_bucket__2")) for row in world.rows()]
        assert found == [(1, 1, None, None), (2, 2, 9, 4)]


OF_ICEBERG = ("_file", "_POS", "_partition", "_spec_id", "_deleted", "_row_id", "_change_type", "$path")


def test_members_with_names_of_engines_own_columns_give_way(spark: Any, tmp_path: Path) -> None:
    """Spark could not read the table any more."""
    rules: list[dict[str, Any]] = [
        {"table": "events", **RULE},
        {"table": "within", "select": ["id", "x.*"]},
        {"table": "keyed", "mode": "upsert", "key": ["id"], "select": ["x.*", "id"], "format_version": 3},
    ]
    with projection_world(spark, tmp_path, *rules) as world:
        name = world.settings.catalog.name
        for members in ({}, dict.fromkeys(OF_ICEBERG, "a"), dict.fromkeys(OF_ICEBERG, "b")):
            row = {"id": 7, "x": {"q": 1, **members}}
            world.send([sent({"id": 7}, {"op": "c", "before": None, "after": {"id": 7, **members}, **row})])
            for number, rule in enumerate(rules):
                world.run(number)
                found = spark.sql(f"SELECT * FROM `{name}`.kafka.{rule['table']} ORDER BY _kafka_offset").collect()
                assert {key: found[-1][f"{key}__2"] for key in members} == members
                assert not world.rows(("kafka", f"{rule['table']}__dead_letters"))


def test_a_table_that_has_a_column_of_icebergs_is_refused_with_the_cure(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, UPSERT) as world:
        table = f"`{world.settings.catalog.name}`.kafka.{PROJECTION[1]}"
        world.send([sent(1, {"k": 1})])
        world.run()
        spark.sql(f"ALTER TABLE {table} ADD COLUMN _partition string")
        world.send([sent(1, {"k": 1, "v": 2})])
        cure = f"ALTER TABLE {'.'.join(PROJECTION)} DROP COLUMN _partition"
        with pytest.raises(RepartitionError, match=cure) as raised:
            world.run()
        assert raised.value.kind == "bad_rule"
        spark.sql(f"ALTER TABLE {table} DROP COLUMN _partition")
        world.run()
        assert [row["v"] for row in world.rows()] == [2]


def test_a_member_that_is_called_as_a_partition_is_gives_way(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"partition_by": ["bucket(2, id)"]}) as world:
        world.send([sent(1, {"id": 1})])
        world.run()
        world.send([sent(2, {"id": 2, "id_bucket": "mine"})])
        world.run()
        assert [(row["id"], row.get("id_bucket__2")) for row in world.rows()] == [(1, None), (2, "mine")]


def test_keys_that_are_no_utf8_are_keys(spark: Any, tmp_path: Path) -> None:
    rule = {**UPSERT, "select": ["cast(_kafka_key AS string) AS k", "n"]}
    keys = [b"Z\xfcrich", b"Z\xefrich", "Zürich".encode(), b"\xff"]
    with projection_world(spark, tmp_path, rule) as world:
        for n in (1, 2):
            for key in keys:
                world.send([(key, b'{"n": %d}' % n)])
                world.run()
        found = spark.sql(f"SELECT hex(k) AS k, n FROM `{world.settings.catalog.name}`.kafka.{PROJECTION[1]}").collect()
        assert sorted((row["k"], row["n"]) for row in found) == sorted((key.hex().upper(), 2) for key in keys)
        world.send([(keys[0], None)])
        world.run()
        left = spark.sql(f"SELECT hex(k) AS k FROM `{world.settings.catalog.name}`.kafka.{PROJECTION[1]}").collect()
        assert keys[0].hex().upper() not in {row["k"] for row in left}


def test_dates_beyond_the_years_of_python_are_keys(spark: Any, tmp_path: Path) -> None:
    rule = {**UPSERT, "key": ["until"], "select": ["date_from_unix_date(day) AS until", "v", "day"]}
    days = (2_147_483_647, -2_147_483_648, -719_600, 0)
    with projection_world(spark, tmp_path, rule) as world:
        for value, some in ((1, days), (2, days[:1]), (3, days[1:])):
            world.send([sent(n, {"day": n, "v": value}) for n in some])
            world.run()
        found = spark.sql(f"SELECT day, v FROM `{world.settings.catalog.name}`.kafka.{PROJECTION[1]}").collect()
        assert {row["day"]: row["v"] for row in found} == {days[0]: 2, **dict.fromkeys(days[1:], 3)}


def test_what_is_no_expression_of_one_row_is_a_matter_of_the_rule(spark: Any, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"select": ["row_number() OVER (ORDER BY id) AS n"]}, "must stand alone"),
        ({"select": ["id", "(SELECT max(id) FROM range(3)) AS n"]}, "must stand alone"),
        ({"where": "id IN (SELECT id FROM range(3))"}, "must stand alone"),
        ({"select": ["sum(id) AS n"]}, "must stand alone"),
        ({"select": ["idd"]}, "`select`: idd: .*idd"),
        ({"where": "idd > 1"}, "`where`: idd > 1: .*idd"),
        ({"select": ["id +"]}, r"`select`: id \+: "),
        ({"where": "id"}, "`where`: id: "),
        ({"where": "id > 0, id < 9"}, "`where`: "),
        ({"select": ["id AS __tierberg_row"]}, "gives __tierberg_row: names with __tierberg_ are not for columns"),
        ({"select": ["id AS _file"]}, "gives _file, as engines call a column of their own"),
        ({"select": ["*", "id AS _POS"]}, "gives _POS, as engines call"),
    ]
    with projection_world(spark, tmp_path, {}) as world:
        world.send([sent(1, {"id": 1})])
        for rule, said in wrong:
            world.change(rule)
            with pytest.raises(RepartitionError, match=said) as raised:
                world.run()
            assert raised.value.kind == "bad_rule"


def test_a_column_of_the_topic_that_another_one_is_called_gives_way(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"select": ["*", "v * 2 AS hours"]}) as world:
        world.send([sent(1, {"v": 1})])
        world.run()
        world.send([sent(2, {"v": 2, "HOURS": 5, "hours__2": 6})])
        world.run()
        found = [(row["v"], row["hours"], row.get("HOURS__3"), row.get("hours__2")) for row in world.rows()]
        assert found == [(1, 2, None, None), (2, 4, 5, 6)]
