"""Typed topics through a real bridge and a registry's API: columns, dead letters, evolution, pending segments.

Whatever becomes of the columns, Kafka gets its bytes back; all of it with bytes beside the columns, and without.
"""

from __future__ import annotations

import io
import json
import random
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from converter.index.codec import decode_directory
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import Follow
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.serving import publisher
from rsm_bridge.serving.service import Running
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.tables.maintain.merge import Merger
from rsm_bridge.tables.publish import rewritten
from tests.support.answering_server import answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.registry_answers import Schemas
from tests.support.shim_client import Segment, ShimClient, segment_of

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "who", "type": ["null", "string"], "default": None}],
}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "at", "type": {"type": "record", "name": "At", "fields": [{"name": "city", "type": "string"}]}},
    ],
}
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + struct.pack(">I", number) + payload


@pytest.fixture(scope="module")
def bridge_folder(tmp_path_factory: pytest.TempPathFactory, policy: str) -> Path:
    return tmp_path_factory.mktemp(policy)


@pytest.fixture(scope="module")
def schemas(policy: str) -> Schemas:
    found = Schemas()
    for number, schema in ((1, ORDER), (2, WIDER), (3, OTHER)):
        found.add(number, "orders-value", {"schema": json.dumps(schema)}, version=number)
    return found


@pytest.fixture(scope="module")
def bridge(schemas: Schemas, bridge_folder: Path, policy: str) -> Iterator[Running]:
    rules: list[dict[str, Any]] = [
        {"pattern": "orders.*", "value_format": "avro"},
        {"pattern": "strict.*", "value_format": "avro", "incompatible": "dead-letter"},
        {"pattern": "later.*", "value_format": "avro", "decode_budget": 0},
        {"pattern": "events.*", "value_format": "json"},
        {"pattern": "named.*", "value_format": "avro", "table": "of_{topic}"},
        {"pattern": "keyed", "value_format": "avro", "key_format": "avro"},
        {
            "pattern": "inline",
            "value_format": "avro",
            "value_schema": {"from": "inline", "text": json.dumps(ORDER)},
        },
    ]
    topics = [{**rule, "value_bytes": policy} for rule in rules]
    with answering() as server:
        server.answers = schemas.answer
        registry = {"url": server.uri, "request_timeout": "1s"}
        with bridge_thread(test_settings(bridge_folder, topics=topics, schema_registry=registry)) as running:
            yield running


def copied(shim: ShimClient, topic: str, values: Sequence[bytes | None], batch: int = 3) -> Segment:
    log = LogBuilder()
    for start in range(0, len(values), batch):
        log.batch(values[start : start + batch])
    segment = shim.copied(segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b".")[:16]))
    assert shim.fetch(segment) == log.data
    return segment


def rows_of(catalog: Catalog, topic: str) -> list[dict[str, Any]]:
    name = ("kafka", topic)
    if not catalog.table_exists(name) or (table := catalog.load_table(name)).current_snapshot() is None:
        return []
    found = table.scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(row["_kafka_offset"]))


def stored_bytes(rows: Sequence[dict[str, Any]]) -> list[bytes | None]:
    """Tombstones have no size; a value without bytes has one."""
    return [row["_kafka_value"] if row["_kafka_value_size"] is not None else b"tombstone" for row in rows]


def columns_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_kafka_")}


def shown(catalog: Catalog, topic: str, count: int) -> list[dict[str, Any]]:
    eventually(lambda: len(rows_of(catalog, topic)) == count)
    return rows_of(catalog, topic)


def pending_of(bridge: Running, segment: Segment) -> str | None:
    prefix = f"index/{segment.topic_id.hex()}/"
    (found,) = bridge.store.list_after(prefix)
    return decode_directory(bridge.store.read(found.key).data).summary.pending


