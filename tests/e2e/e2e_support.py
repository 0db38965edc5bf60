"""Sending, waiting and reading, in the forms the end-to-end tests share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, read_segments
from tierberg.stack.admin import Admin
from tierberg.stack.errors import StackError
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.waiting import wait_for

TIER_S = 120
PUBLISH_S = 90
PATIENCE_S = 60
BATCHED = {"linger.ms": 50, "batch.num.messages": 500}
#: A broker that has just started may answer before it knows its topics and coordinates transactions. By default a
#: producer takes such a topic for an unknown one after half a minute, and fails what was sent.
STARTED_S = 120

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A broker with our plugin, its bridge, and a client for topics."""

    broker: KafkaBroker
    bridge: Bridge
    admin: Admin


@dataclass(frozen=True, slots=True)
class Rec:
    """A record as sent, or as it came back."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 1_700_000_000_000


@dataclass(slots=True)
class Log:
    """Offset → record of one partition, committed and aborted apart."""

    committed: dict[int, Rec] = field(default_factory=dict)
    aborted: dict[int, Rec] = field(default_factory=dict)

    @property
    def everything(self) -> dict[int, Rec]:
        return self.committed | self.aborted


class Sender:
    """One producer for one partition; its log has the offsets the broker gave."""

    def __init__(self, broker: KafkaBroker, topic: str, partition: int = 0, **settings: Any) -> None:
        base = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0, **BATCHED}
        base["topic.metadata.propagation.max.ms"] = 1000 * STARTED_S
        self.producer = Producer({**base, **{key.replace("_", "."): value for key, value in settings.items()}})
        self.topic, self.partition = topic, partition
        self.log = Log()
        self.errors: list[KafkaError] = []
        if "transactional_id" in settings:
            self.producer.init_transactions(STARTED_S)

    def send(self, records: Iterable[Rec], *, committed: bool = True) -> None:
        for record in records:
            self._one(record, self.log.committed if committed else self.log.aborted)
        assert self.producer.flush(120) == 0
        assert not self.errors

    def transaction(self, records: Iterable[Rec], *, commit: bool) -> None:
        self.producer.begin_transaction()
        self.send(records, committed=commit)
        if commit:
            self.producer.commit_transaction(60)
        else:
            self.producer.abort_transaction(60)

    def transaction_offsets(self, records: Iterable[Rec], *, commit: bool) -> set[int]:
        """The same; the offsets it took."""
        before = set(self.log.everything)
        self.transaction(records, commit=commit)
        return set(self.log.everything) - before

    def _one(self, record: Rec, log: dict[int, Rec]) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self.errors.append(error or KafkaError(KafkaError.UNKNOWN))
            else:
                log[offset] = record

        while True:
            try:
                self.producer.produce(
                    self.topic,
                    record.value,
                    record.key,
                    self.partition,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers) or None,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                self.producer.poll(0.1)
        self.producer.poll(0)


def wait_tiered(pair: Pair, topic: str, partitions: Sequence[int] = (0,), timeout_s: float = TIER_S) -> None:
    """Until no record of the topic is on the broker's disk."""
    wait_off_disk(pair.broker, pair.admin, topic, partitions, timeout_s)


def wait_off_disk(
    broker: KafkaBroker, admin: Admin, topic: str, partitions: Sequence[int], timeout_s: float = TIER_S
) -> None:
    """Until no record of the topic is on the broker's disk, whoever tiers it."""

    def gone() -> bool:
        # Asked again each time: the marker of the last transaction may be written after its producer has returned.
        ends = admin.end_offsets(topic, partitions)
        return {number: min(broker.local_segments(topic, number), default=0) for number in partitions} == ends

    try:
        wait_for(f"{topic} to leave the broker's disk", gone, timeout_s)
    except StackError as error:
        segments = {number: broker.local_segments(topic, number) for number in partitions}
        log = [line for line in broker.process.log.read_text().splitlines() if "Remote" in line][-8:]
        raise AssertionError(f"{error}; local {segments}\n" + "\n".join(log)) from error


