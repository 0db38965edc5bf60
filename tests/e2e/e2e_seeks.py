"""Random seeks into a tiered partition, checked against the producer's own log."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from converter.index.codec import decode_directory
from converter.types import IndexType
from tests.e2e.e2e_support import PATIENCE_S, Log, Pair, Rec, Sender
from tierberg.stack.jmx import JmxReader

ISOLATIONS = ("read_committed", "read_uncommitted")
#: Records read after a seek, and seeks of each isolation level.
READ_RECORDS = 2500
SEEKS = 24


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a topic's stored segments in bytes, summed.

    Attributes:
        log: what the broker copied.
        offset_index: what it is served as OFFSET index.
        segment_index: the whole segment indexes.
    """

    segments: int
    batches: int
    log: int
    offset_index: int
    segment_index: int

    def __str__(self) -> str:
        return (
            f"{self.segments} segments, {self.batches} batches of {self.log / self.batches:.1f} B on average; "
            f"served OFFSET indexes {self.offset_index} B ({8 * self.batches} B with an entry per batch), "
            f"segment indexes {self.segment_index} B"
        )


def stored_sizes(pair: Pair, topic: str) -> Sizes:
    """From the embedded store."""
    root = pair.bridge.folder / "store" / "index" / pair.admin.topic_id(topic)
    paths = [path for path in root.rglob("*") if path.is_file()]
    directories = [decode_directory(path.read_bytes()) for path in paths]
    return Sizes(
        segments=len(paths),
        batches=sum(directory.summary.batches for directory in directories),
        log=sum(directory.metadata.segment_size_bytes for directory in directories),
        offset_index=sum(directory.files[IndexType.OFFSET].size for directory in directories),
        segment_index=sum(path.stat().st_size for path in paths),
    )


def remote_bytes(pair: Pair, topic: str) -> int:
    """What the broker has read from the remote store for a topic, by its own count."""
    with JmxReader(pair.broker.jmx_port) as jmx:
        return jmx.topic_total("RemoteFetchBytesPerSec", topic)


def require_remote(pair: Pair, topic: str) -> None:
    """Nothing of partition 0 is on the broker's disk."""
    end = pair.admin.end_offsets(topic, [0])[0]
    assert min(pair.broker.local_segments(topic, 0), default=0) == end


def read_after(consumer: Consumer, topic: str, start: int, count: int, end: int) -> dict[int, Rec]:
    """The first `count` records from `start` on, or all up to the log's end; headers are left out."""
    consumer.assign([TopicPartition(topic, 0, start)])
    found: dict[int, Rec] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} records of {topic} from {start} in {PATIENCE_S} s"
        for message in consumer.consume(500, 0.05):
            error, offset = message.error(), message.offset()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF and offset == end:
                    return found
                assert error.retriable(), str(error)
                continue
            assert offset is not None
            assert offset not in found, f"offset {offset} came twice after a seek to {start}"
            found[offset] = Rec(message.key(), message.value(), (), message.timestamp()[1])
    return dict(list(found.items())[:count])


def seek_consumer(pair: Pair, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": pair.broker.bootstrap,
            "group.id": "seeks",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )


def check_seeks(pair: Pair, topic: str, log: Log, seed: int, *, seeks: int = SEEKS) -> None:
    """Random seeks at both isolation levels: nothing is missing, nothing aborted is seen, all came from the tier."""
    draw = random.Random(seed)
    end = pair.admin.end_offsets(topic, [0])[0]
    for isolation in ISOLATIONS:
        expected = sorted((log.committed if isolation == "read_committed" else log.everything).items())
        offsets = [offset for offset, _ in expected]
        consumer = seek_consumer(pair, isolation)
        try:
            before = remote_bytes(pair, topic)
            for start in [0, *draw.choices(range(end), k=seeks - 1)]:
                require_remote(pair, topic)
                found = read_after(consumer, topic, start, READ_RECORDS, end)
                first = next((i for i, offset in enumerate(offsets) if offset >= start), len(offsets))
                wanted = dict(expected[first : first + READ_RECORDS])
                leaked = found.keys() & log.aborted.keys() if isolation == "read_committed" else set()
                assert not leaked, f"{len(leaked)} aborted records after a seek to {start}, first {min(leaked)}"
                assert list(found) == list(wanted), f"{topic}, {isolation}, seek to {start}"
                assert found == wanted, f"{topic}, {isolation}, seek to {start}"
            assert remote_bytes(pair, topic) > before
        finally:
            consumer.close()


