"""A consumer that writes a topic of orders into an Iceberg table of its own: what users run without a projection.

As lean as Python allows: librdkafka, JSON parsed by Arrow, batches appended by PyIceberg. What a run that is killed
would double is not seen to.

Settings: bootstrap, topic, events (to read), folder (of its catalog), batch (events per commit).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform

from benchmarks.clients.protocol import number, serve, text
from benchmarks.limits import CONSUME_STALL_S
from benchmarks.orders import ARROW, BUCKETS, PARTITIONS
from iceberg_catalog.connect.open import embedded_settings, open_catalog

_TABLE = ("sink", "orders")
_FETCH = 20_000
_PLACE = (
    ("_kafka_timestamp", pa.timestamp("us", "UTC")),
    ("_kafka_partition", pa.int32()),
    ("_kafka_offset", pa.int64()),
)


@dataclass(slots=True)
class _Work:
    consumer: Consumer
    table: Table
    events: int
    batch: int


def _prepare(settings: dict[str, object]) -> _Work:
    consumer = Consumer(
        {
            "bootstrap.servers": text(settings, "bootstrap"),
            "group.id": "sink",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 2,
        }
    )
    topic = text(settings, "topic")
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    folder = Path(text(settings, "folder"))
    folder.mkdir(parents=True)
    catalog = open_catalog(embedded_settings(folder))
    catalog.create_namespace(_TABLE[0])
    table = catalog.create_table(_TABLE, _schema(), properties={"write.parquet.compression-codec": "zstd"})
    with table.update_spec() as update:
        update.add_field("_kafka_timestamp", DayTransform(), "day")
        update.add_field("customer_id", BucketTransform(BUCKETS), "bucket")
    return _Work(consumer, catalog.load_table(_TABLE), number(settings, "events"), number(settings, "batch"))


def _schema() -> pa.Schema:
    return pa.schema([*ARROW, *(pa.field(name, kind) for name, kind in _PLACE)])


def _sink(work: _Work) -> dict[str, object]:
    left, waiting, stalled = work.events, list[Message](), time.monotonic()
    while left:
        found = work.consumer.consume(min(_FETCH, left), timeout=1.0)
        for message in found:
            if message.error():
                raise KafkaException(message.error())
        if found:
            stalled = time.monotonic()
        elif time.monotonic() - stalled > CONSUME_STALL_S:
            raise RuntimeError(f"{left} events never came")
        waiting += found
        left -= len(found)
        if len(waiting) >= work.batch or not left:
            work.table.append(_rows(waiting))
            waiting.clear()
    files = [task.file for task in work.table.scan().plan_files()]
    # Of all that was done before, little: the consumer's making.
    return {"files": len(files), "bytes": sum(file.file_size_in_bytes for file in files), "cpu_s": time.process_time()}


def _rows(messages: list[Message]) -> pa.Table:
    data = BytesIO(b"\n".join(message.value() or b"" for message in messages))
    parsed = pj.read_json(data, parse_options=pj.ParseOptions(explicit_schema=ARROW))
    placed = (
        pa.array([message.timestamp()[1] * 1000 for message in messages], pa.int64()).cast(_PLACE[0][1]),
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
    )
    for (name, _), column in zip(_PLACE, placed, strict=True):
        parsed = parsed.append_column(name, column)
    return parsed.sort_by("customer_id")


if __name__ == "__main__":
    serve(_prepare, _sink)
