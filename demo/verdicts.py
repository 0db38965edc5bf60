"""Turns what was seen into checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.checks import Summary, mib
from demo.consume import ReadBack
from demo.engines import Engine, Row
from demo.events import FLIGHTS
from demo.ledger import Ledger


@dataclass(frozen=True, slots=True)
class RemoteReads:
    """Where the records that were read back came from.

    Attributes:
        local_starts_before: partition → first offset on the broker's disk before reading.
        local_starts_after: the same afterwards.
        broker_bytes: the broker's RemoteFetchBytesPerSec of the topic, as a count.
        bridge_bytes: what the bridge says it has handed to brokers for fetches.
    """

    local_starts_before: Mapping[int, int]
    local_starts_after: Mapping[int, int]
    broker_bytes: int
    bridge_bytes: int


def judge_ledger(summary: Summary, ledger: Ledger) -> None:
    """Everything was acknowledged once, and some of it aborted."""
    committed, aborted = ledger.committed_count(), ledger.aborted_count()
    figures = f"{committed:,} committed, {aborted:,} aborted"
    summary.check("every flight acknowledged", committed == FLIGHTS and aborted > 0, figures)


def judge_reading(summary: Summary, what: str, expected: int, result: ReadBack) -> None:
    """What came back is what was sent."""
    figures = f"{result.records:,} read, {result.differing} differ"
    summary.check(what, result.records == expected and result.differing == 0, figures)
    for sentence in result.differences:
        summary.console.print(f"  {sentence}", markup=False)


def judge_origin(summary: Summary, reads: Sequence[ReadBack], origin: RemoteReads) -> None:
    """No record that was read can have come from the broker's own disk."""
    last: dict[int, int] = {}
    for read in reads:
        for partition, offset in read.last_offset.items():
            last[partition] = max(offset, last.get(partition, -1))
    starts = (origin.local_starts_before, origin.local_starts_after)
    remote = bool(last) and all(
        offset < min(start[partition] for start in starts) for partition, offset in last.items()
    )
    counted = 0 < origin.broker_bytes <= origin.bridge_bytes
    figures = f"broker fetched {mib(origin.broker_bytes)}, bridge served {mib(origin.bridge_bytes)}"
    summary.check("every record read was served by the bridge", remote and counted, figures)


def judge_engines(summary: Summary, kafka: ReadBack, sample: Row, engines: Sequence[Engine]) -> None:
    """Both engines agree with each other and with Kafka."""
    answers = [[list(map(tuple, answer.rows)) for answer in engine.answers] for engine in engines]
    same = all(answer == answers[0] for answer in answers)
    summary.check("SQL answers agree", same, " = ".join(engine.name for engine in engines))
    for engine in engines:
        equal = engine.checksum == kafka.checksum and engine.rows == kafka.records
        figures = f"{engine.rows:,} rows, {engine.checksum:x}"
        summary.check(f"{engine.name}'s checksum equals Kafka's", equal, figures)
    summary.check(
        "one record, side by side", all(engine.sample == sample for engine in engines), "equal in every world"
    )