def check_times(pair: Pair, topic: str, log: Log, seed: int, *, lookups: int = 16) -> None:
    """ListOffsets by timestamp is the first record at or after it, also before, between and after all of them.

    Timestamps must lie in the future: a transaction marker has the broker's time and is a record to ListOffsets.
    """
    draw = random.Random(seed)
    sent = sorted((offset, record.timestamp_ms) for offset, record in log.everything.items())
    stamps = sorted({stamp for _, stamp in sent})
    picks: list[int] = [stamps[0] - 60_000, stamps[0], stamps[-1], stamps[-1] + 1]
    picks += draw.choices(stamps, k=lookups) + [draw.randrange(stamps[0], stamps[-1]) for _ in range(lookups)]
    consumer = seek_consumer(pair, "read_uncommitted")
    try:
        for stamp in picks:
            wanted = next((offset for offset, found in sent if found >= stamp), OFFSET_END)
            found = offset_for_time(consumer, topic, stamp)
            assert found == wanted, f"timestamp {stamp - stamps[0]} ms after the first"
    finally:
        consumer.close()


def offset_for_time(consumer: Consumer, topic: str, stamp: int) -> int:
    """What the broker says is the first offset at or after this time in partition 0.

    Kafka (4.3.1 too) answers a few of a million remote lookups with REQUEST_TIMED_OUT at once and logs nothing: its
    DelayedRemoteListOffsets looks twice whether the lookup is done, and one that ends in between gives the answer that
    was prepared for the time-out. Clients ask again. So does librdkafka, but then it returns the first answer's error.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = consumer.offsets_for_times([TopicPartition(topic, 0, stamp)], timeout=30)[0]
        if answer.error is None:
            return answer.offset
        refused = f"{topic}, timestamp {stamp}: {answer.error}"
        assert answer.error.code() == KafkaError.REQUEST_TIMED_OUT, refused
        assert time.monotonic() < deadline, refused


@dataclass(slots=True)
class Running:
    """A transaction that was begun, and what it has still to send."""

    commit: bool
    parts: list[list[Rec]]


def interleaved(senders: Sequence[Sender], transactions: Sequence[list[Rec]], seed: int) -> Log:
    """Transactions of several producers that overlap in the log; of two that a producer begins, one is aborted.

    Args:
        senders: transactional, all of one partition; each has one transaction at a time.
        transactions: the records of each, sent in two parts; they are begun in this order.

    Returns:
        What all of them wrote.
    """
    draw = random.Random(seed)
    waiting = iter(transactions)
    running: dict[int, Running] = {}
    busy = list(range(len(senders)))
    aborts_next = [False] * len(senders)
    while busy:
        number = draw.choice(busy)
        sender = senders[number]
        if number not in running:
            records = next(waiting, None)
            if records is None:
                busy.remove(number)
                continue
            half = len(records) // 2
            running[number] = Running(not aborts_next[number], [records[:half], records[half:]])
            aborts_next[number] = not aborts_next[number]
            sender.producer.begin_transaction()
        elif running[number].parts:
            sender.send(running[number].parts.pop(0), committed=running[number].commit)
        elif running.pop(number).commit:
            sender.producer.commit_transaction(60)
        else:
            sender.producer.abort_transaction(60)
    log = Log()
    for sender in senders:
        log.committed |= sender.log.committed
        log.aborted |= sender.log.aborted
    return log
