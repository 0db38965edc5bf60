"""What producers sent and what they were told: the one thing a chaos run believes.

Records belong to a partition of a topic *id*: a topic made again is another one. Offsets are those of the
acknowledgements, timestamps those asked for, or the broker's where the topic says so.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

End = Literal["committed", "aborted", "unknown"]
Place = tuple[str, int]


class Acked(NamedTuple):
    """An acknowledged record; `transaction` 0: none."""

    timestamp_ms: int
    digest: bytes
    transaction: int


@dataclass(slots=True)
class ChaosLedger:
    """Written by many threads.

    Attributes:
        acked: by topic id and partition: offset → record.
        placeless: acknowledged without an offset: digests by topic id and partition.
        uncertain: sent, and nobody knows; digests by topic name, as a late request may meet the topic's successor.
        repeatable: digests of producers without idempotence, which may write a record more than once.
        ends: how each transaction ended; one that is missing was never decided: aborted.
        conflicts: two acknowledgements for one offset.
        counts: acknowledged records by kind.
    """

    acked: dict[Place, dict[int, Acked]] = field(default_factory=lambda: defaultdict(dict))
    placeless: dict[Place, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    uncertain: dict[str, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))
    repeatable: set[bytes] = field(default_factory=set)
    ends: dict[int, End] = field(default_factory=dict)
    conflicts: list[tuple[Place, int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    produced: Counter[str] = field(default_factory=Counter)
    _transactions: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new_transaction(self) -> int:
        with self._lock:
            self._transactions += 1
            self.ends[self._transactions] = "aborted"
            return self._transactions

    def end(self, transaction: int, end: End) -> None:
        self.ends[transaction] = end

    def acknowledge(self, place: Place, offset: int, record: Acked, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1
            held = self.acked[place]
            if offset in held:
                self.conflicts.append((place, offset))
            held[offset] = record

    def acknowledge_somewhere(self, place: Place, digest: bytes, kind: str) -> None:
        """Acknowledged, but the client does not know where: a repeated request was recognised by the broker."""
        with self._lock:
            self.counts[kind] += 1
            self.placeless[place].append(digest)

    def doubt(self, topic: str, digest: bytes) -> None:
        with self._lock:
            self.uncertain[topic][digest] += 1

    def sent(self, kind: str, digests: list[bytes], *, repeatable: bool) -> None:
        with self._lock:
            self.produced[kind] += len(digests)
            if repeatable:
                self.repeatable.update(digests)

    def total(self) -> int:
        return sum(self.counts.values())