def read(
    broker: KafkaBroker,
    topic: str,
    partition: int = 0,
    *,
    start: int = 0,
    count: int | None = None,
    isolation: str = "read_committed",
    failures: bool = False,
    **settings: Any,
) -> dict[int, Rec]:
    """Offset → record from `start` to the end, or the first `count`; with `failures`, reads that fail are repeated."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "e2e",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    found: dict[int, Rec] = {}
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while count is None or len(found) < count:
            assert time.monotonic() < deadline, f"no record of {topic} for {PATIENCE_S} s after {len(found)}"
            for message in consumer.consume(2000 if count is None else min(2000, count - len(found)), 0.5):
                error = message.error()
                if error is None:
                    note(found, message)
                    deadline = time.monotonic() + PATIENCE_S
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    # What Kafka answers while a remote read fails; clients ask again.
                    known = failures and error.code() == KafkaError.UNKNOWN
                    assert known or error.retriable(), str(error)
    finally:
        consumer.close()
    return found


def note(found: dict[int, Rec], message: Message) -> None:
    """Adds a consumed record; fails when its offset came before."""
    offset = message.offset()
    assert offset is not None
    assert offset not in found, f"offset {offset} came twice"
    given = cast(
        "list[tuple[str, bytes | None]]", message.headers() or []
    )  # the client's types know strings and dicts too
    headers = tuple(given)
    found[offset] = Rec(message.key(), message.value(), headers, message.timestamp()[1])


def same(found: dict[int, Rec], sent: dict[int, Rec]) -> None:
    """Equal, with the first difference in the message instead of megabytes."""
    missing, extra = sorted(sent.keys() - found.keys()), sorted(found.keys() - sent.keys())
    assert not missing, f"{len(missing)} missing, first {missing[:5]}"
    assert not extra, f"{len(extra)} unexpected, first {extra[:5]}"
    for offset, record in sent.items():
        assert found[offset] == record, f"offset {offset}"
    assert list(found) == sorted(found)


def load_rows(folder: Path, table: str, namespace: str = "kafka") -> pa.Table | None:
    """All rows of the table's current snapshot in the embedded catalog, or None while there is no table."""
    with closing(open_catalog(embedded_settings(folder))) as catalog:
        return current_rows(catalog, f"{namespace}.{table}")


def current_rows(catalog: Catalog, name: str) -> pa.Table | None:
    """All rows of the table's current snapshot, or None while there is no table, or no snapshot.

    Without a grace, files of a snapshot that has just been replaced go at once: then the next one is read.
    """
    while catalog.table_exists(name):
        loaded = catalog.load_table(name)
        snapshot = loaded.current_snapshot()
        try:
            return loaded.scan().to_arrow() if snapshot else None
        except FileNotFoundError:
            if catalog.load_table(name).current_snapshot() == snapshot:
                raise
    return None


def stored_segments(pair: Pair, topic: str) -> list[KnownSegment]:
    """What the bridge's own store has of a topic, tombstones too, in no order."""
    return read_segments(LocalObjectStore(pair.bridge.folder / "store"), bytes.fromhex(pair.admin.topic_id(topic)))


def row_count(pair: Pair, table: str) -> int:
    rows = load_rows(pair.bridge.folder, table)
    return 0 if rows is None else rows.num_rows


def wait_rows(pair: Pair, table: str, count: int, timeout_s: float = PUBLISH_S) -> pa.Table:
    """The table's rows once there are `count`."""
    wait_for(
        f"{count} rows in {table}, now {row_count(pair, table)}",
        lambda: row_count(pair, table) == count,
        timeout_s,
        0.5,
    )
    return load_rows(pair.bridge.folder, table)


def rows_by_offset(
    table: pa.Table, partition: int = 0, bare: Mapping[int, Rec] = MappingProxyType({})
) -> dict[int, Rec]:
    """The rows of a partition as records; fails when an offset is there twice.

    bare: has, by offset, the value of rows whose value is in typed columns alone; only its size is compared then.
    """
    found: dict[int, Rec] = {}
    # Of typed columns none: they may hold times that Python's types cannot.
    names = [name for name in table.column_names if name.startswith("_kafka_") or name == "value"]
    for row in table.select(names).to_pylist():
        if row["_kafka_partition"] != partition:
            continue
        text = row.get("value")
        value = row["_kafka_value"] if text is None else text.encode()
        headers = tuple((header["key"], header["value"]) for header in row["_kafka_headers"] or ())
        timestamp_ms = round(row["_kafka_timestamp"].timestamp() * 1000)
        assert row["_kafka_offset"] not in found, f"offset {row['_kafka_offset']} is there twice"
        found[row["_kafka_offset"]] = Rec(row["_kafka_key"], value, headers, timestamp_ms)
        size = row["_kafka_value_size"]
        if value is None and size is not None:
            value = bare[row["_kafka_offset"]].value
            found[row["_kafka_offset"]] = replace(found[row["_kafka_offset"]], value=value)
        assert size == (None if value is None else len(value))
    return dict(sorted(found.items()))


def store_objects(pair: Pair, topic_id: str) -> list[Path]:
    """Every object of a topic in the embedded store, whatever its kind, but what says that it has a table."""
    store = pair.bridge.folder / "store"
    found = [path for path in store.rglob("*") if topic_id in str(path) and path.is_file()]
    return [path for path in found if store / "tables" not in path.parents]


def state_objects(pair: Pair) -> list[Path]:
    """Recorded states of all tables: they hold offsets, no records, and stay with the snapshots that name them."""
    return [path for path in (pair.bridge.folder / "store" / "state").rglob("*") if path.is_file()]
