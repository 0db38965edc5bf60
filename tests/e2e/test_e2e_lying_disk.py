"""Framing that lies on the broker's disk: the copy fails and says where, nothing is lost, all else goes on tiering.

Kafka's CRC32C covers neither base offset nor length nor leader epoch of a batch: the disk can flip a bit there and the
batch still passes every checksum. A segment whose batches do not follow each other must stay where it is until somebody
has looked at it. One of another leader epoch than the segment's metadata says is tiered as it is: Kafka reads it so.
"""

from __future__ import annotations

import random
import re
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import Pair, Rec, Sender, load_rows, read, rows_by_offset, same, wait_rows, wait_tiered
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TOPIC = "lying"
SOUND = 0
BEYOND = "batch ends beyond the segment"
OUTSIDE = "base offset lies outside the segment's offsets"
OVERLAP = "base offset is not above the batch before"
FAILED_TWICE_S = 60


@dataclass(frozen=True)
class Lie:
    """One bit of a batch's header that is not what the broker wrote.

    Attributes:
        at: byte in the header.
        bit: mask of the bit in that byte.
        batches_on: how many batches later it can be noticed.
        message: what is said.
    """

    at: int
    bit: int
    batches_on: int
    message: str


LIES = {
    1: Lie(8, 0x40, 0, BEYOND),  # length, by a gigabyte
    2: Lie(11, 0x01, 1, BEYOND),  # length, by one byte: the batch after it is read askew
    3: Lie(2, 0x01, 0, OUTSIDE),  # base offset, by 2^40
    4: Lie(7, 0x01, 1, OVERLAP),  # base offset, by one
}
#: Its leader epoch is not the metadata's.
STRANGE, STRANGE_EPOCH = 5, Lie(15, 0x01, 0, "")


@dataclass(frozen=True)
class Victim:
    """A batch in the middle of the second closed segment, damaged."""

    log: Path
    base: int
    end: int
    number: int
    position: int
    lie: Lie

    def flip(self) -> None:
        with self.log.open("r+b") as file:
            file.seek(self.position + self.lie.at)
            (byte,) = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte ^ self.lie.bit]))

    def complaint(self, starts: list[int]) -> str:
        """What the broker must log: the segment by its offsets, what is wrong, in which batch, at which byte."""
        on = self.lie.batches_on
        byte = starts[self.number + on] + (1 if self.lie.at == 11 else 0)
        where = f"batch {self.number + on}, byte {byte}"
        return rf"\[{self.base}, {self.end}\] failed .*{re.escape(self.lie.message)} \({where}\)"


def some(seed: int) -> list[Rec]:
    """Four segments of records; lengths of batches have bits of either kind."""
    draw = random.Random(seed)
    return [Rec(None, draw.randbytes(draw.randrange(900, 1100)), (), 1_700_000_000_000 + n) for n in range(4000)]


def batch_starts(data: bytes) -> list[int]:
    """Byte positions of all batches of a sound segment."""
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    assert at == len(data)
    return starts


def choose(pair: Pair, partition: int, lie: Lie) -> Victim:
    """A batch whose field grows with the flip, so that what is noticed, and where, is known beforehand."""
    bases = sorted(pair.broker.local_segments(TOPIC, partition))
    assert len(bases) >= 4
    log = pair.broker.data / f"{TOPIC}-{partition}" / f"{bases[1]:020d}.log"
    data = log.read_bytes()
    starts = batch_starts(data)
    middle = len(starts) // 2
    number = next(n for n in range(middle, len(starts) - 2) if not data[starts[n] + lie.at] & lie.bit)
    return Victim(log, bases[1], bases[2] - 1, number, starts[number], lie)


def objects(pair: Pair, kind: str, partition: int) -> list[Path]:
    folders = (pair.bridge.folder / "store" / kind).glob(f"*/{partition}")
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def said_twice(pair: Pair, complaint: re.Pattern[str]) -> bool:
    return len(complaint.findall(pair.broker.process.output())) >= 2


def test_framing_that_lies_on_the_brokers_disk(tmp_path: Path) -> None:
    pair = start_pair(tmp_path)
    try:
        tell_lies(pair)
    finally:
        pair.broker.stop()
        pair.bridge.stop()


def tell_lies(pair: Pair) -> None:
    pair.bridge.stop()  # so that segments close and stay
    pair.admin.create_topic(TOPIC, 2 + len(LIES))
    sent: dict[int, dict[int, Rec]] = {}
    for partition in (SOUND, *LIES, STRANGE):
        sender = Sender(pair.broker, TOPIC, partition, linger_ms=5, batch_num_messages=10)
        sender.send(some(partition))
        sent[partition] = sender.log.committed
    victims = {partition: choose(pair, partition, lie) for partition, lie in LIES.items()}
    starts = {partition: batch_starts(victim.log.read_bytes()) for partition, victim in victims.items()}
    for victim in (*victims.values(), choose(pair, STRANGE, STRANGE_EPOCH)):
        victim.flip()
    on_disk = {partition: pair.broker.local_segments(TOPIC, partition) for partition in victims}
    pair.bridge.start()

    # The partitions beside them tier to their end.
    wait_tiered(pair, TOPIC, [SOUND, STRANGE])
    for partition in (SOUND, STRANGE):
        same(read(pair.broker, TOPIC, partition), sent[partition])

    for partition, victim in victims.items():
        complaint = re.compile(rf"{TOPIC}-{partition}\b.*{victim.complaint(starts[partition])}")
        wait_for(
            f"the broker to say {complaint.pattern} twice",
            partial(said_twice, pair, complaint),
            FAILED_TWICE_S,
        )
        stays_until_mended(pair, partition, victim, on_disk[partition], sent[partition])
    assert pair.bridge.metric("tierberg_requests_total", method="copy", kind="invalid_segment") >= 2 * len(LIES)
    assert pair.bridge.metric("tierberg_requests_total", method="copy", kind="internal") == 0
    assert pair.bridge.metric("tierberg_verbatim_segments_total") == 0
    assert "Traceback" not in pair.bridge.process.output()

    # Mended by hand, the partitions go on by themselves and nothing is missing.
    for victim in victims.values():
        victim.flip()
    wait_tiered(pair, TOPIC, list(victims))
    table = wait_rows(pair, TOPIC, sum(map(len, sent.values())))
    for partition, records in sent.items():
        same(read(pair.broker, TOPIC, partition), records)
        same(rows_by_offset(table, partition), records)


def stays_until_mended(
    pair: Pair, partition: int, victim: Victim, on_disk: dict[int, int], records: dict[int, Rec]
) -> None:
    """What came before is tiered and served, the rest is untouched on the disk, and no attempt left anything behind."""
    before = {offset: record for offset, record in records.items() if offset < victim.base}
    after = {offset: record for offset, record in records.items() if offset > victim.end}
    assert before
    wait_for(
        f"partition {partition} to keep all from {victim.base} on",
        lambda: (
            pair.broker.local_segments(TOPIC, partition)
            == {base: size for base, size in on_disk.items() if base >= victim.base}
        ),
        FAILED_TWICE_S,
    )
    same(read(pair.broker, TOPIC, partition, count=len(before)), before)
    same(read(pair.broker, TOPIC, partition, start=victim.end + 1), after)
    wait_for(
        "the rows before the damage", lambda: len(rows_by_offset(load_rows(pair.bridge.folder, TOPIC), partition)), 60
    )
    same(rows_by_offset(load_rows(pair.bridge.folder, TOPIC), partition), before)
    assert len(objects(pair, "data", partition)) == 1
    assert objects(pair, "kept", partition) == []
