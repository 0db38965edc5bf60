"""The broker's transaction index and producer snapshot, and what a log of batches makes of them, in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

from tests.oracle.records import Batch, Message


def transaction_index(aborted: Sequence[tuple[int, int, int]]) -> bytes:
    """Entries (producer id, first offset, marker's offset)."""
    return b"".join(struct.pack(">hqqqq", 0, producer, first, last, last) for producer, first, last in aborted)


def producer_snapshot(producers: Sequence[tuple[int, int]]) -> bytes:
    """Entries (producer id, first offset of its open transaction or -1)."""
    body = bytearray(struct.pack(">i", len(producers)))  # there may be a million
    for producer, first in producers:
        body += struct.pack(">qhiqiqiq", producer, 0, 5, 100, 0, 1_700_000_000_000, 0, first)
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


@dataclass(frozen=True, slots=True)
class Outcome:
    """`decisions` has, per batch, "committed", "aborted" or "open" for transactional data, else ""."""

    decisions: tuple[str, ...]
    index: bytes
    snapshot: bytes


def outcome(batches: Sequence[Batch | Message]) -> Outcome:
    """Decide every transactional batch by the first marker of its producer id above it."""
    decisions = [""] * len(batches)
    opened: dict[int, list[int]] = {}
    aborted: list[tuple[int, int, int]] = []
    seen: set[int] = set()
    for i, batch in enumerate(batches):
        if isinstance(batch, Message) or batch.magic != 2 or batch.crc_error or not batch.transactional:
            continue
        seen.add(batch.producer_id)
        if not batch.control:
            opened.setdefault(batch.producer_id, []).append(i)
            continue
        kind = batch.records[0].key[3] if batch.records and batch.records[0].key else -1
        if kind not in (0, 1):
            continue
        mine = opened.pop(batch.producer_id, [])
        for k in mine:
            decisions[k] = "committed" if kind == 1 else "aborted"
        if mine and kind == 0:
            aborted.append((batch.producer_id, batches[mine[0]].base_offset, batch.base_offset))
    for mine in opened.values():
        for k in mine:
            decisions[k] = "open"
    entries = [(producer, batches[opened[producer][0]].base_offset if producer in opened else -1) for producer in seen]
    return Outcome(tuple(decisions), transaction_index(aborted), producer_snapshot(sorted(entries)))
