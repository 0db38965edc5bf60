"""What Kafka's own classes write, converted and served again, is what they read: every form, CRCs verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from converter.batches.transactions import Transactions
from converter.types import BatchFlag, ConvertOptions, LeaderEpoch, Mode, SegmentMetadata
from tests.interop.kafka_classes import KafkaClasses, KafkaSegment, WrittenSegment
from tests.oracle.stored import Copied, copy_segment

KINDS = "kinds=plain,idempotent,transactional,marker,leader_change,snapshot,kraft"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SPECS = [
    *(f"{codec}-create codec={codec} {KINDS} batches=40" for codec in CODECS),
    *(f"{codec}-append codec={codec} timestamps=append {KINDS} batches=40" for codec in CODECS),
    f"gaps codec=none,gzip,snappy,lz4,zstd timestamps=create,append gaps=true base=2147483640 {KINDS} batches=60",
    f"compacted codec=none,zstd timestamps=create,append compacted=true {KINDS} batches=60",
    "legacy magic=0,1,2 codec=none,gzip batches=40",
    f"large codec=none,lz4 value=200000 records=5 {KINDS} batches=10",
    f"dense codec=zstd value=5 records=2000 compressible=true {KINDS} batches=5",
]  # fmt: skip


def convert(segment: WrittenSegment, mode: Mode = "table") -> Copied:
    content = segment.content
    metadata = SegmentMetadata(
        cluster_name="interop",
        topic="topic",
        topic_id=bytes(16),
        partition=0,
        segment_id=bytes(16),
        start_offset=content.start_offset,
        end_offset=content.end_offset,
        max_timestamp_ms=content.max_timestamp,
        broker_id=0,
        event_timestamp_ms=0,
        segment_size_bytes=content.size,
        leader_epochs=tuple(LeaderEpoch(epoch, start) for epoch, start in content.leader_epochs),
    )
    index = segment.transaction_index
    transactions = Transactions.parse(index.read_bytes() if index else None, segment.producer_snapshot.read_bytes())
    assert transactions.known
    return copy_segment(segment.log.read_bytes(), metadata, transactions, ConvertOptions(mode=mode))


def same(sent: KafkaSegment, served: KafkaSegment) -> None:
    """Batches and records are equal in all but what depends on compression."""
    assert len(served.batches) == len(sent.batches)
    for a, b in zip(sent.batches, served.batches, strict=True):
        for name in a.__slots__:
            if name not in ("position", "size", "codec", "crc"):
                assert getattr(a, name) == getattr(b, name), name


@pytest.fixture(scope="module")
def written(kafka: KafkaClasses, tmp_path_factory: pytest.TempPathFactory) -> dict[str, WrittenSegment]:
    folder = tmp_path_factory.mktemp("segments")
    segments = kafka.write_all([f"{spec} seed={number}" for number, spec in enumerate(SPECS)], folder)
    return {spec.split()[0]: segment for spec, segment in zip(SPECS, segments, strict=True)}


@pytest.mark.parametrize("name", [spec.split()[0] for spec in SPECS])
def test_kafka_reads_what_is_served(
    kafka: KafkaClasses, written: dict[str, WrittenSegment], name: str, tmp_path: Path
) -> None:
    segment = written[name]
    copied = convert(segment)
    served = copied.fetch_all()
    if all(batch.codec == "none" for batch in segment.content.batches):
        assert served == segment.log.read_bytes()
    (tmp_path / "served.log").write_bytes(served)
    same(segment.content, kafka.read(tmp_path / "served.log"))
    # Every canonical form is rebuilt from columns: nothing is kept but what has no rows.
    for block in copied.blocks():
        for row, flags in zip(block.batches, block.batches["flags"].tolist(), strict=True):
            without_rows = BatchFlag.CONTROL | BatchFlag.ABORTED | BatchFlag.LEGACY
            assert not flags & BatchFlag.KEPT or flags & without_rows or row["count"] == 0, row


def test_verbatim_is_identical(written: dict[str, WrittenSegment]) -> None:
    for segment in written.values():
        assert convert(segment, "verbatim").fetch_all() == segment.log.read_bytes()


def test_aborted_and_control_records_are_no_rows(written: dict[str, WrittenSegment]) -> None:
    for name in ("none-create", "zstd-append", "gaps"):
        batches = written[name].content.batches
        copied = convert(written[name])
        flags = [int(f) for block in copied.blocks() for f in block.batches["flags"]]
        for batch, flag in zip(batches, flags, strict=True):
            assert bool(flag & BatchFlag.CONTROL) == batch.control
            if batch.control or flag & BatchFlag.ABORTED:
                assert not flag & BatchFlag.ROWS
            if flag & (BatchFlag.ABORTED | BatchFlag.UNDECIDED):
                assert batch.transactional
