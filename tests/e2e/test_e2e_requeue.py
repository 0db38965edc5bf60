"""Segments that were stored as they are get their rows, under consumers that never stop reading."""

from __future__ import annotations

import random
import subprocess
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.segments.known import KnownSegment
from tests.e2e.e2e_rereading import Rereading
from tests.e2e.e2e_support import (
    TIER_S,
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
from tierberg.stack.admin import TIERED
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "later"
READS_S = 120
SEGMENT_BYTES = int(TIERED["segment.bytes"])
#: A marker has the time of today, and would close each segment that begins with these older records.
OLD_RECORDS = {**TIERED, "segment.ms": str(100 * 365 * 86_400_000)}
BY_SIZE = {**OLD_RECORDS, "local.retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction: offsets of its records, and of its marker."""

    offsets: Sequence[int]
    marker: int
    commit: bool


class Writing:
    """Segments of 1 MiB; what was sent, by offset."""

    def __init__(self, pair: Pair, topic: str) -> None:
        self.topic = topic
        self._pair = pair
        self._plain = Sender(pair.broker, topic, compression_type="lz4")
        self._transactional = Sender(pair.broker, topic, transactional_id=topic, compression_type="zstd")
        self._draw = random.Random(3)
        self.transactions: list[Ended] = []

    def some(self) -> None:
        """Committed and aborted transactions: short ones, and ones that are cut behind a half or before the marker."""
        for commit in (True, False):
            self.transaction(commit=commit)
        self.transaction(commit=True, cut_within=True)
        self.transaction(commit=False, cut_within=True)
        self.transaction(commit=False, cut_before_marker=True)
        self._plain.send(self._records(300))

    def transaction(self, *, commit: bool, cut_within: bool = False, cut_before_marker: bool = False) -> None:
        """Returns when its marker is in the log; with plain records between its halves."""
        sender = self._transactional
        before = set(sender.log.everything)
        sender.producer.begin_transaction()
        sender.send(self._records(40), committed=commit)
        self._plain.send(self._records(300))
        if cut_within:
            self.cut()
        sender.send(self._records(40), committed=commit)
        if cut_before_marker:
            self.cut()
        if commit:
            sender.producer.commit_transaction(60)
        else:
            sender.producer.abort_transaction(60)
        wait_for("the marker", self._all_stable, 30)
        marker = self._pair.admin.end_offsets(self.topic, [0])[0] - 1
        self.transactions.append(Ended(sorted(set(sender.log.everything) - before), marker, commit))

    def cut(self) -> None:
        """More than a segment may hold, so that what was sent before and what comes behind lie in different ones."""
        self._plain.send([Rec(None, self._draw.randbytes(10_000)) for _ in range(SEGMENT_BYTES // 10_000 + 1)])

    def left_open(self, bases: Sequence[int], *, commit: bool) -> int:
        """Records in segments that begin at these offsets, ascending, below the one with their marker."""
        ended = [one for one in self.transactions if one.commit == commit]
        return sum(
            bisect_right(bases, offset) < bisect_right(bases, one.marker) for one in ended for offset in one.offsets
        )

    @property
    def log(self) -> Log:
        """All that was sent, ascending."""
        both = (self._plain.log, self._transactional.log)
        committed = {offset: record for log in both for offset, record in log.committed.items()}
        aborted = {offset: record for log in both for offset, record in log.aborted.items()}
        return Log(dict(sorted(committed.items())), dict(sorted(aborted.items())))

    def _all_stable(self) -> bool:
        admin = self._pair.admin
        return admin.stable_end_offsets(self.topic, [0]) == admin.end_offsets(self.topic, [0])

    def _records(self, count: int) -> list[Rec]:
        draw = self._draw
        values = [draw.choice([None, b"", draw.randbytes(draw.randrange(600, 1200))]) for _ in range(count)]
        return [Rec(draw.choice([None, b"k"]), value, (("h", b"1"),)) for value in values]


def test_rows_come_later_while_everything_is_read(own_pair: Pair) -> None:
    pair = own_pair
    pair.admin.create_topic(TOPIC, config=OLD_RECORDS)
    writing = Writing(pair, TOPIC)
    sources = write_as_it_is(pair, writing)
    withheld = len(writing.log.committed)
    left_open = {commit: writing.left_open(list(sources), commit=commit) for commit in (True, False)}
    assert left_open[True] >= 40  # a half
    assert left_open[False] >= 120  # a half, and both halves of another
    counts = f"{withheld + left_open[False]} rows, {sum(left_open.values())} of them in transactions"
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
    assert f"{TOPIC}: {len(sources)} segments have {counts} their segment leaves open; " in said
    assert "wait" not in said
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


def test_rows_wait_for_a_marker_that_is_not_tiered(own_pair: Pair) -> None:
    pair = own_pair
    writings = {commit: Writing(pair, "committed" if commit else "aborted") for commit in (True, False)}
    actives = write_open(pair, writings)
    start_failing(pair)
    for commit, writing in writings.items():
        frontier_reaches(pair, writing.topic, actives[commit])
    start_mended(pair)
    for commit, writing in writings.items():
        topic, waiting = writing.topic, waiting_rows(pair, writing)
        withheld = sum(known.withheld for known in segments(pair, topic))
        said = requeue(pair, topic)
        assert f"{topic}: {withheld} segments have " in said
        assert " rows, 80 of them in transactions their segment leaves open; " in said
        assert f"{topic}: {len(waiting)} rows wait for the end of a transaction: run it again" in said
        shown = {offset: record for offset, record in writing.log.committed.items() if offset not in waiting}
        below = {offset: record for offset, record in shown.items() if offset < actives[commit]}
        same(rows_by_offset(load_rows(pair.bridge.folder, topic)), below)

        pair.admin.set_topic_config(topic, {"local.retention.ms": "1000"})
        wait_tiered(pair, topic)
        same(rows_by_offset(wait_rows(pair, topic, len(shown))), shown)
        said = requeue(pair, topic)
        assert f"{topic}: 0 segments have 0 rows; " in said
        assert "wait" not in said
        same(rows_by_offset(load_rows(pair.bridge.folder, topic)), writing.log.committed)


def write_open(pair: Pair, writings: Mapping[bool, Writing]) -> dict[bool, int]:
    """Segments with rows, then, without a bridge, a transaction whose marker alone is in the open one: its base."""
    for writing in writings.values():
        pair.admin.create_topic(writing.topic, config=BY_SIZE)
        writing.cut()
    for writing in writings.values():
        wait_for("a segment with rows", partial(segments, pair, writing.topic), TIER_S)
    pair.bridge.stop()
    actives: dict[bool, int] = {}
    for commit, writing in writings.items():
        writing.transaction(commit=commit, cut_before_marker=True)
        active = max(pair.broker.local_segments(writing.topic, 0))
        (transaction,) = writing.transactions
        assert transaction.offsets[-1] < active <= transaction.marker
        actives[commit] = active
    return actives


def waiting_rows(pair: Pair, writing: Writing) -> set[int]:
    """In each segment with records of the one transaction, they and all behind them."""
    (transaction,) = writing.transactions
    waiting: set[int] = set()
    for known in segments(pair, writing.topic):
        mine = [offset for offset in transaction.offsets if known.key.base <= offset <= known.key.last]
        if mine:
            waiting |= {offset for offset in writing.log.everything if mine[0] <= offset <= known.key.last}
    return waiting


def frontier_reaches(pair: Pair, topic: str, offset: int) -> None:
    """Until nothing below is added any more but by a requeue."""

    def reached() -> bool:
        return pair.bridge.metric("tierberg_partition_frontier_offset", topic=topic, partition="0") == offset

    wait_for(f"the frontier of {topic} to reach {offset}", reached, TIER_S)


def write_as_it_is(pair: Pair, writing: Writing) -> dict[int, bytes]:
    """Segments whose conversion fails; their bytes on the broker's disk, by base offset."""
    pair.bridge.stop()  # so that nothing leaves the disk before it was looked at
    writing.some()
    files = sorted((pair.broker.data / f"{TOPIC}-0").glob("*.log"))
    sources = {int(file.stem): file.read_bytes() for file in files}
    start_failing(pair)
    wait_tiered(pair, TOPIC)
    found = segments(pair)
    assert [known.key.base for known in found] == sorted(sources)
    assert all(known.withheld for known in found)
    assert len(found) >= 3
    return sources


def write_with_rows(pair: Pair, writing: Writing) -> None:
    """More segments behind them, by a bridge that is mended."""
    start_mended(pair)
    writing.some()
    wait_tiered(pair, TOPIC)


def start_failing(pair: Pair) -> None:
    """The bridge, which is stopped, converts nothing."""
    pair.bridge.process.env["TIERBERG_FAULT"] = "convert=raise"
    pair.bridge.start()


def start_mended(pair: Pair) -> None:
    pair.bridge.stop()
    del pair.bridge.process.env["TIERBERG_FAULT"]
    pair.bridge.start()


def segments(pair: Pair, topic: str = TOPIC) -> list[KnownSegment]:
    """What the store has, ascending; without the copies that Kafka gave up while the bridge was away."""
    return sorted((known for known in stored_segments(pair, topic) if known.live), key=lambda known: known.key.base)


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


def requeue(pair: Pair, topic: str = TOPIC) -> str:
    """Runs `tierberg requeue`; what it says."""
    argv = [pair.bridge.process.argv[0], "requeue", topic, "--config", str(pair.bridge.folder / "tierberg.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
