"""Copies with `mode: append`: every record once, in whatever portions, laid out as the rule says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.copies.copy_support import COPY, copy_world, sent


def test_every_record_once_in_several_runs(spark: Any, tmp_path: Path) -> None:
    rule = {"partition_by": ["bucket(4, id)"], "sort_by": ["id desc"]}
    with copy_world(spark, tmp_path, rule) as world:
        world.send([sent(n, {"id": n, "who": f"w{n % 3}"}) for n in range(20)])
        assert world.run().ranges == 1
        assert world.run().ranges == 0
        world.send([sent(n, {"id": n, "who": "late"}) for n in range(20, 25)])
        world.send([sent(7, {"id": 700, "who": "other partition"})], partition=1)
        assert world.run().ranges == 2
        rows = world.rows()
        assert [row["id"] for row in rows] == [*range(25), 700]
        assert [row["_kafka_offset"] for row in rows] == [*range(25), 0]
        table = world.catalog.load_table(COPY)
        assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
        assert "main" in table.metadata.refs
        assert len(table.metadata.refs) == 1, "branches of runs are gone"


def test_what_cannot_be_transformed_is_a_dead_letter_once(spark: Any, tmp_path: Path) -> None:
    rule = {"select": ["id", "cast(amount AS int) AS amount", "100 / id AS share"], "where": "cast(level AS int) > 0"}
    with copy_world(spark, tmp_path, rule) as world:
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
        letters = world.rows(("kafka", "orders_copy__dead_letters"))
        reasons = [(row["_kafka_offset"], row["error"].partition(":")[0]) for row in letters]
        assert reasons == [(1, "select failed"), (2, "select failed"), (3, "where failed"), (5, "undecodable")]
        assert letters[3]["_kafka_value"] == b"{"


def test_new_columns_of_the_topic_come_before_their_rows(spark: Any, tmp_path: Path) -> None:
    with copy_world(spark, tmp_path, {}) as world:
        world.send([sent(1, {"id": 1, "at": {"city": "Ulm"}})])
        world.run()
        world.send([sent(2, {"id": 2, "at": {"city": "Bonn", "zip": "53"}, "who": "x"})])
        world.run()
        rows = [(row["id"], row["at"], row.get("who")) for row in world.rows()]
        source = world.rows(("kafka", "orders"))
        assert rows == [(row["id"], row["at"], row.get("who")) for row in source]