def test_two_versions_in_one_batch_and_a_tombstone(
    shim: ShimClient, catalog: Catalog, bridge: Running, policy: str
) -> None:
    values = [
        framed(1, avro(ORDER, {"id": 1, "who": "a"})),
        framed(2, avro(WIDER, {"id": 2**40, "paid": True, "at": {"city": "Ulm"}})),
        None,
        framed(1, avro(ORDER, {"id": 4, "who": None})),
    ]
    segment = copied(shim, "orders_two", values, batch=4)
    rows = shown(catalog, "orders_two", 4)
    assert pending_of(bridge, segment) is None
    assert [columns_of(row) for row in rows] == [
        {"id": 1, "who": "a", "paid": None, "at": None},
        {"id": 2**40, "who": None, "paid": True, "at": {"city": "Ulm"}},
        {"id": None, "who": None, "paid": None, "at": None},
        {"id": 4, "who": None, "paid": None, "at": None},
    ]
    left = [values[0], values[1], b"tombstone", values[3]] if policy == "always" else [None, None, b"tombstone", None]
    assert stored_bytes(rows) == left
    assert [row["_kafka_value_size"] for row in rows] == [None if value is None else len(value) for value in values]
    assert {row["_kafka_error"] for row in rows} == {None}
    names = catalog.load_table(("kafka", "orders_two")).schema().column_names
    top = [name for name in names if "." not in name]
    assert top[:4] == ["id", "who", "paid", "at"]
    assert top[-1] == "_kafka_error"


def test_what_does_not_decode_is_a_dead_letter_and_its_neighbours_are_not(
    shim: ShimClient, catalog: Catalog, policy: str
) -> None:
    good = framed(1, avro(ORDER, {"id": 7, "who": "x"}))
    values = [good, good + b"!", framed(1, b"\x0e\x02\x10"), framed(99, b"\x02"), b"bare", good]
    copied(shim, "orders_bad", values)
    rows = shown(catalog, "orders_bad", 6)
    codes = [row["_kafka_error"] and row["_kafka_error"].partition(":")[0] for row in rows]
    assert codes == [None, "undecodable", "undecodable", "unknown_schema", "not_wire_format", None]
    assert [row["id"] for row in rows] == [7, None, None, None, None, 7]
    assert stored_bytes(rows) == (values if policy == "always" else [None, *values[1:5], None])


def test_values_written_in_other_ways_keep_their_bytes(shim: ShimClient, catalog: Catalog, policy: str) -> None:
    """The same number in two bytes where one does: Avro readers take it, and no encoder writes it."""
    usual, padded = framed(1, b"\x0e\x02\x02a"), framed(1, b"\x8e\x00\x02\x02a")
    copied(shim, "orders_padded", [usual, padded, usual])
    rows = shown(catalog, "orders_padded", 3)
    assert [columns_of(row) for row in rows] == [{"id": 7, "who": "a"}] * 3
    assert stored_bytes(rows) == ([usual, padded, usual] if policy == "always" else [None, padded, None])


def test_values_of_every_kind_in_many_reads(shim: ShimClient, catalog: Catalog, policy: str) -> None:
    """Two schemas, odd ways to write, damage and tombstones in turn, in more than a fetch decodes at once."""
    chance = random.Random(11)
    one = framed(1, avro(ORDER, {"id": 7, "who": "a" * 700}))
    two = framed(2, avro(WIDER, {"id": 8, "paid": True, "at": {"city": "b" * 300}}))
    kinds = [one, two, one[:5] + b"\x8e\x00" + one[6:], two[:-1], None]
    values = [chance.choices(kinds, (60, 30, 5, 4, 1))[0] for _ in range(6000)]
    copied(shim, "orders_many", values, batch=7)
    rows = shown(catalog, "orders_many", 6000)
    kept = [value if policy == "always" or value not in (one, two) else None for value in values]
    assert [row["_kafka_value"] for row in rows] == kept


def test_a_type_that_does_not_fit_gets_a_column_of_its_own(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "orders_v2", [framed(1, avro(ORDER, {"id": 1, "who": None})), framed(3, avro(OTHER, {"id": "x"}))])
    rows = shown(catalog, "orders_v2", 2)
    assert [(row["id"], row["id__v2"]) for row in rows] == [(1, None), (None, "x")]


