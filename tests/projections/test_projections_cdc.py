"""Change events in the shapes that connectors give them, decoded as a topic's table decodes them by default.

Facts: Debezium's documentation, "Data change events" of the PostgreSQL, MySQL and MongoDB connectors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repartition.errors import RepartitionError
from tests.projections.projection_support import LETTERS, PROJECTION, ProjectionWorld, Sent, projection_world, sent

RULE = {"mode": "upsert", "key": ["id"], "envelope": "debezium"}
Row = dict[str, Any]


def event(op: str, before: Row | None, after: Row | None, lsn: int = 1) -> dict[str, Any]:
    """A value of the PostgreSQL connector, as its JSON converter writes it without schemas."""
    source = {
        "version": "3.2.1.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_700_000_000_000 + lsn,
        "snapshot": "true" if op == "r" else "false",
        "db": "shop",
        "sequence": f'["{lsn - 1}","{lsn}"]',
        "schema": "public",
        "table": "customers",
        "txId": 700 + lsn,
        "lsn": lsn,
        "xmin": None,
    }
    times = {"ts_ms": 1_700_000_000_100 + lsn, "ts_us": 1, "ts_ns": 1_000}
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, **times}


def of(number: int, op: str, before: Row | None, after: Row | None, lsn: int = 1) -> Sent:
    """A record: Kafka's key is the row's."""
    return sent({"id": number}, event(op, before, after, lsn))


def customer(number: int, name: str, **more: Any) -> Row:
    return {"id": number, "name": name, "city": None, **more}


def snapshot(world: ProjectionWorld, count: int = 5) -> None:
    """What such a topic begins with; the columns of its table are inferred from that."""
    world.send([of(n, "r", None, customer(n, f"c{n}")) for n in range(count)])
    world.run()


def names(world: ProjectionWorld) -> dict[int, str]:
    return {row["id"]: row["name"] for row in world.rows()}


def test_a_topic_that_begins_with_its_snapshot(spark: Any, tmp_path: Path) -> None:
    """`before` was null in every record that the columns were inferred from."""
    with projection_world(spark, tmp_path, RULE) as world:
        snapshot(world)
        world.send(
            [
                of(1, "u", customer(1, "c1"), customer(1, "new")),
                of(2, "d", customer(2, "c2"), None),
                sent({"id": 2}, None),
                of(3, "u", customer(3, "c3"), customer(30, "moved")),
                of(5, "c", None, customer(5, "c5")),
                of(5, "d", customer(5, "c5"), None),
            ]
        )
        world.run()
        assert names(world) == {0: "c0", 1: "new", 4: "c4", 30: "moved"}
        assert not world.catalog.table_exists(LETTERS)


def test_a_delete_without_before_goes_by_kafkas_key(spark: Any, tmp_path: Path) -> None:
    """PostgreSQL with REPLICA IDENTITY NOTHING of an older log, MySQL with a minimal row image, and their like."""
    with projection_world(spark, tmp_path, RULE) as world:
        snapshot(world)
        keyed = {"schema": {"type": "struct", "name": "shop.Key"}, "payload": {"id": 3}}
        world.send([of(1, "d", None, None), sent(keyed, event("d", None, None))])
        world.send([sent("nobody", event("d", None, None))])
        world.run()
        assert sorted(names(world)) == [0, 2, 4]
        assert [row["error"] for row in world.rows(LETTERS)] == ["the key is null"]


def test_a_topic_that_begins_with_deletes(spark: Any, tmp_path: Path) -> None:
    """`after` was null in every record that the columns were inferred from."""
    with projection_world(spark, tmp_path, RULE) as world:
        world.send([of(n, "d", {"id": n, "name": "x"}, None) for n in range(3)])
        world.run()
        world.send([of(1, "c", None, {"id": 1, "name": "again"}), of(7, "c", None, {"id": 7, "name": "new"})])
        world.run()
        world.send([of(8, "c", None, {"id": "eight", "name": "no number"})])
        world.run()
        assert names(world) == {1: "again", 7: "new"}
        assert [row["_kafka_offset"] for row in world.rows(LETTERS)] == [5]


def test_events_with_their_schema_in_them(spark: Any, tmp_path: Path) -> None:
    """The JSON converter's default, `schemas.enable=true`."""

    def enveloped(number: int, value: dict[str, Any] | None) -> Sent:
        schema = {"type": "struct", "optional": False, "name": "shop.public.customers.Envelope"}
        key = {"schema": {"type": "struct", "name": "shop.Key"}, "payload": {"id": number}}
        return sent(key, None if value is None else {"schema": schema, "payload": value})

    with projection_world(spark, tmp_path, RULE) as world:
        world.send([enveloped(n, event("r", None, customer(n, f"c{n}"))) for n in range(4)])
        world.run()
        world.send(
            [
                enveloped(1, event("u", customer(1, "c1"), customer(1, "new"))),
                enveloped(2, event("d", None, None)),
                enveloped(2, None),
                enveloped(3, event("d", customer(3, "c3"), None)),
            ]
        )
        world.run()
        assert names(world) == {0: "c0", 1: "new"}
        assert not {"schema", "payload"} & set(world.rows()[0])


