"""What transaction indexes of later segments say about the transactions that are open at a segment's end.

Kafka copies a segment once the last stable offset has passed its end. So when the copy begins, every transaction that
is open at the segment's end has its marker, replicated, in a later segment of the leader's log. Kafka writes an entry
into the transaction index of the marker's segment when the marker aborts, before the marker counts, and none when it
commits: a read_committed consumer learns of aborts from these entries alone. Hence, for a transaction (producer id,
first offset) that is open at the end:

* an entry with this producer id and first offset: aborted;
* no such entry in *all* later transaction indexes, read after the copy began: committed;
* no such entry, and another one whose last stable offset lies above the first offset: committed. When that entry was
  written, nothing below was open any more, and entries are written in the order of markers: an abort would stand
  before it. This decides where only the first of many indexes were sent;
* anything else: not known.

An entry that overlaps the transaction without beginning where it begins contradicts the producer snapshot: not known.
The markers themselves are compared with all this once their segment is copied (iceberg_catalog/plan/peeked.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from converter.batches.transactions import NO_ABORTS, Transactions, aborted_entries, entry_bytes
from converter.types import Int64Array

UNKNOWN, ABORTED, COMMITTED = -1, 0, 1  # as in Transactions.peeked

_EVERYTHING = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class LaterAborts:
    """What they list.

    aborted: (n, 4) as converter.batches.transactions.aborted_entries() gives them. stable: of the transactions that
    begin below this offset all aborts are listed.
    """

    aborted: Int64Array = field(default_factory=NO_ABORTS.copy)
    stable: int = 0

    @classmethod
    def parse(cls, indexes: Sequence[bytes], *, complete: bool) -> LaterAborts:
        """From the files' bytes, ascending and without a hole between them.

        A file that still grows may end with a cut entry, which is left out: whoever wrote it was not decided when the
        copy began. A damaged file ends the list. Never raises for bad bytes; work is linear in the bytes.

        Args:
            indexes: of segments that begin above the copied one's end.
            complete: they are all there are.
        """
        tables = [NO_ABORTS]
        for data in indexes:
            entries = aborted_entries(data[: len(data) - len(data) % entry_bytes()])
            if entries is None:
                complete = False
                break
            tables.append(entries)
        aborted = np.concatenate(tables)
        return cls(aborted, _EVERYTHING if complete else int(aborted[:, 3].max(initial=0)))

    def peek(self, transactions: Transactions, end_offset: int) -> Transactions:
        """The segment's transactions with what later segments say about those open at `end_offset` (inclusive)."""
        return replace(transactions, peeked=self.decide(transactions.opened, end_offset))

    def decide(self, opened: Int64Array, end_offset: int) -> Int64Array:
        """COMMITTED, ABORTED or UNKNOWN for each open transaction.

        Args:
            opened: (m, 2), producer id and first offset.
            end_offset: of the segment, inclusive; a marker lies above it.
        """
        crossing = self.aborted[(self.aborted[:, 1] <= end_offset) & (self.aborted[:, 2] > end_offset)]
        crossing = crossing[np.argsort(crossing[:, 0], kind="stable")]
        out = np.where(opened[:, 1] < self.stable, COMMITTED, UNKNOWN).astype(np.int64)
        if not len(crossing):
            return out
        producers, starts = np.unique(crossing[:, 0], return_index=True)
        least, most = (which.reduceat(crossing[:, 1], starts) for which in (np.minimum, np.maximum))
        at = np.minimum(np.searchsorted(producers, opened[:, 0]), len(producers) - 1)
        listed = producers[at] == opened[:, 0]
        agreed = (least[at] == opened[:, 1]) & (most[at] == opened[:, 1])
        out[listed] = np.where(agreed[listed], ABORTED, UNKNOWN)
        return out
