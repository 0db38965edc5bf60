"""Projections with `mode: append`: every record once, in whatever portions, laid out as the rule says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from repartition.run.target import TAG
from tests.projections.projection_support import LETTERS, PROJECTION, framed, projection_world, sent


def test_every_record_once_in_several_runs(spark: Any, tmp_path: Path) -> None:
    rule = {"partition_by": ["bucket(4, id)"], "sort_by": ["id desc"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent(n, {"id": n, "who": f"w{n % 3}"}) for n in range(20)])
        assert world.run().ranges == 1
        assert world.run().ranges == 0
        world.send([sent(n, {"id": n, "who": "late"}) for n in range(20, 25)])
        world.send([sent(7, {"id": 700, "who": "other partition"})], partition=1)
        assert world.run().ranges == 2
        rows = world.rows()
        assert [row["id"] for row in rows] == [*range(25), 700]
        assert [row["_kafka_offset"] for row in rows] == [*range(25), 0]
        table = world.catalog.load_table(PROJECTION)
        assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
        assert "main" in table.metadata.refs
        assert set(table.metadata.refs) == {"main", TAG}, "branches of runs are gone"


def test_what_cannot_be_transformed_is_a_dead_letter_once(spark: Any, tmp_path: Path) -> None:
    rule = {"select": ["id", "cast(amount AS int) AS amount", "100 / id AS share"], "where": "cast(level AS int) > 0"}
    with projection_world(spark, tmp_path, rule) as world:
        world.send(
            [
                sent(0, {"id": 1, "amount": "10", "level": "1"}),
                sent(1, {"id": 0, "amount": "10", "level": "1"}),  # divides by zero
                sent(2, {"id": 2, "amount": "ten", "level": "1"}),  # no number
                sent(3, {"id": 3, "amount": "30", "level": "high"}),  # the condition fails
                sent(4, {"id": 4, "amount": "40", "level": "0"}),  # left out
                (b"5", b"{"),  # undecodable
                sent(6, {"id": 5, "amount": None, "level": "2"}),
            ]
        )
        assert world.run().dead_letters == 4
        found = [(row["id"], row["amount"], row["_kafka_offset"]) for row in world.rows()]
        assert found == [(1, 10, 0), (5, None, 6)]
        letters = world.rows(LETTERS)
        reasons = [(row["_kafka_offset"], row["error"].partition(":")[0]) for row in letters]
        assert reasons == [(1, "select failed"), (2, "select failed"), (3, "where failed"), (5, "undecodable")]
        assert letters[3]["_kafka_value"] == b"{"


FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
CITY = {"type": "record", "name": "At", "fields": [{"name": "city", "type": "string"}]}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": CITY}, {"name": "who", "type": "string"}],
}


def test_new_and_wider_columns_of_the_topic_come_before_their_rows(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"partition_by": ["bucket(2, id)"]}, schemas=(FIRST, WIDER)) as world:
        world.send([(b"1", framed(1, FIRST, {"id": 1}))])
        world.run()
        world.send([(b"2", framed(2, WIDER, {"id": 2**40, "at": {"city": "Ulm"}, "who": "x"}))])
        world.run()
        rows = [(row["id"], row["at"], row["who"]) for row in world.rows()]
        assert rows == [(1, None, None), (2**40, {"city": "Ulm"}, "x")]


def test_partition_fields_and_sort_order_change_in_place(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"partition_by": ["bucket(4, id)"], "sort_by": ["who"]}) as world:
        world.send([sent(n, {"id": n, "who": "a"}) for n in range(5)])
        world.run()
        world.change({"partition_by": ["day(_kafka_timestamp)", "truncate(1, who)"], "sort_by": ["id desc nulls last"]})
        world.send([sent(n, {"id": n, "who": "b"}) for n in range(5, 10)])
        world.run()
        table = world.catalog.load_table(PROJECTION)
        found = [str(field.transform) for field in table.spec().fields if str(field.transform) != "void"]
        assert found == ["day", "truncate[1]"]
        assert [row["id"] for row in world.rows()] == list(range(10))
        snapshots = len(table.metadata.snapshots)
        world.run()
        again = world.catalog.load_table(PROJECTION)
        assert (again.metadata_location, len(again.metadata.snapshots)) == (table.metadata_location, snapshots)


def test_a_column_that_cannot_become_another_type_is_refused(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"select": ["id"]}) as world:
        world.send([sent(1, {"id": 1})])
        world.run()
        world.change({"select": ["cast(id AS string) AS id"]})
        world.send([sent(2, {"id": 2})])
        with pytest.raises(RepartitionError, match="another name in `select`") as raised:
            world.run()
        assert raised.value.kind == "bad_rule"


def test_a_column_that_the_rule_gives_no_more_stays(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {"select": ["id", "who"]}) as world:
        world.send([sent(1, {"id": 1, "who": "x"})])
        world.run()
        world.change({"select": ["id"]})
        world.send([sent(2, {"id": 2, "who": "y"})])
        world.run()
        assert [(row["id"], row["who"]) for row in world.rows()] == [(1, "x"), (2, None)]


def test_nested_fields_may_have_any_name(spark: Any, tmp_path: Path) -> None:
    value = {"id": 1, "user": {"user-agent": "a", "größe": 2, "a b": {"select": [{"x.y": 3}]}}}
    with projection_world(spark, tmp_path, {}) as world:
        world.send([sent(1, value)])
        world.run()
        world.send([sent(2, value)])
        world.run()
        original = world.rows(("kafka", "orders"))[0]["user"]
        assert original
        assert [row["user"] for row in world.rows()] == [original, original]


def test_backfill_in_portions(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {}) as world:
        for n in range(4):
            world.send([sent(m, {"id": m}) for m in range(n * 5, n * 5 + 5)])
        reads = []
        while True:
            ran = world.job(max_bytes=1).run()
            reads.append(world.count(PROJECTION))
            if ran.complete:
                break
        assert reads == [5, 10, 15, 20]


def test_both_zeros_and_no_number_are_partitions_of_their_own(spark: Any, tmp_path: Path) -> None:
    """Spark takes the two zeros for equal where it sorts, and Iceberg does not where it begins a file."""
    select = ["id", "cast(share AS double) AS share", "id % 3 AS third"]
    shares = ["-0.0", "0.0", "NaN", "1.5"]
    with projection_world(spark, tmp_path, {"select": select, "partition_by": ["share", "third"]}) as world:
        for first in (0, 60):
            world.send([sent(n, {"id": n, "share": shares[n % 4]}) for n in range(first, first + 60)])
            world.run()
        assert [row["id"] for row in world.rows()] == list(range(120))
        files = world.catalog.load_table(PROJECTION).inspect.files()
        assert len(files) == 2 * 4 * 3


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"partition_by": ["bucket(4, half)"], "select": ["id / 2.0D AS half"]}, "bucket.*type double"),
        ({"partition_by": ["day(missing)"]}, "no column missing"),
        ({"select": ["id", "id AS _kafka_offset"]}, "_kafka_offset another meaning"),
        ({"select": ["id", "_kafka_offset AS _kafka_partition"]}, "_kafka_partition another meaning"),
    ],
)
def test_a_rule_that_can_never_work_says_why(spark: Any, tmp_path: Path, rule: dict[str, Any], said: str) -> None:
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent(1, {"id": 1})])
        with pytest.raises(RepartitionError, match=said) as raised:
            world.run()
        assert raised.value.kind == "bad_rule"
        assert not world.catalog.table_exists(PROJECTION)
