"""The tester itself: what it promises to write is there, and it notices damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.kafka_classes import KafkaClasses, KafkaClassesError

ALL = (
    "kinds=plain,idempotent,transactional,marker,leader_change,snapshot,kraft codec=none,gzip,snappy,lz4,zstd "
    "timestamps=create,append batches=300 gaps=true"
)


def test_every_form_is_written(kafka: KafkaClasses, tmp_path: Path) -> None:
    segment = kafka.write(f"all seed=2 magic=0,1,2 {ALL}", tmp_path)
    batches = segment.content.batches
    assert segment.content.size == segment.log.stat().st_size
    assert {batch.codec for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {batch.magic for batch in batches} == {0, 1, 2}
    assert {batch.timestamp_type for batch in batches} == {"NoTimestampType", "CreateTime", "LogAppendTime"}
    assert {batch.control for batch in batches} == {True, False}
    controls = {record.key for batch in batches if batch.control for record in batch.records}
    assert {key[2:] for key in controls if key} == {bytes([0, kind]) for kind in range(7)}
    assert any(batch.transactional and not batch.control for batch in batches)
    assert any(batch.producer_id >= 0 and not batch.transactional for batch in batches)
    records = segment.content.records
    assert {b"", None} <= {record.key for record in records}
    assert {b"", None} <= {record.value for record in records}
    assert {-1, 0, 2**63 - 1} <= {record.timestamp for record in records}
    headers = [record.headers for record in records if len(record.headers) > 1]
    assert any(len({name for name, _ in h}) < len(h) for h in headers), "duplicate names"
    assert any(value is None for h in headers for _, value in h)
    assert segment.transaction_index is not None
    assert segment.transaction_index.stat().st_size % 34 == 0
    assert segment.producer_snapshot.stat().st_size > 6
    epochs = segment.content.leader_epochs
    assert len(epochs) > 1
    assert list(epochs) == sorted(epochs)
    assert [start for _, start in epochs] == sorted(start for _, start in epochs)


def test_compaction_leaves_empty_batches_gaps_and_horizons(kafka: KafkaClasses, tmp_path: Path) -> None:
    segment = kafka.write(f"c seed=3 {ALL} compacted=true base=5000 value=20", tmp_path)
    batches = segment.content.batches
    assert segment.content.start_offset >= 5000
    assert any(batch.count == 0 for batch in batches)
    assert any(batch.delete_horizon is not None for batch in batches)
    assert any(batch.count and batch.last_offset - batch.base_offset + 1 > batch.count for batch in batches)


def test_the_same_seed_gives_the_same_bytes(kafka: KafkaClasses, tmp_path: Path) -> None:
    one, two, other = kafka.write_all(
        [f"{name} seed={seed} {ALL}" for name, seed in [("a", 5), ("b", 5), ("c", 6)]], tmp_path
    )
    assert one.log.read_bytes() == two.log.read_bytes()
    assert one.log.read_bytes() != other.log.read_bytes()


def test_reading_gives_what_writing_said(kafka: KafkaClasses, tmp_path: Path) -> None:
    segment = kafka.write(f"r seed=9 {ALL}", tmp_path)
    assert kafka.read(segment.log) == segment.content


def test_damage_is_noticed(kafka: KafkaClasses, tmp_path: Path) -> None:
    segment = kafka.write("d seed=4 batches=3", tmp_path)
    good = segment.log.read_bytes()
    bad = bytearray(good)
    bad[segment.content.batches[1].position + 70] ^= 1
    (tmp_path / "flipped").write_bytes(bad)
    with pytest.raises(KafkaClassesError, match="corrupt"):
        kafka.read(tmp_path / "flipped")
    (tmp_path / "cut").write_bytes(good[:-1])
    with pytest.raises(KafkaClassesError, match="batches end at byte"):
        kafka.read(tmp_path / "cut")


def test_an_unknown_key_is_refused(kafka: KafkaClasses, tmp_path: Path) -> None:
    with pytest.raises(KafkaClassesError, match="unknown keys"):
        kafka.write("x colour=red", tmp_path)
