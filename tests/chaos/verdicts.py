"""Pure comparisons of what was found with what must be there. A verdict without examples has passed.

Rows are (timestamp in milliseconds, digest) by offset. Nothing here reads a server, or anything of the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.chaos_ledger import Acked, End, Place
from tests.chaos.limits import EXAMPLES
from tests.chaos.true_log import True_

Row = tuple[int, bytes]
#: Microseconds in int64: what is beyond cannot be a timestamp of the table.
TABLE_TIMESTAMP_MAX = (2**63 - 1) // 1000


@dataclass(slots=True)
class Verdict:
    """One check of one partition.

    Attributes:
        check: which.
        where: topic and partition.
        looked_at: records, rows or batches compared.
        wrong: how often, by kind.
        told: counts that are no failure, but worth telling.
        examples: of each kind the first few.
    """

    check: str
    where: str
    looked_at: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.wrong

    def add(self, kind: str, what: object) -> None:
        self.wrong[kind] += 1
        if self.wrong[kind] <= EXAMPLES:
            self.examples.append(f"{kind}: {what}")

    def line(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.wrong.items())
        return f"{self.where}: {self.check}: {self.looked_at} looked at, {kinds or 'right'}"


def consumed(
    check: str,
    where: str,
    got: Sequence[tuple[int, int, bytes]],
    expected: Mapping[int, Row],
    forgotten: Collection[int] = (),
) -> Verdict:
    """What a consumer got, in its order, against what the log holds for it. `forgotten`: TrueLog's, which may come."""
    verdict = Verdict(check, where, len(got))
    for (before, *_), (after, *_) in pairwise(got):
        if after <= before:
            verdict.add("doubled or out of order", f"{after} after {before}")
    excused = {offset for offset, *_ in got if offset not in expected and offset in forgotten}
    if excused:
        verdict.told["aborted, and unknown to a broker's own index"] += len(excused)
    _compare(verdict, {offset: (when, held) for offset, when, held in got if offset not in excused}, expected)
    return verdict


def table(
    where: str, rows: Sequence[tuple[int, int | None, bytes]], records: Mapping[int, True_], span: tuple[int, int]
) -> Verdict:
    """The table's rows of one partition: offset, timestamp, digest.

    Every committed record of [first, end) of `span` must be there once. Rows below the first may still be there, rows
    at or above the end may be there already: they must be committed records too.
    """
    verdict = Verdict("table", where, len(rows))
    found: dict[int, tuple[int | None, bytes]] = {}
    for offset, when, held in rows:
        if offset in found:
            verdict.add("doubled", offset)
        found[offset] = (when, held)
        record = records.get(offset)
        if record is None:
            verdict.add("extra", offset)
        elif record.state == "aborted":
            verdict.add("aborted row", offset)
        elif record.state not in ("plain", "committed"):
            verdict.add(f"row of {record.state}", offset)
        elif held != record.digest or when != _table_time(record.timestamp_ms):
            verdict.add("altered", f"{offset}: {when} {held.hex()}, not {record.timestamp_ms} {record.digest.hex()}")
    for offset, record in records.items():
        wanted = span[0] <= offset < span[1] and record.state in ("plain", "committed")
        if wanted and offset not in found:
            verdict.add("lost", offset)
    return verdict


def ledger(
    where: str, acked: Mapping[int, Acked], records: Mapping[int, True_], ends: Mapping[int, End], start: int
) -> Verdict:
    """Acknowledged records against the log from `start` on, and how their transactions ended."""
    verdict = Verdict("ledger", where, len(acked))
    for offset, sent in acked.items():
        if offset < start:
            continue
        record = records.get(offset)
        if record is None:
            verdict.add("lost", offset)
            continue
        if (record.timestamp_ms, record.digest) != (sent.timestamp_ms, sent.digest):
            verdict.add("altered", offset)
        end = ends[sent.transaction] if sent.transaction else "plain"
        if end != "unknown" and record.state != end:
            verdict.add("ended otherwise", f"{offset}: transaction {sent.transaction} is {record.state}, told {end}")
    return verdict


def unexplained(
    where: str,
    acked: Mapping[int, Acked],
    records: Mapping[int, True_],
    allowed: Mapping[bytes, int],
    repeatable: Iterable[bytes],
) -> Verdict:
    """Records of the log that nobody sent, or that came more often than they were sent."""
    verdict = Verdict("log is explained", where, len(records))
    left, repeats = Counter(allowed), set(repeatable)
    for offset, record in records.items():
        if offset in acked or record.state == "control":
            continue
        if left[record.digest] > 0:
            left[record.digest] -= 1
        elif record.digest not in repeats:
            verdict.add("extra", offset)
    return verdict


def log_start(where: str, start: int, reasons: int | None) -> Verdict:
    """The log begins where deleteRecords put it at most; `reasons` None: retention may put it anywhere."""
    verdict = Verdict("log start", where, 1)
    if reasons is not None and start > reasons:
        verdict.add("history lost", f"the log begins at {start}, {reasons} at most was asked for")
    return verdict


def atomic(transactions: Mapping[int, Iterable[str]]) -> Verdict:
    """Of each transaction the states of its records: all must be the same."""
    verdict = Verdict("transactions are whole", "all topics", len(transactions))
    for number, states in transactions.items():
        seen = set(states)
        if len(seen) > 1:
            verdict.add("torn", f"transaction {number}: {sorted(seen)}")
    return verdict


def acknowledged_once(conflicts: Iterable[tuple[Place, int]], looked_at: int, losing: Collection[str]) -> Verdict:
    """No offset twice, but in topics (by id) whose elections may lose what was acknowledged."""
    verdict = Verdict("one acknowledgement for each offset", "all topics", looked_at)
    for (topic_id, partition), offset in conflicts:
        if topic_id not in losing:
            verdict.add("conflict", f"{topic_id}-{partition} offset {offset} was acknowledged twice")
    return verdict


def _compare(verdict: Verdict, found: Mapping[int, Row], expected: Mapping[int, Row]) -> None:
    for offset in sorted(expected.keys() - found.keys()):
        verdict.add("lost", offset)
    for offset in sorted(found.keys() - expected.keys()):
        verdict.add("extra", offset)
    for offset, row in expected.items():
        got = found.get(offset, row)
        if got != row:
            verdict.add("altered", f"{offset}: {got[0]} {got[1].hex()}, not {row[0]} {row[1].hex()}")


def _table_time(when: int) -> int | None:
    return when if 0 <= when <= TABLE_TIMESTAMP_MAX else None
