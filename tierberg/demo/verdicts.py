"""Turns what was seen into checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repartition.advise.report import AdviceReport, Figures
from repartition.advise.text import spelled
from rsm_bridge.words import size
from tierberg.demo.checks import DemoSummary, mib
from tierberg.demo.consume import ReadBack
from tierberg.demo.engines import Engine, Row
from tierberg.demo.events import FLIGHTS
from tierberg.demo.ledger import Ledger
from tierberg.demo.projection import Comparison
from tierberg.demo.queries import ONE_DAY

#: Iceberg's types by column.
Types = Mapping[str, str]
#: A projection that is laid out for a question opens at most one byte for so many of the topic's table.
_GAIN_MIN = 3.0
_PNG = b"\x89PNG\r\n\x1a\n"


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


def judge_ledgers(summary: DemoSummary, ledgers: Mapping[str, Ledger]) -> None:
    """Everything was acknowledged once, and some of it aborted."""
    counts = [(ledger.committed_count(), ledger.aborted_count()) for ledger in ledgers.values()]
    held = all(committed == FLIGHTS and aborted > 0 for committed, aborted in counts)
    each = (f"{committed:,} committed, {aborted:,} aborted" for committed, aborted in counts)
    figures = "; ".join(f"{topic}: {text}" for topic, text in zip(ledgers, each, strict=True))
    summary.check("every flight acknowledged", held, figures)


def judge_reading(summary: DemoSummary, what: str, expected: int, result: ReadBack) -> None:
    """What came back is what was sent."""
    figures = f"{result.records:,} read, {result.differing} differ"
    summary.check(what, result.records == expected and result.differing == 0, figures)
    for sentence in result.differences:
        summary.console.print(f"  {sentence}", markup=False)


def judge_origin(summary: DemoSummary, topic: str, reads: Sequence[ReadBack], origin: RemoteReads) -> None:
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


def judge_answers(summary: DemoSummary, engines: Mapping[str, Sequence[Engine]]) -> None:
    """All engines give the same answers, about each topic's table the same."""
    each = [engine for table in engines.values() for engine in table]
    answers = [[list(map(tuple, answer.rows)) for answer in engine.answers] for engine in each]
    names = dict.fromkeys(engine.name for engine in each)
    figures = f"{' = '.join(names)}, on {' and '.join(engines)}"
    summary.check("SQL answers agree", all(answer == answers[0] for answer in answers), figures)


def judge_records(summary: DemoSummary, topic: str, kafka: ReadBack, sample: Row, engines: Sequence[Engine]) -> None:
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
    summary: DemoSummary, topic: str, types: Types, expected: Types, flights: int, engines: Sequence[Engine]
) -> None:
    """The typed columns of a topic's table are the flights.

    Args:
        summary: gets the check.
        topic: whose table it is.
        types: the table's columns without Kafka's, and their Iceberg types.
        expected: what they should be.
        flights: checksum over the flights as the data has them, see `tierberg.demo.columns`.
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


def judge_projection(summary: DemoSummary, kafka: ReadBack, flights: int, own: Engine, projection: Engine) -> None:
    """The projection is the topic in another order.

    Args:
        summary: gets two checks.
        kafka: what a reader of committed records got.
        flights: checksum over the flights as the data has them, see `tierberg.demo.columns`.
        own: what an engine gave for the topic's table.
        projection: what the same engine gave for the projection.
    """
    records = (projection.rows, projection.checksum) == (kafka.records, kafka.checksum)
    columns = (projection.rows, projection.columns, projection.errors) == (FLIGHTS, flights, 0)
    figures = f"{projection.rows:,} rows, records {projection.checksum:x}, columns {projection.columns:x}"
    summary.check("the projection has each committed flight once, with the same values", records and columns, figures)
    answers = [[list(map(tuple, answer.rows)) for answer in engine.answers] for engine in (own, projection)]
    equal = answers[0] == answers[1] and all(answers[0])
    summary.check(
        "the projection gives the same answers", equal, f"{len(projection.answers)} questions, {projection.name}"
    )


def judge_layouts(summary: DemoSummary, comparison: Comparison) -> None:
    """The projection needs fewer bytes for the question it is laid out for, and there is a picture of that."""
    report = comparison.report
    found = _figures(report, ONE_DAY)
    gain = found[0].size_bytes / found[1].size_bytes if len(found) == 2 and found[1].size_bytes else 0.0
    equal = all(len({each.result_rows for each in _figures(report, query.name)}) == 1 for query in report.queries)
    whole = all(answer.error is None for query in report.queries for answer in query.answers)
    needed = "; ".join(f"{spelled(each)}, {size(each.size_bytes)}" for each in found)
    promise = f"{ONE_DAY}: fewer bytes in the projection"
    summary.check(promise, whole and equal and gain >= _GAIN_MIN, f"{gain:.1f} times fewer: {needed}")
    for query in report.queries:
        for answer in query.answers:
            if answer.error is not None:
                summary.console.print(f"  {query.name} on {answer.table}: {answer.error}", markup=False)
    picture, (wide, tall) = comparison.picture, comparison.pixels
    head = picture.read_bytes()[:24] if picture.is_file() else b""
    there = head[:8] == _PNG and head[16:] == wide.to_bytes(4, "big") + tall.to_bytes(4, "big")
    summary.check("the picture is there", there, f"{picture.name}, {wide} × {tall}")


def _figures(report: AdviceReport, name: str) -> list[Figures]:
    """Of one question, on the topic's table and on the projection; fewer where one has none."""
    answers = [answer for query in report.queries if query.name == name for answer in query.answers]
    return [answer.figures for answer in answers if answer.figures is not None]