def test_or_is_a_dead_letter_where_the_rule_says_so(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "strict_one", [framed(1, avro(ORDER, {"id": 1, "who": None})), framed(3, avro(OTHER, {"id": "x"}))])
    rows = shown(catalog, "strict_one", 2)
    assert [row["id"] for row in rows] == [1, None]
    assert rows[1]["_kafka_error"] == "incompatible_schema: id: the column's type cannot take string"


def test_a_registry_that_is_away_delays_the_table_and_nothing_else(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, bridge: Running
) -> None:
    schemas.by_id[21] = {"schema": json.dumps({**ORDER, "name": "Late"})}
    schemas.fail = lambda _: (503, {"error_code": 50301, "message": "away"})
    try:
        segment = copied(shim, "orders_late", [framed(21, avro(ORDER, {"id": n, "who": "z"})) for n in range(9)])
        waiting = pending_of(bridge, segment)
        assert waiting is not None
        assert "503" in waiting
        assert rows_of(catalog, "orders_late") == []
    finally:
        schemas.fail = None
    rows = shown(catalog, "orders_late", 9)
    assert [(row["id"], row["who"], row["_kafka_error"]) for row in rows] == [(n, "z", None) for n in range(9)]


def test_without_budget_columns_follow(shim: ShimClient, catalog: Catalog, bridge: Running) -> None:
    segment = copied(shim, "later_one", [framed(2, avro(WIDER, {"id": 5, "paid": False, "at": {"city": "Bonn"}}))])
    assert pending_of(bridge, segment) == "decode_budget is used up"
    (row,) = shown(catalog, "later_one", 1)
    assert columns_of(row) == {"id": 5, "paid": False, "at": {"city": "Bonn"}}