def test_messages_of_the_log_have_no_row(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, RULE) as world:
        snapshot(world, 2)
        message = {"message": {"prefix": "audit", "content": "aGVsbG8="}}
        world.send([sent({"prefix": "audit"}, {**event("m", None, None), **message})])
        world.run()
        assert sorted(names(world)) == [0, 1]
        assert not world.catalog.table_exists(LETTERS)


def truncation() -> Sent:
    """It has no key."""
    return None, json.dumps(event("t", None, None)).encode()


def test_a_truncation_takes_all_rows_from_before(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, RULE) as world:
        snapshot(world, 2)
        world.send([of(7, "c", None, customer(7, "too early")), truncation(), of(1, "c", None, customer(1, "again"))])
        world.run()
        assert names(world) == {1: "again"}
        world.send([truncation()])
        world.run()
        assert names(world) == {}
        assert not world.catalog.table_exists(LETTERS)


def test_a_truncation_of_several_partitions_goes_by_time(spark: Any, tmp_path: Path) -> None:
    """Of which partition a truncation is says nothing."""
    with projection_world(spark, tmp_path, RULE) as world:
        world.send([of(n, "r", None, customer(n, f"c{n}")) for n in range(2)], times=[1_000, 1_001])
        world.send([of(5, "r", None, customer(5, "c5"))], 1, times=[1_002])
        world.run()
        world.send([truncation()], 1, times=[2_000])
        world.send(
            [of(1, "c", None, customer(1, "early")), of(2, "c", None, customer(2, "late"))], times=[1_999, 2_001]
        )
        with pytest.raises(
            RepartitionError, match=r"partition 1, offset 1: a truncation .* key_order: timestamp"
        ) as raised:
            world.run()
        assert raised.value.kind == "key_moved"
        assert sorted(names(world)) == [0, 1, 5]
        world.change({**RULE, "key_order": "timestamp"})
        world.run()
        assert names(world) == {2: "late"}


UNKNOWN = "__debezium_unavailable_value"


