"""Turns what was seen into checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.checks import Summary, mib
from demo.consume import ReadBack
from demo.engines import Engine, Row
from demo.events import FLIGHTS
from demo.ledger import Ledger

#: Iceberg's types by column.
Types = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoteReads:
    """Where the records that were read back came from.

    Attributes:
        local_starts_before: partition → first offset on the broker's disk before reading.
        local_starts_after: the same afterwards.
        broker_bytes: the broker's RemoteFetchBytesPerSec of the topic, as a count.
        bridge_bytes: what the bridge says it has handed to brokers for fetches meanwhile.
    """

    local_starts_before: Mapping[int, int]
    local_starts_after: Mapping[int, int]
    broker_bytes: int
    bridge_bytes: int


def judge_ledgers(summary: Summary, ledgers: Mapping[str, Ledger]) -> None:
    """Everything was acknowledged once, and some of it aborted."""
    counts = [(ledger.committed_count(), ledger.aborted_count()) for ledger in ledgers.values()]
    held = all(committed == FLIGHTS and aborted > 0 for committed, aborted in counts)
    each = (f"{committed:,} committed, {aborted:,} aborted" for committed, aborted in counts)
    figures = "; ".join(f"{topic}: {text}" for topic, text in zip(ledgers, each, strict=True))
    summary.check("every flight acknowledged", held, figures)


def judge_reading(summary: Summary, what: str, expected: int, result: ReadBack) -> None:
    """What came back is what was sent."""
    figures = f"{result.records:,} read, {result.differing} differ"
    summary.check(what, result.records == expected and result.differing == 0, figures)
    for sentence in result.differences:
        summary.console.print(f"  {sentence}", markup=False)


def judge_origin(summary: Summary, topic: str, reads: Sequence[ReadBack], origin: RemoteReads) -> None:
    """No record of the topic that was read can have come from the broker's own disk."""
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
    summary.check(f"every record read of {topic} was served by the bridge", remote and counted, figures)


def judge_answers(summary: Summary, engines: Mapping[str, Sequence[Engine]]) -> None:
    """All engines give the same answers, about each topic's table the same."""
    each = [engine for table in engines.values() for engine in table]
    answers = [[list(map(tuple, answer.rows)) for answer in engine.answers] for engine in each]
    names = dict.fromkeys(engine.name for engine in each)
    figures = f"{' = '.join(names)}, on {' and '.join(engines)}"
    summary.check("SQL answers agree", all(answer == answers[0] for answer in answers), figures)


def judge_records(summary: Summary, topic: str, kafka: ReadBack, sample: Row, engines: Sequence[Engine]) -> None:
    """The rows of a topic's table are Kafka's records."""
    for engine in engines:
        equal = engine.checksum == kafka.checksum and engine.rows == kafka.records
        figures = f"{engine.rows:,} rows, {engine.checksum:x}"
        summary.check(f"{engine.name}'s checksum of {topic} equals Kafka's", equal, figures)
    summary.check(
        f"one record of {topic}, side by side",
        all(engine.sample == sample for engine in engines),
        "equal in every world",
    )


def judge_columns(
    summary: Summary, topic: str, types: Types, expected: Types, flights: int, engines: Sequence[Engine]
) -> None:
    """The typed columns of a topic's table are the flights.

    Args:
        summary: gets the check.
        topic: whose table it is.
        types: the table's columns without Kafka's, and their Iceberg types.
        expected: what they should be.
        flights: checksum over the flights as the data has them, see `demo.columns`.
        engines: what they gave for the table.
    """
    equal = all((engine.columns, engine.rows, engine.errors) == (flights, FLIGHTS, 0) for engine in engines)
    rows = " = ".join(f"{engine.rows:,}" for engine in engines)
    figures = f"{len(types)} columns, {rows} rows, {sum(engine.errors for engine in engines)} errors, {flights:x}"
    summary.check(f"typed columns of {topic} equal the flights", equal and types == expected, figures)
    if types != expected:
        summary.console.print(f"  columns are {types}, expected {expected}", markup=False)
    for engine in engines:
        if engine.columns != flights:
            summary.console.print(f"  {engine.name}'s checksum is {engine.columns:x}", markup=False)