def test_look_ups_of_late_columns_do_not_keep_others_from_writing(
    shim: ShimClient, catalog: Catalog, schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data file is written anew in turns: a slow registry must not make all tables wait for one with many schemas."""
    ids = range(100, 150)
    held: list[float] = []
    write = rewritten._copied

    def timed(*arguments: Any) -> Any:
        started = time.monotonic()
        try:
            return write(*arguments)
        finally:
            held.append(time.monotonic() - started)

    schemas.by_id |= {number: {"schema": json.dumps({**ORDER, "name": f"Late{number}"})} for number in ids}
    monkeypatch.setattr(publisher, "REWRITE_LOOK_UP_SECONDS", 0.25)
    monkeypatch.setattr(publisher, "HELD_SECONDS", 0.3)
    monkeypatch.setattr(rewritten, "_copied", timed)
    monkeypatch.setattr(schemas, "delay", 0.1)
    copied(shim, "later_many", [framed(number, avro(ORDER, {"id": number, "who": "s"})) for number in ids])
    rows = shown(catalog, "later_many", len(ids))
    assert [(row["id"], row["_kafka_error"]) for row in rows] == [(number, None) for number in ids]
    assert len(held) > 2
    assert max(held) < 1  # all of them take one and a quarter, four at a time


def test_without_budget_what_does_not_decode_says_why_from_the_first_segment_on(
    shim: ShimClient, catalog: Catalog, bridge: Running
) -> None:
    """The table had no columns yet, and rows without a reason are no dead letters: nobody would ever look again."""
    assert pending_of(bridge, copied(shim, "later_two", [framed(999, b"x"), b"bare"])) == "decode_budget is used up"
    rows = shown(catalog, "later_two", 2)
    assert [row["_kafka_error"].partition(":")[0] for row in rows] == ["unknown_schema", "not_wire_format"]


def test_a_schema_in_the_middle_of_a_segment(
    shim: ShimClient, catalog: Catalog, bridge: Running, bridge_folder: Path
) -> None:
    """The first step of the conversion opens the data file; what comes later may need columns that it has not."""
    many = [framed(1, avro(ORDER, {"id": n, "who": "w" * 1000})) for n in range(6000)]
    late = [framed(2, avro(WIDER, {"id": n, "paid": True, "at": {"city": "Trier"}})) for n in range(5)]
    segment = copied(shim, "orders_mid", [*many, *late], batch=500)
    assert "in the middle of the segment" in (pending_of(bridge, segment) or "")
    rows = shown(catalog, "orders_mid", 6005)
    assert [row["id"] for row in rows] == [*range(6000), *range(5)]
    assert [row["paid"] for row in rows[-6:]] == [None, *[True] * 5]
    assert verify_store(None, bridge_folder, "orders_mid").damages == []


def test_what_got_its_columns_later_is_no_damage_and_what_differs_is(
    shim: ShimClient, catalog: Catalog, bridge: Running, bridge_folder: Path
) -> None:
    copied(shim, "later_checked", [framed(1, avro(ORDER, {"id": n, "who": None})) for n in range(7)])
    shown(catalog, "later_checked", 7)
    report = verify_store(None, bridge_folder, "later_checked")
    assert (report.damages, report.rows) == ([], 7)

    (file,) = LiveFiles().read(catalog.load_table(("kafka", "later_checked"))).files
    key = bridge.store.key(file.path)
    assert key is not None
    path = bridge_folder / "store" / key
    rows = pq.read_table(path)
    place = rows.schema.get_field_index("_kafka_value")
    path.unlink()  # it may be linked to elsewhere
    pq.write_table(
        rows.set_column(place, rows.schema.field(place), rows.column(place).take([1, 0, *range(2, 7)])), path
    )
    (damage,) = verify_store(None, bridge_folder, "later_checked").damages
    assert damage.endswith("differs from the segments it was derived from")


def test_without_a_rule_what_carries_the_wire_format_is_typed(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "auto_typed", [framed(1, avro(ORDER, {"id": 3, "who": "q"}))])
    copied(shim, "auto_raw", [b"text", b"\0\0\0\0\x63 looks framed, and the registry knows no such id"])
    (row,) = shown(catalog, "auto_typed", 1)
    assert columns_of(row) == {"id": 3, "who": "q"}
    raw = shown(catalog, "auto_raw", 2)
    assert [columns_of(row) for row in raw] == [{}, {}]
    assert "_kafka_error" not in raw[0]


def test_a_schema_of_the_rule(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "inline", [avro(ORDER, {"id": 8, "who": None}), b""])
    rows = shown(catalog, "inline", 2)
    assert [row["id"] for row in rows] == [8, None]
    assert rows[1]["_kafka_error"].startswith("undecodable: ")


def test_typed_keys_are_one_column(shim: ShimClient, catalog: Catalog) -> None:
    log = LogBuilder()
    made = log.records([framed(1, avro(ORDER, {"id": 1, "who": None}))] * 4)
    assert made[1].key == b"key-1"
    copied(shim, "keyed", [record.value for record in made])
    rows = shown(catalog, "keyed", 4)
    assert [row["id"] for row in rows] == [1, 1, 1, 1]
    assert [row["_kafka_error"] and row["_kafka_error"].partition(":")[0] for row in rows] == [
        None,
        "key_not_wire_format",
        "key_not_wire_format",
        None,
    ]


def test_a_json_schema_is_inferred_once_and_kept(shim: ShimClient, catalog: Catalog) -> None:
    first = [json.dumps({"n": n, "deep": {"x": "y"}}).encode() for n in range(5)]
    copied(shim, "events_one", first)
    shown(catalog, "events_one", 5)
    log = LogBuilder(next_offset=5)
    log.batch([b'{"n": 9, "new": true}', b"no json", b'{"n": "text"}'])
    shim.copied(segment_of(log, topic="events_one", topic_id=b"events_one".ljust(16, b".")))
    rows = shown(catalog, "events_one", 8)
    assert [row["n"] for row in rows] == [0, 1, 2, 3, 4, 9, None, None]
    assert [row["n__v2"] for row in rows[5:]] == [None, None, '"text"']
    assert rows[0]["deep"]["x"] == "y"
    assert [row["new"] for row in rows[4:]] == [None, True, None, None]
    assert rows[5]["_additional"] is None
    assert rows[6]["_kafka_error"].startswith("undecodable")
    assert rows[7]["_kafka_error"] is None
    assert '"deep"' in catalog.load_table(("kafka", "events_one")).properties["tierberg.value-schema"]


def test_the_rule_names_the_table(shim: ShimClient, catalog: Catalog) -> None:
    copied(shim, "named.one", [framed(1, avro(ORDER, {"id": 1, "who": None}))])
    (row,) = shown(catalog, "of_named_one", 1)
    assert row["id"] == 1
    assert not catalog.table_exists(("kafka", "named_one"))


def test_a_table_made_anew_gets_its_own_field_ids(shim: ShimClient, catalog: Catalog) -> None:
    """The new table meets the schemas in another order, so the columns of the old files have other ids there."""
    copied(shim, "orders_again", [framed(1, avro(ORDER, {"id": 1, "who": "a"}))])
    shown(catalog, "orders_again", 1)
    old = catalog.load_table(("kafka", "orders_again")).metadata.table_uuid
    catalog.drop_table(("kafka", "orders_again"))
    log = LogBuilder(next_offset=1)
    log.batch([framed(2, avro(WIDER, {"id": 2, "paid": True, "at": {"city": "Ulm"}}))])
    shim.copied(segment_of(log, topic="orders_again", topic_id=b"orders_again".ljust(16, b".")))
    rows = shown(catalog, "orders_again", 2)
    assert catalog.load_table(("kafka", "orders_again")).metadata.table_uuid != old
    assert [(row["id"], row["who"], row["paid"]) for row in rows] == [(1, "a", None), (2, None, True)]


@pytest.mark.parametrize("prefix", ["later", "orders"])
def test_small_files_of_several_schemas_become_one(
    shim: ShimClient, catalog: Catalog, bridge: Running, prefix: str
) -> None:
    """With `later` they are pending. Kafka reads the merged file, which has every column, as it read the small ones."""
    topic = f"{prefix}_merged"
    values: list[list[bytes | None]] = [
        [framed(1, avro(ORDER, {"id": 1, "who": "a"})), b"bad"],
        [framed(2, avro(WIDER, {"id": 2, "paid": True, "at": {"city": "Ulm"}}))],
        [framed(1, avro(ORDER, {"id": 3, "who": None})), None],
    ]
    logs: list[LogBuilder] = []
    segments: list[Segment] = []
    for part in values:
        log = LogBuilder(next_offset=logs[-1].next_offset if logs else 0)
        log.batch(part)
        segments.append(shim.copied(segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b"."))))
        logs.append(log)
    before = shown(catalog, topic, 5)
    table = catalog.load_table(("kafka", topic))
    topic_id, live = segments[0].topic_id, LiveFiles()
    head = live.read(table)
    listed = list(bridge.store.list_after(f"data/{topic_id.hex()}/"))
    limits = MergeLimits(small_bytes=2**28, target_bytes=2**29, files_min=2, files_max=100, age_ms=0, span_ms=2**40)
    merger = Merger(
        store=bridge.store, catalog=catalog, topic_id=topic_id, limits=limits, policy=lambda _topic, _now_ms: Follow()
    )
    known = read_segments(bridge.store, topic_id)
    now_ms = int(time.time() * 1000) + 1000
    planned = merger.planned(head, listed, known, recorded_parts(bridge.store, head), now_ms)
    tally = Tally()
    merger.run(live, head, planned, known, tally)
    assert tally.merged == len(head.files)
    assert len(live.read(catalog.load_table(("kafka", topic))).files) == 1
    assert rows_of(catalog, topic) == before
    bridge.store.delete_many([item.key for item in listed])
    assert [shim.fetch(segment) for segment in segments] == [log.data for log in logs]
    assert [row["id"] for row in before] == [1, None, 2, 3, None]
