"""Kafka's own readers pass over what is wrong with some compressed records: so do the rows, and what is served."""

from __future__ import annotations

from pathlib import Path

from tests.interop.kafka_classes import KafkaClasses
from tests.oracle.expect import actual_rows, parse, served
from tests.oracle.records import GZIP, LZ4, SNAPPY, ZSTD, Batch, Record, encode_all
from tests.oracle.strategies import make_segment


def test_kafka_reads_the_same_from_what_came_and_from_what_is_served(kafka: KafkaClasses, tmp_path: Path) -> None:
    sent = [
        Batch(
            2 * place,
            tuple(Record(n, n, b"key", b"%d" % place * 300, padding=padding) for n in range(2)),
            codec=codec,
            last_offset_delta=1,
            variant=variant,
        )
        for place, (codec, variant, padding) in enumerate(
            (codec, variant, padding)
            for codec in (GZIP, SNAPPY, LZ4, ZSTD)
            for variant in range(3)
            for padding in range(2)
        )
    ]
    steps = parse(make_segment(list(sent)))
    (tmp_path / "sent.log").write_bytes(encode_all(sent))
    (tmp_path / "served.log").write_bytes(b"".join(served(steps)))
    came, given = (kafka.read(tmp_path / name).records for name in ("sent.log", "served.log"))
    assert came == given
    assert len(came) == 2 * len(sent)
    assert [row["_kafka_value"] for row in actual_rows(steps)] == [record.value for record in came]
