"""Segments as a hostile or unlucky producer makes them, one target for each codec: copied, fetched, read as a table.

Records are bent before they are compressed, compressed bytes after it, header fields beside them; checksums are made
anew, so that what is bent is reached. The judge is the plain-Python reading of KIP-98 in tests/oracle.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from converter.batches.transactions import Transactions
from converter.errors import SegmentError
from converter.types import BatchFlag, Cause, ConvertOptions, LeaderEpoch, SegmentMetadata
from tests.fuzz.envelope import packed, unpacked
from tests.fuzz.mutate import bent, number, varint, zigzag
from tests.fuzz.outcome import worded
from tests.fuzz.target import MIB, Outcome, Target, WrongError
from tests.oracle.expect import timestamp_seen
from tests.oracle.records import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Batch,
    Record,
    compress,
    decode_batch,
    decompress,
    marker,
    split_batches,
)
from tests.oracle.stored import Copied, copy_segment
from tests.oracle.transactions import outcome
from tests.worlds.index_support import data_files

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
PLAIN_BYTES_MAX = 4 * MIB
_TIMES = (1_700_000_000_000, -1, 0, -(2**63), 2**63 - 1, (2**63 - 1) // 1000, (2**63 - 1) // 1000 + 1)
_JUDGED_BYTES_MAX = 32 * 1024
_JUDGED_ROWS_MAX = 2000
_COVERED = struct.Struct(">hiqqqhii")


class Segments(Target):
    """Segments whose batches have one codec, markers and old formats between them."""

    memory_bytes_max = 192 * MIB

    def __init__(self, codec: str) -> None:
        self.name = f"segment-{codec}"
        self._codec = CODECS[codec]

    def prepare(self) -> None:
        rng = random.Random(0)
        for _ in range(40):
            found = self.run(self.make(rng, ()))
            if found.judge is not None:
                found.judge()

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        if corpus and rng.random() < 0.3:
            facts, (data, index, snapshot) = unpacked(rng.choice(corpus))
            return packed({**facts, "size": None}, (bent(data, rng), index, snapshot))
        offset = start = rng.choice((0, 5, 2**31 - 3, 2**40, 2**62))
        parts: list[Batch] = []
        epoch = rng.randrange(3)
        for _ in range(rng.randint(1, 5)):
            epoch += rng.choice((0, 0, 0, 1, 3))
            offset += rng.choice((0, 0, 0, 1, 1000))
            part = replace(self._batch(rng, offset), leader_epoch=epoch)
            parts.append(part)
            offset = part.last_offset + 1
        decided = outcome(parts)
        data = b"".join(_written(part, rng) for part in parts)
        epochs = [[parts[0].leader_epoch, start]]
        for part in parts[1:]:
            if part.leader_epoch != epochs[-1][0]:
                epochs.append([part.leader_epoch, part.base_offset])
        if rng.random() < 0.2:
            data = bent(data, rng)
        index, snapshot = (
            bent(file, rng) if rng.random() < 0.1 else file for file in (decided.index, decided.snapshot)
        )
        facts = {
            "start": start,
            "end": parts[-1].last_offset + rng.choice((0, 0, 3)),
            "epochs": epochs,
            "format": rng.choice(("raw", "string")),
            "mode": rng.choice(("table", "table", "table", "verbatim")),
        }
        return packed(facts, (data, index, snapshot))

    def _batch(self, rng: random.Random, offset: int) -> Batch:
        if rng.random() < 0.15:
            return marker(
                offset, rng.choice((1000, 1001)), rng.choice((0, 0, 1, 1, 2, 99)), timestamp=rng.choice(_TIMES)
            )
        records, delta = [], -1
        for _ in range(rng.choice((0, 1, 1, 2, 5, 40))):
            delta += rng.choice((1, 1, 1, 7))
            records.append(_record(rng, delta))
        producer = rng.choice((-1, -1, 1000, 1001))
        return Batch(
            offset,
            tuple(records),
            codec=self._codec,
            log_append_time=rng.random() < 0.2,
            transactional=producer >= 0 and rng.random() < 0.6,
            base_timestamp=rng.choice(_TIMES),
            max_timestamp=rng.choice(_TIMES),
            producer_id=producer,
            producer_epoch=min(producer, 3),
            base_sequence=min(producer, 7),
            last_offset_delta=max(delta, 0) + rng.choice((0, 0, 0, 5)),
            variant=rng.randrange(3),
        )

    def run(self, data: bytes) -> Outcome:
        facts, (segment, index, snapshot) = unpacked(data)
        metadata = SegmentMetadata(
            cluster_name="cluster",
            topic="topic",
            topic_id=bytes(range(16)),
            partition=7,
            segment_id=bytes(range(16, 32)),
            start_offset=facts["start"],
            end_offset=facts["end"],
            max_timestamp_ms=0,
            broker_id=1,
            event_timestamp_ms=0,
            segment_size_bytes=len(segment),
            leader_epochs=tuple(LeaderEpoch(*entry) for entry in facts["epochs"]),
        )
        options = ConvertOptions(facts["format"], facts["mode"], PLAIN_BYTES_MAX)
        try:
            copied = copy_segment(segment, metadata, Transactions.parse(index, snapshot), options)
        except SegmentError as error:
            if error.kind != "invalid_segment":
                raise
            return Outcome(worded(error))
        flags = [int(flag) for block in copied.blocks() for flag in block.batches["flags"]]
        causes = [int(cause) for block in copied.blocks() for cause in block.batches["cause"]]
        if Cause.INTERNAL in causes:
            raise WrongError("a batch has the cause INTERNAL: an error of ours")
        words = ",".join(sorted({f"{flag}/{cause}" for flag, cause in zip(flags, causes, strict=True)}))
        back = copied.fetch_all()
        return Outcome(words, lambda: _judge(segment, copied, back, flags, causes))


def _record(rng: random.Random, delta: int) -> Record:
    def some() -> bytes | None:
        return rng.choice((None, b"", b"k", rng.randbytes(rng.choice((1, 20, 64, 300))), b"{}" * 40, "ü".encode()))

    headers = tuple((rng.choice((b"", b"h", b"\xff")), some()) for _ in range(rng.choice((0, 0, 0, 1, 3))))
    return Record(
        delta,
        rng.choice((0, 1, -1, 63, 64, number(rng, 64))),
        some(),
        some(),
        headers,
        attributes=rng.choice((0, 0, 0, 1)),
        padding=rng.choice((0, 0, 0, 1)),
        null_length=rng.choice((-1, -1, -7)),
    )


def _hostile(rng: random.Random) -> bytes:
    """Records that claim much: header counts, lengths and counts that the bytes do not have, or have for little."""
    kind = rng.randrange(4)
    if kind == 0:  # headers of two bytes each
        count = rng.choice((1, 1000, 1000, 200_000))
        body = b"\0\0\0\1\1" + zigzag(count) + b"\0\1" * count
    elif kind == 1:  # a count without the headers
        body = b"\0\0\0\1\1" + zigzag(number(rng, 32))
    elif kind == 2:  # a length beyond the record
        body = b"\0\0\0" + zigzag(number(rng, 32)) + b"abc"
    else:
        body = b"\0" + varint(2**64 - 1) * 2 + b"\1\1\0"
    return zigzag(len(body)) + body


def _written(batch: Batch, rng: random.Random) -> bytes:
    """The batch's bytes, some of it bent, its checksum right but rarely."""
    plain = batch.plain
    count = len(batch.records)
    if rng.random() < 0.25:
        plain = bent(plain, rng)
    elif rng.random() < 0.08:
        plain, count = _hostile(rng), 1
    elif rng.random() < 0.02:
        unit = rng.choice((b"\0", b"\x0c\0\0\0\1\1\0", b"\x80"))
        plain = unit * (rng.choice((64 * 1024, 3 * MIB, 16 * MIB) if batch.codec else (64 * 1024,)) // len(unit))
        count = rng.choice((1, len(plain) // 7, 2**31 - 1))
    payload = compress(batch.codec, plain, batch.variant)
    if rng.random() < 0.15:
        payload = bent(payload, rng)
    fields: list[int] = [
        batch.attributes, batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp, batch.producer_id,
        batch.producer_epoch, batch.base_sequence, count,
    ]  # fmt: skip
    bits = (16, 32, 64, 64, 64, 16, 32, 32)
    if rng.random() < 0.2:
        at = rng.randrange(len(fields))
        fields[at] = number(rng, bits[at])
    covered = _COVERED.pack(*fields) + payload
    crc = int(crc32c.crc32c(covered)) ^ (rng.random() < 0.03)
    base, length, magic, epoch = batch.base_offset, len(covered) + 9, 2, batch.leader_epoch
    if rng.random() < 0.05:
        base, length, magic, epoch = (
            (number(rng, 64), length, magic, epoch),
            (base, number(rng, 32), magic, epoch),
            (base, length, number(rng, 8), epoch),
            (base, length, magic, number(rng, 32)),
        )[rng.randrange(4)]
    return struct.pack(">qiibI", base, length, epoch, magic, crc) + covered


def _judge(segment: bytes, copied: Copied, back: bytes, flags: list[int], causes: list[int]) -> None:
    """Every batch comes back, and the table's rows are those of the batches that have some."""
    sent, served = split_batches(segment), split_batches(back)
    if len(sent) != len(served):
        raise WrongError(f"{len(sent)} batches came, {len(served)} are served")
    wanted: dict[int, dict[str, Any]] = {}
    unread: list[tuple[int, int]] = []
    for number_, (original, again, flag, cause) in enumerate(zip(sent, served, flags, causes, strict=True)):
        if _is_bomb(original) or _is_bomb(again):
            first = int.from_bytes(original[:8], "big", signed=True)
            unread.append((first, first + int.from_bytes(original[23:27], "big", signed=True)))
            continue
        read = None if flag & BatchFlag.LEGACY else _read(original)
        if again != original and (
            flag & BatchFlag.KEPT or read is None or not decode_batch(again).same_but_codec(read)
        ):
            raise WrongError(f"batch {number_} is served as another one")
        if flag & BatchFlag.ROWS:
            if read is None:
                raise WrongError(f"batch {number_} has rows, and cannot be read")
            wanted.update(_rows(original, read))
        elif read is not None and not _may_lack_rows(read, flag, cause):
            raise WrongError(f"batch {number_} can be read and has no rows: flags {flag}, {Cause(cause).name}")
    if unread and copied.directory.summary.rows > _JUDGED_ROWS_MAX:
        return
    rows = _table(copied)
    found = {
        row["_kafka_offset"]: row
        for row in rows
        if not any(first <= row["_kafka_offset"] <= last for first, last in unread)
    }
    if found != wanted:
        wrong = sorted(offset for offset in found.keys() | wanted.keys() if found.get(offset) != wanted.get(offset))
        raise WrongError(f"rows differ at {wrong[:5]}: {found.get(wrong[0])} is not {wanted.get(wrong[0])}")


def _is_bomb(batch: bytes) -> bool:
    """Whether plain Python would read the batch for seconds. Bombs are made for memory and time, not for content."""
    try:
        return len(decompress(batch[22] & 7, batch[61:])) > _JUDGED_BYTES_MAX
    except Exception:  # noqa: BLE001, each codec library has errors of its own
        return False


def _read(original: bytes) -> Any:
    try:
        read = decode_batch(original)
    except Exception:  # noqa: BLE001, each codec library has errors of its own
        return None
    deltas = [record.offset_delta for record in read.records]
    ascending = deltas == sorted(set(deltas)) and (
        not deltas or (deltas[0] >= 0 and deltas[-1] <= read.last_offset_delta)
    )
    return read if ascending and read.codec <= ZSTD else None


def _may_lack_rows(read: Any, flag: int, cause: int) -> bool:
    if not read.records or flag & (BatchFlag.CONTROL | BatchFlag.ABORTED):
        return True
    return cause in (Cause.VERBATIM, Cause.DECOMPRESSION_LIMIT)


def _rows(original: bytes, read: Any) -> dict[int, dict[str, Any]]:
    header = Batch(
        read.base_offset,
        (),
        log_append_time=bool(read.attributes & 8),
        base_timestamp=read.base_timestamp,
        max_timestamp=read.max_timestamp,
    )
    rows = {}
    for record in read.records:
        seen = timestamp_seen(header, record)
        rows[read.base_offset + record.offset_delta] = {
            "_kafka_offset": read.base_offset + record.offset_delta,
            "_kafka_timestamp": None if seen is None else seen * 1000,
            "_kafka_key": record.key,
            "_kafka_headers": [
                {"key": key.decode("utf-8", "replace"), "value": value} for key, value in record.headers
            ],
            "value": record.value,
        }
    return rows


def _table(copied: Copied) -> list[dict[str, Any]]:
    rows = []
    for file in data_files(copied.directory, copied.data) if copied.data else ():
        table = pq.read_table(io.BytesIO(file))
        at = table.schema.get_field_index("_kafka_timestamp")
        table = table.set_column(at, "_kafka_timestamp", table.column(at).combine_chunks().view(pa.int64()))
        for row in table.to_pylist():
            text = row.get("value")
            rows.append(
                {
                    "_kafka_offset": row["_kafka_offset"],
                    "_kafka_timestamp": row["_kafka_timestamp"],
                    "_kafka_key": row["_kafka_key"],
                    "_kafka_headers": row["_kafka_headers"],
                    "value": row["_kafka_value"] if text is None else text.encode(),
                }
            )
    return rows
