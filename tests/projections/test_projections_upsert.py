"""Projections with `mode: upsert`: the latest record of each key, in Kafka's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from repartition.run import write
from repartition.run.target import quoted
from tests.projections.projection_support import LETTERS, PROJECTION, ProjectionWorld, projection_world, sent

RULE = {"mode": "upsert", "key": ["k"], "select": ["cast(_kafka_key AS string) AS k", "id", "who"]}


def state(rows: list[dict[str, Any]]) -> dict[Any, tuple[Any, ...]]:
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: (row["id"], row["who"], row["_kafka_offset"]) for row in rows}


@pytest.mark.parametrize("writes", ["merge-on-read", "copy-on-write"])
def test_the_latest_row_of_each_key(spark: Any, tmp_path: Path, writes: str) -> None:
    with projection_world(spark, tmp_path, {**RULE, "row_writes": writes, "partition_by": ["bucket(2, k)"]}) as world:
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


ROW = {"id": 1, "name": "a", "city": None}


def change(op: str, before: object, after: object) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1}


def test_debezium_envelopes(spark: Any, tmp_path: Path) -> None:
    """Inserts, updates, a key that changes, deletes with and without tombstones, delete then insert in one run."""
    with projection_world(spark, tmp_path, {"mode": "upsert", "key": ["id"], "envelope": "debezium"}) as world:
        world.send(
            [
                sent(1, change("c", None, {**ROW, "id": 1})),
                sent(2, change("r", None, {**ROW, "id": 2, "city": "Ulm"})),
                sent(1, change("u", {**ROW, "id": 1}, {**ROW, "id": 1, "name": "b"})),
                sent(2, change("u", {**ROW, "id": 2}, {**ROW, "id": 20, "name": "moved"})),
                sent(3, change("c", None, {**ROW, "id": 3})),
                sent(3, change("d", {**ROW, "id": 3}, None)),
                sent(3, None),
                sent(4, change("c", None, {**ROW, "id": 4})),
                sent(4, change("d", {**ROW, "id": 4}, None)),
                sent(4, change("c", None, {**ROW, "id": 4, "name": "again"})),
            ]
        )
        world.run()
        assert {row["id"]: row["name"] for row in world.rows()} == {1: "b", 20: "moved", 4: "again"}
        assert {"id", "name", "city", "_kafka_partition", "_kafka_offset"} <= set(world.rows()[0])
        assert not {"before", "after", "op"} & set(world.rows()[0])
        world.send(
            [sent(1, change("d", {**ROW, "id": 1}, None)), sent(1, None), sent(5, change("c", None, ROW | {"id": 5}))]
        )
        world.run()
        assert sorted(row["id"] for row in world.rows()) == [4, 5, 20]


def test_both_sides_of_an_envelope_need_not_be_alike(spark: Any, tmp_path: Path) -> None:
    """Fields in another order, fields that one side has not, another type: a key within is found by its name."""
    rule = {"mode": "upsert", "key": ["k"], "envelope": "debezium", "select": ["at.k AS k", "name"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent(1, change("u", {"at": {"z": 5, "k": 1}, "name": 3}, {"name": "n", "at": {"k": 2, "y": 7}}))])
        world.send([sent(1, change("c", None, {"name": "m", "at": {"k": 5, "y": 1}}))])
        world.run()
        world.send([sent(1, change("u", {"at": {"z": 9, "k": 2}, "name": 3}, {"name": "o", "at": {"k": 7, "y": 1}}))])
        world.run()
        assert {row["k"]: row["name"] for row in world.rows()} == {5: "m", 7: "o"}
        assert not world.catalog.table_exists(LETTERS)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({**RULE, "key": ["gone"]}, "`key` needs gone"),
        ({**RULE, "key_order": "timestamp"}, "needs _kafka_timestamp"),
        ({**RULE, "retention": "1d"}, "`retention` needs _kafka_timestamp"),
        ({**RULE, "select": ["id AS k", "who AS k"]}, "gives k twice"),
    ],
)
def test_what_a_rule_needs_must_be_selected(spark: Any, tmp_path: Path, rule: dict[str, Any], message: str) -> None:
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent("a", {"id": 1, "who": "x"})])
        with pytest.raises(RepartitionError, match=message) as raised:
            world.run()
        assert raised.value.kind == "bad_rule"


def test_rows_without_a_key_and_undecodable_ones_are_dead_letters(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"mode": "upsert", "key": ["id"], "envelope": "debezium"}) as world:
        world.send([sent(1, change("c", None, ROW)), sent(2, change("c", None, {**ROW, "id": None})), (b"3", b"{")])
        world.send([sent(9, change("d", None, None))])
        assert world.run().dead_letters == 3
        letters = world.rows(LETTERS)
        assert [row["error"].partition(":")[0] for row in letters] == [
            "the key is null",
            "undecodable",
            "the key is null",
        ]
        assert [row["id"] for row in world.rows()] == [1]


def test_a_row_that_leaves_the_condition_leaves_the_projection(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {**RULE, "where": "who <> 'gone'"}) as world:
        world.send([sent("a", {"id": 1, "who": "x"}), sent("b", {"id": 2, "who": "gone"})])
        world.run()
        assert set(state(world.rows())) == {'"a"'}
        world.send([sent("a", {"id": 1, "who": "gone"}), sent("b", {"id": 2, "who": "back"})])
        world.run()
        assert set(state(world.rows())) == {'"b"'}


@pytest.mark.parametrize("writes", ["merge-on-read", "copy-on-write"])
def test_keys_move_between_the_partitions_of_both_zeros(spark: Any, tmp_path: Path, writes: str) -> None:
    shares = ["-0.0", "0.0", "NaN"]
    select = ["cast(_kafka_key AS string) AS k", "id", "cast(share AS double) AS share"]
    rule = {"mode": "upsert", "key": ["k"], "select": select, "partition_by": ["share"], "row_writes": writes}
    with projection_world(spark, tmp_path, rule) as world:
        for turn in range(3):
            world.send([sent(n % 20, {"id": turn, "share": shares[(n + turn) % 3]}) for n in range(20)])
            world.run()
        found = {row["k"]: (row["id"], str(row["share"]).replace("nan", "NaN")) for row in world.rows()}
        assert found == {str(n): (2, shares[(n + 2) % 3]) for n in range(20)}


class _Thrown:
    """An exception of Java's."""

    def getClass(self) -> _Thrown:  # noqa: N802  (Java's name)
        return self

    def getName(self) -> str:  # noqa: N802
        return "org.apache.spark.SparkException"

    def getMessage(self) -> str:  # noqa: N802
        return "Not enough memory to build and broadcast the table to all worker nodes."

    def getCause(self) -> None:  # noqa: N802
        return None


