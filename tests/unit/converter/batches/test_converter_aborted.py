"""Records of aborted transactions are kept for Kafka and are no rows."""

from __future__ import annotations

from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.types import BatchFlag, ConvertOptions, LeaderEpoch, SegmentMetadata
from tests.support.kafka_log import LogBuilder, aborted_transaction, empty_producer_snapshot


def test_aborted_records_are_no_rows() -> None:
    log = LogBuilder()
    log.batch([b"plain"] * 3)
    log.batch([b"aborted"] * 4, producer_id=6, producer_epoch=0, base_sequence=0, attributes=0x10)
    log.control(6, commit=False)
    metadata = SegmentMetadata(
        cluster_name="c",
        topic="t",
        topic_id=b"T" * 16,
        partition=0,
        segment_id=b"S" * 16,
        start_offset=0,
        end_offset=log.next_offset - 1,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=len(log.data),
        leader_epochs=(LeaderEpoch(0, 0),),
    )
    transactions = Transactions.parse(aborted_transaction(6, 3, 7, 8), empty_producer_snapshot())
    parser = SegmentParser(metadata, ConvertOptions(), transactions)
    steps = [*parser.feed(log.data), *parser.finish()]
    assert [offset for step in steps for offset in step.rows.column("_kafka_offset").to_pylist()] == [0, 1, 2]
    aborted = steps[0].batches["flags"][1]
    assert aborted & BatchFlag.ABORTED
    assert aborted & BatchFlag.KEPT
    assert not aborted & BatchFlag.ROWS
