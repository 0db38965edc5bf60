"""A topic of three partitions on S3 and a REST catalog: produced, and compared with its table row by row."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.catalog import Catalog

from iceberg_catalog.tables.names import table_name
from tests.e2e.e2e_support import PUBLISH_S, Pair, Rec, Sender, current_rows, read, rows_by_offset, same
from tierberg.stack.waiting import wait_for

PARTITIONS = (0, 1, 2)


def rows(catalog: Catalog, topic: str) -> pa.Table | None:
    return current_rows(catalog, f"kafka.{table_name(topic)}")


def count(catalog: Catalog, topic: str) -> int:
    found = rows(catalog, topic)
    return 0 if found is None else found.num_rows


def records(draw: random.Random, number: int) -> list[Rec]:
    def one() -> Rec:
        value = draw.choice([None, b"", draw.randbytes(draw.randrange(1, 900))])
        headers = tuple((f"h{index}", draw.choice([None, b"v"])) for index in range(draw.randrange(3)))
        return Rec(
            draw.choice([None, b"k", draw.randbytes(8)]), value, headers, 1_700_000_000_000 + draw.randrange(10**6)
        )

    return [one() for _ in range(number)]


def as_text(records: Iterable[Rec]) -> list[Rec]:
    """The same records, every second value as text, some of it beyond ASCII."""
    return [
        Rec(item.key, f"größe 漢字 {number}".encode() if number % 2 else item.value, item.headers, item.timestamp_ms)
        for number, item in enumerate(records)
    ]


def produce(pair: Pair, topic: str, seed: int) -> dict[int, Sender]:
    """Per partition: plain and transactional records, committed and aborted, each marker in play."""
    draw = random.Random(seed)
    senders = {}
    for partition in PARTITIONS:
        sender = Sender(pair.broker, topic, partition, compression_type=draw.choice(["none", "lz4", "zstd", "gzip"]))
        sender.send(records(draw, 700))
        transactional = Sender(pair.broker, topic, partition, transactional_id=f"{topic}-{partition}-{seed}")
        for _ in range(6):
            transactional.transaction(records(draw, draw.randrange(1, 400)), commit=draw.random() < 0.6)
        sender.send(records(draw, 700))
        sender.log.committed |= transactional.log.committed
        sender.log.aborted |= transactional.log.aborted
        sender.log.committed = dict(sorted(sender.log.committed.items()))
        senders[partition] = sender
    return senders


def merge(first: dict[int, Sender], second: dict[int, Sender]) -> None:
    for partition, sender in second.items():
        first[partition].log.committed |= sender.log.committed
        first[partition].log.aborted |= sender.log.aborted


def wait_published(catalog: Catalog, topic: str, senders: dict[int, Sender]) -> None:
    expected = sum(len(sender.log.committed) for sender in senders.values())
    wait_for(f"{expected} rows in {topic}", lambda: count(catalog, topic) == expected, PUBLISH_S, 0.5)


def check(pair: Pair, catalog: Catalog, topic: str, senders: dict[int, Sender], *, proven: bool = False) -> None:
    """Table, consumer and producer agree on every row of every partition.

    proven: values may be in typed columns alone, which are not looked at.
    """
    wait_published(catalog, topic, senders)
    table = rows(catalog, topic)
    assert table is not None
    for partition, sender in senders.items():
        consumed = read(pair.broker, topic, partition)
        same(consumed, sender.log.committed)
        same(rows_by_offset(table, partition, consumed if proven else {}), consumed)
        assert sender.log.aborted.keys().isdisjoint(consumed)