class _TooLargeError(Exception):
    java_exception = _Thrown()


@pytest.mark.parametrize("where", ["measured", "first sent", "later sent"])
def test_changes_that_are_larger_than_they_looked_are_sorted_by_key(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Text packs well: a few MiB of files may be more than memory has."""
    insert, merge, asked = write._insert_missing, write._Merge.run, []

    def _insert(*given: Any) -> None:
        if where == "first sent":
            raise _TooLargeError
        insert(*given)

    def _merged(*given: Any, few: bool) -> None:
        asked.append(few)
        if few and where == "later sent":
            raise _TooLargeError
        merge(*given, few=few)

    with projection_world(spark, tmp_path, RULE) as world:
        world.send([sent(n, {"id": n, "who": "first"}) for n in range(10)])
        world.run()
        if where == "measured":
            monkeypatch.setattr(write, "FEW_WORKED_OUT_BYTES_MAX", 0)
        monkeypatch.setattr(write, "_insert_missing", _insert)
        monkeypatch.setattr(write._Merge, "run", _merged)
        world.send([sent(n, None if n == 5 else {"id": n, "who": "second"}) for n in range(5, 15)])
        world.run()
        assert asked[-1] is False
        assert state(world.rows()) == {
            str(n): (n, "first" if n < 5 else "second", n if n < 5 else n + 5) for n in range(15) if n != 5
        }


KEYS: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "numbers": ({}, list(range(10)), list(range(100, 110))),
    "texts": ({}, [f"a{n}" for n in range(10)], ["b'\\ü", *(f"b{n}" for n in range(9))]),
    "buckets": ({"partition_by": ["bucket(64, id)"]}, [5, 995], [500]),
}


@pytest.mark.parametrize("kind", list(KEYS))
@pytest.mark.parametrize("writes", ["merge-on-read", "copy-on-write"])
def test_files_without_the_keys_of_a_run_are_not_read(spark: Any, tmp_path: Path, kind: str, writes: str) -> None:
    """They are away while it runs."""
    rule, far, changed = KEYS[kind]
    with projection_world(spark, tmp_path, {"mode": "upsert", "key": ["id"], "row_writes": writes, **rule}) as world:
        for keys in (far, changed):
            world.send([sent(n, {"id": key, "who": "first"}) for n, key in enumerate(keys)])
            world.run()
        among = {row["id"]: row["path"] for row in _paths(spark, world)}
        away = [Path(among[key].removeprefix("file:")) for key in far]
        assert not {among[key] for key in far} & {among[key] for key in changed}
        new = {"numbers": 105, "texts": "b00", "buckets": 500}[kind]
        world.send([sent(n, {"id": key, "who": "second"}) for n, key in enumerate(changed)])
        world.send([sent(99, {"id": new, "who": "third"})])
        for path in set(away):
            path.rename(path.with_suffix(".away"))
        world.run()
        for path in set(away):
            path.with_suffix(".away").rename(path)
        found = {row["id"]: row["who"] for row in world.rows()}
        expected = dict.fromkeys(far, "first") | dict.fromkeys(changed, "second")
        assert found == expected | {new: "third"}


def _paths(spark: Any, world: ProjectionWorld) -> list[Any]:
    """Which file each key is in."""
    name = quoted(world.settings.catalog.name, *PROJECTION)
    rows: list[Any] = spark.sql(f"SELECT id, _file AS path FROM {name}").collect()
    return rows
