"""Log segments written by hand, record batch v2 (KIP-98), and the small files that go with them.

Plain Python and slow on purpose: it shares no code with the product.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Record:
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _bytes(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\0",
            varint(record.timestamp - base_timestamp),
            varint(record.offset - base_offset),
            _bytes(record.key),
            _bytes(record.value),
            varint(len(record.headers)),
            *(_bytes(name.encode()) + _bytes(value) for name, value in record.headers),
        )
    )
    return varint(len(body)) + body


def encode_batch(
    records: Sequence[Record],
    *,
    epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    bad_crc: bool = False,
    compressed: bool = False,
    base_offset: int | None = None,
) -> bytes:
    base = records[0].offset if base_offset is None else base_offset
    first = records[0].timestamp
    payload = b"".join(encode_record(record, base, first) for record in records)
    if compressed:
        payload, attributes = gzip.compress(payload, 1), attributes | 1
    head = struct.pack(
        ">hiqqqhii",
        attributes,
        records[-1].offset - base,
        first,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(head + payload) ^ (1 if bad_crc else 0)
    return struct.pack(">qiibI", base, 49 + len(payload), epoch, 2, crc) + head + payload


def control_batch(offset: int, producer_id: int, *, commit: bool, epoch: int = 0, timestamp: int = 1000) -> bytes:
    key = struct.pack(">hh", 0, 1 if commit else 0)
    value = struct.pack(">hi", 0, 0)
    record = Record(offset, timestamp, key, value)
    return encode_batch([record], epoch=epoch, producer_id=producer_id, producer_epoch=0, attributes=0x30)


@dataclass
class LogBuilder:
    """Appends batches and remembers what a read_committed consumer would see."""

    next_offset: int = 0
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    committed: list[Record] = field(default_factory=list)
    base_offset: int = 0

    def __post_init__(self) -> None:
        self.base_offset = self.next_offset

    def _append(self, batch: bytes, first: int) -> None:
        self.starts.append(len(self.data))
        self.offsets.append(first)
        self.batches.append(batch)

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)

    def records(self, values: Iterable[bytes | None], *, timestamp: int = 1_700_000_000_000) -> list[Record]:
        made = []
        for number, value in enumerate(values):
            offset = self.next_offset + number
            key = None if number % 3 == 0 else b"key-%d" % offset
            headers: tuple[Header, ...] = (("h", b"x"), ("n", None)) if number % 4 == 0 else ()
            made.append(Record(offset, timestamp + number, key, value, headers))
        return made

    def batch(self, values: Iterable[bytes | None], *, visible: bool = True, **options: object) -> list[Record]:
        made = self.records(values)
        self._append(encode_batch(made, epoch=self.epoch, **options), made[0].offset)  # type: ignore[arg-type]
        self.next_offset = made[-1].offset + 1
        if visible:
            self.committed.extend(made)
        return made

    def control(self, producer_id: int, *, commit: bool) -> None:
        self._append(control_batch(self.next_offset, producer_id, commit=commit, epoch=self.epoch), self.next_offset)
        self.next_offset += 1

    def fill(self, batches: int, records: int = 10, size: int = 100) -> LogBuilder:
        for _ in range(batches):
            self.batch([os.urandom(size) for _ in range(records)])
        return self


def checkpoint(epochs: Sequence[tuple[int, int]]) -> bytes:
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    return f"0\n{len(epochs)}\n{lines}".encode()


def empty_producer_snapshot() -> bytes:
    body = struct.pack(">i", 0)
    return struct.pack(">hI", 1, crc32c(body)) + body


def aborted_transaction(producer_id: int, first: int, last: int, stable: int) -> bytes:
    """One entry of a transaction index."""
    return struct.pack(">hqqqq", 0, producer_id, first, last, stable)
