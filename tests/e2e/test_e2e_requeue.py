"""Segments that were stored as they are get their rows, under consumers that never stop reading."""

from __future__ import annotations

import random
import subprocess

import pytest

from rsm_bridge.known_segments import KnownSegment
from rsm_bridge.verification import verify_store
from stack.waiting import wait_for
from tests.e2e.e2e_rereading import Rereading
from tests.e2e.e2e_support import (
    Log,
    Pair,
    Rec,
    Sender,
    load_rows,
    read,
    rows_by_offset,
    same,
    stored_segments,
    wait_rows,
    wait_tiered,
)
from tests.support.shim_client import Segment, ShimClient

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "later"
READS_S = 120


class Writing:
    """Segments of 1 MiB; what was sent, by offset."""

    def __init__(self, pair: Pair) -> None:
        self._plain = Sender(pair.broker, TOPIC, compression_type="lz4")
        self._transactional = Sender(pair.broker, TOPIC, transactional_id=TOPIC, compression_type="zstd")
        self._draw = random.Random(3)

    def some(self) -> None:
        """A committed and an aborted transaction, and one of each that begins in one segment and ends in the next."""
        self._transactional.transaction(self._records(60), commit=True)
        self._transactional.transaction(self._records(60), commit=False)
        for commit in (True, False):
            self._transactional.producer.begin_transaction()
            self._transactional.send(self._records(40), committed=commit)
            self._plain.send(self._records(1500))
            self._transactional.send(self._records(40), committed=commit)
            if commit:
                self._transactional.producer.commit_transaction(60)
            else:
                self._transactional.producer.abort_transaction(60)
        self._plain.send(self._records(300))

    @property
    def log(self) -> Log:
        """All that was sent, ascending."""
        both = (self._plain.log, self._transactional.log)
        committed = {offset: record for log in both for offset, record in log.committed.items()}
        aborted = {offset: record for log in both for offset, record in log.aborted.items()}
        return Log(dict(sorted(committed.items())), dict(sorted(aborted.items())))

    def _records(self, count: int) -> list[Rec]:
        draw = self._draw
        values = [draw.choice([None, b"", draw.randbytes(draw.randrange(600, 1200))]) for _ in range(count)]
        return [Rec(draw.choice([None, b"k"]), value, (("h", b"1"),)) for value in values]


def test_rows_come_later_while_everything_is_read(own_pair: Pair) -> None:
    pair = own_pair
    pair.admin.create_topic(TOPIC)
    writing = Writing(pair)
    sources = write_as_it_is(pair, writing)
    withheld = len(writing.log.committed)
    write_with_rows(pair, writing)
    log = writing.log
    wait_rows(pair, TOPIC, len(log.committed) - withheld)
    served_as_it_was(pair, sources)

    readers = [Rereading(pair, TOPIC), Rereading(pair, TOPIC, "read_uncommitted")]
    readers[0].know(log.committed)
    readers[1].know(log.everything)
    rounds_more(readers, 1)
    before = [reader.rounds for reader in readers]
    said = requeue(pair)
    during = [reader.rounds - count for reader, count in zip(readers, before, strict=True)]
    assert f"{TOPIC}: {len(sources)} segments have {withheld} rows" in said
    rounds_more(readers, 2)
    for reader in readers:
        reader.stop()
    print(f"{said.strip()}; reads during it {during}, slowest {max(reader.slowest_s for reader in readers):.1f} s")

    served_as_it_was(pair, sources)
    committed = read(pair.broker, TOPIC)
    same(committed, log.committed)
    same(rows_by_offset(load_rows(pair.bridge.folder, TOPIC)), committed)
    assert f"{TOPIC}: 0 segments have 0 rows; 0 files" in requeue(pair)
    same(rows_by_offset(load_rows(pair.bridge.folder, TOPIC)), committed)
    pair.bridge.stop()
    report = verify_store(None, pair.bridge.folder, TOPIC)
    assert not report.damages, report.lines()
    assert report.rows == len(committed)


def write_as_it_is(pair: Pair, writing: Writing) -> dict[int, bytes]:
    """Segments whose conversion fails; their bytes on the broker's disk, by base offset."""
    pair.bridge.stop()  # so that nothing leaves the disk before it was looked at
    writing.some()
    wait_for("the markers", lambda: pair.admin.stable_end_offsets(TOPIC, [0]) == pair.admin.end_offsets(TOPIC, [0]), 30)
    files = sorted((pair.broker.data / f"{TOPIC}-0").glob("*.log"))
    sources = {int(file.stem): file.read_bytes() for file in files}
    pair.bridge.process.env["TIERBERG_FAULT"] = "convert=raise"
    pair.bridge.start()
    wait_tiered(pair, TOPIC)
    found = segments(pair)
    assert [known.key.base for known in found] == sorted(sources)
    assert all(known.withheld for known in found)
    assert len(found) >= 3
    return sources


def write_with_rows(pair: Pair, writing: Writing) -> None:
    """More segments behind them, by a bridge that is mended."""
    pair.bridge.stop()
    del pair.bridge.process.env["TIERBERG_FAULT"]
    pair.bridge.start()
    writing.some()
    wait_tiered(pair, TOPIC)


def segments(pair: Pair) -> list[KnownSegment]:
    """What the store has, ascending; without the copies that Kafka gave up while the bridge was away."""
    return sorted((known for known in stored_segments(pair, TOPIC) if known.live), key=lambda known: known.key.base)


def served_as_it_was(pair: Pair, sources: dict[int, bytes]) -> None:
    """The bridge serves these segments byte for byte."""
    found = {known.key.base: known.key for known in segments(pair)}
    with ShimClient(pair.bridge.target) as client:
        for base, data in sources.items():
            key = found[base]
            asked = Segment(
                b"", base, key.last, TOPIC, key.topic_id, key.partition, segment_id=key.segment_id, cluster="e2e"
            )
            assert client.fetch(asked) == data, f"the segment from offset {base} on"


def rounds_more(readers: list[Rereading], count: int) -> None:
    """Until each reader has read everything so many times more."""
    wanted = [reader.check() + count for reader in readers]

    def done() -> bool:
        return all(reader.check() >= rounds for reader, rounds in zip(readers, wanted, strict=True))

    wait_for("the consumers to read everything", done, READS_S)


def requeue(pair: Pair) -> str:
    """Runs `tierberg requeue`; what it says."""
    argv = [pair.bridge.process.argv[0], "requeue", TOPIC, "--config", str(pair.bridge.folder / "tierberg.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
