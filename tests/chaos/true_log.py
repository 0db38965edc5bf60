"""What is in a partition's log by the brokers' own files: the truth that bytes, consumers and tables are compared with.

Batches are told apart by base offset and leader epoch. Where elections were clean, an epoch's batches are valid up to
the first one of a later epoch; what an old leader had beyond was never committed.
"""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tests.chaos.record_batches import Batch, batches

State = Literal["plain", "committed", "aborted", "open", "control"]


class True_(NamedTuple):  # noqa: N801 - the word is taken
    """One record of the log."""

    timestamp_ms: int
    digest: bytes
    state: State


@dataclass(slots=True)
class TrueLog:
    """Read once.

    Attributes:
        by_identity: (base offset, leader epoch) → batch, dead branches too.
        differing: batches that two brokers have with different bytes.
        valid: in order of offsets; set by :meth:`follow`.
        records: offset → record; control records too. Set by :meth:`follow`.
        forgotten: offsets of aborted records that consumers may get: a broker that rebuilt its log from the tier
            forgets which transactions are open (stock Kafka deletes the producer snapshot it has just fetched), and has
            no entry for their abort in its transaction index. Set by :meth:`follow`.
        unindexed: base offset and epoch of the abort markers that are missing in some broker's index.
        holes: first and last offset of stretches that no linked file has.
    """

    by_identity: dict[tuple[int, int], Batch] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    valid: list[Batch] = field(default_factory=list)
    records: dict[int, True_] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)
    forgotten: set[int] = field(default_factory=set)
    unindexed: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    def read(cls, files: Iterable[Path], aborts: Callable[[Path], set[tuple[int, int]]]) -> TrueLog:
        """`aborts`: producer id and marker of what a file's transaction index has."""
        log = cls()
        for path in files:
            indexed = aborts(path)
            for batch in batches(_mapped(path)):
                if batch.control and not batch.commits() and (batch.producer_id, batch.base) not in indexed:
                    log.unindexed.add((batch.base, batch.epoch))
                key = (batch.base, batch.epoch)
                known = log.by_identity.setdefault(key, batch)
                if known.raw != batch.raw:
                    log.differing.append(f"{path.name}: batch at {batch.base}, epoch {batch.epoch}")
        log.follow(log.clean())
        return log

    def clean(self) -> list[Batch]:
        """The batches that are valid if every election was clean."""
        starts: dict[int, int] = {}
        for base, epoch in self.by_identity:
            starts[epoch] = min(base, starts.get(epoch, base))
        ends, least = {}, 2**63
        for epoch in sorted(starts, reverse=True):
            ends[epoch] = least
            least = min(least, starts[epoch])
        return [self.by_identity[key] for key in sorted(self.by_identity) if key[0] < ends[key[1]]]

    def follow(self, chosen: list[Batch]) -> None:
        """Takes these batches for the log."""
        self.valid = chosen
        self.records, self.holes, self.forgotten = {}, [], set()
        next_offset = chosen[0].base if chosen else 0
        for batch, (state, marker) in zip(chosen, _states(chosen), strict=True):
            if batch.base > next_offset:
                self.holes.append((next_offset, batch.base - 1))
            next_offset = batch.last + 1
            for record in batch.records():
                self.records[record.offset] = True_(record.timestamp_ms, record.digest, state)
                if state == "aborted" and marker is not None and (marker.base, marker.epoch) in self.unindexed:
                    self.forgotten.add(record.offset)

    def visible(self, start: int, end: int, *, committed: bool) -> dict[int, tuple[int, bytes]]:
        """What a consumer sees of [start, end)."""
        hidden = ("control", "aborted", "open") if committed else ("control",)
        return {
            offset: (record.timestamp_ms, record.digest)
            for offset, record in self.records.items()
            if start <= offset < end and record.state not in hidden
        }


def _states(chosen: list[Batch]) -> Iterator[tuple[State, Batch | None]]:
    """How the transaction of each batch ended, and by which marker: the next one of its producer."""
    waiting: dict[int, list[int]] = defaultdict(list)
    found: list[tuple[State, Batch | None]] = []
    for number, batch in enumerate(chosen):
        if batch.control:
            end: State = "committed" if batch.commits() else "aborted"
            for earlier in waiting.pop(batch.producer_id, ()):
                found[earlier] = end, batch
            found.append(("control", None))
        elif batch.transactional:
            waiting[batch.producer_id].append(number)
            found.append(("open", None))
        else:
            found.append(("plain", None))
    return iter(found)


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