def test_values_that_an_event_leaves_out_stay(spark: Any, tmp_path: Path) -> None:
    """PostgreSQL's TOAST: of this run, of the one before, of nobody; and what is derived of them."""
    rule = {**RULE, "select": ["*", "upper(city) AS loud", "concat(name, '!') AS said"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([of(n, "r", None, customer(n, f"c{n}", city=f"city {n}")) for n in range(3)])
        world.run()
        world.send([of(1, "u", None, customer(1, "new", city=UNKNOWN)), of(2, "u", None, customer(2, "x", city=None))])
        world.send([of(2, "u", None, customer(2, "y", city=UNKNOWN)), of(3, "c", None, customer(3, "c3", city="Ulm"))])
        world.send(
            [of(3, "u", None, customer(3, "z", city=UNKNOWN)), of(4, "u", None, customer(4, "never", city=UNKNOWN))]
        )
        world.run()
        found = {row["id"]: (row["name"], row["city"], row["loud"], row["said"]) for row in world.rows()}
        assert found == {
            0: ("c0", "city 0", "CITY 0", "c0!"),
            1: ("new", "city 1", "CITY 1", "new!"),
            2: ("y", None, None, "y!"),
            3: ("z", "Ulm", "ULM", "z!"),
            4: ("never", None, None, "never!"),
        }


def test_a_condition_on_a_value_that_is_left_out_is_a_dead_letter(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {**RULE, "where": "city <> 'Ulm'"}) as world:
        world.send([of(n, "r", None, customer(n, f"c{n}", city="Bonn")) for n in range(2)])
        world.send([of(1, "u", None, customer(1, "new", city=UNKNOWN)), of(0, "d", None, None)])
        world.run()
        assert names(world) == {1: "c1"}
        assert [row["error"] for row in world.rows(LETTERS)] == ["`where` reads city, left out here"]


def test_another_placeholder_and_none(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {**RULE, "unavailable_value": "?"}) as world:
        world.send([of(1, "r", None, customer(1, "c1", city="Bonn")), of(1, "u", None, customer(1, "c2", city="?"))])
        world.run()
        assert world.rows()[0]["city"] == "Bonn"
        world.change({**RULE, "unavailable_value": ""})
        world.send([of(1, "u", None, customer(1, "c3", city="?")), of(2, "c", None, customer(2, "", city=UNKNOWN))])
        world.run()
        assert [row["city"] for row in world.rows()] == ["?", UNKNOWN]


def test_deleted_rows_stay_with_a_mark(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, {**RULE, "soft_deletes": True, "where": "name <> 'hidden'"}) as world:
        snapshot(world, 4)
        world.send([of(1, "d", {"id": 1}, None), sent({"id": 1}, None), of(9, "d", {"id": 9}, None)])
        world.send([of(5, "c", None, customer(5, "short")), of(5, "d", None, None)])
        world.send(
            [of(6, "c", None, customer(6, "hidden")), of(6, "d", None, None), of(2, "u", None, customer(2, "hidden"))]
        )
        world.run()
        found = {row["id"]: (row["name"], row["__deleted"]) for row in world.rows()}
        assert found == {0: ("c0", False), 1: ("c1", True), 3: ("c3", False), 5: ("short", True)}
        world.send([of(1, "c", None, customer(1, "again")), of(2, "d", None, None)])
        world.run()
        found = {row["id"]: (row["name"], row["__deleted"]) for row in world.rows()}
        assert found == {0: ("c0", False), 1: ("again", False), 3: ("c3", False), 5: ("short", True)}


def test_tombstones_mark_as_well(spark: Any, tmp_path: Path) -> None:
    select = ["cast(_kafka_key AS string) AS k", "name"]
    rule = {"mode": "upsert", "key": ["k"], "select": select, "soft_deletes": True}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent(n, {"name": f"c{n}"}) for n in range(3)])
        world.run()
        world.send([sent(1, None), sent(7, None), sent(8, {"name": "short"}), sent(8, None)])
        world.run()
        found = {row["k"]: (row["name"], row["__deleted"], row["_kafka_offset"]) for row in world.rows()}
        assert found == {"0": ("c0", False, 0), "1": ("c1", True, 3), "2": ("c2", False, 2), "8": ("short", True, 6)}
        world.change({**rule, "select": [*select, "true AS __deleted"]})
        world.send([sent(1, {"name": "x"})])
        with pytest.raises(RepartitionError, match="gives the column __deleted"):
            world.run()


def test_what_the_event_says_beside_its_row_can_be_selected(spark: Any, tmp_path: Path) -> None:
    select = ["*", "_event.op AS op", "_event.source.lsn AS lsn", "timestamp_millis(_event.ts_ms) AS at"]
    with projection_world(spark, tmp_path, {**RULE, "select": select, "where": "_event.op <> 'r' OR id > 1"}) as world:
        snapshot(world, 3)
        world.send([of(1, "c", None, customer(1, "late"), lsn=44)])
        world.run()
        found = {row["id"]: (row["op"], row["lsn"]) for row in world.rows()}
        assert found == {1: ("c", 44), 2: ("r", 1)}
        assert world.rows()[0]["at"] is not None
        assert "_event" not in world.rows()[0]


def test_documents_as_text_need_a_select(spark: Any, tmp_path: Path) -> None:
    """MongoDB: both sides are texts of extended JSON, and `before` is null unless it was asked for."""

    def document(number: int, op: str, after: dict[str, Any] | None) -> Sent:
        key = {"id": json.dumps({"$oid": f"{number:024x}"})}
        text = None if after is None else json.dumps({"_id": {"$oid": f"{number:024x}"}, **after})
        source = {"connector": "mongodb", "collection": "customers", "ord": number}
        return sent(key, {"before": None, "after": text, "updateDescription": None, "source": source, "op": op})

    key = "get_json_object(cast(_kafka_key AS string), '$.id') AS id"
    rule = {**RULE, "select": [key, "get_json_object(after, '$.name') AS name"]}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([document(n, "r", {"name": f"d{n}"}) for n in range(3)])
        world.send([document(1, "u", {"name": "new"}), document(2, "d", None), sent({"id": "x"}, None)])
        world.run()
        assert [row["name"] for row in world.rows()] == ["d0", "new"]
        world.change({**RULE})
        world.send([document(4, "c", {"name": "late"})])
        with pytest.raises(RepartitionError, match="say in `select`") as raised:
            world.run()
        assert raised.value.kind == "bad_rule"
        assert len(world.rows(PROJECTION)) == 2
