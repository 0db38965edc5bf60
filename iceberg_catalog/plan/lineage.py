"""R1, R2: which epoch of the log is the living one at each offset, and how much of a segment belongs to it.

"The higher leader epoch wins" is wrong per offset: a leader elected uncleanly in epoch 4 can be followed by one in
epoch 5 that has the log of epoch 3 and never had the rows of epoch 4. What wins is the newest *history*: the
leader-epoch checkpoint that came with the newest copy, completed downwards by weaker ones where it says nothing.

A checkpoint is cut at its broker's log start, which hides where its first epoch began. Taking the cut for the epoch's
start would look like a divergence, so such a hole is entered as UNKNOWN, and nothing is ever compared with it. The
record is cut in the same way (lineage_record.py).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from iceberg_catalog.plan.types import Runs, Segment

UNKNOWN = -1
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Lineage:
    """Entries (epoch, start), ascending by start, of the history known up to `end` (exclusive)."""

    entries: Runs = ()
    end: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Which of two histories is newer: last epoch, then end."""
        return (self.entries[-1][0] if self.entries else UNKNOWN - 1, self.end)

    @property
    def end_of_hole(self) -> int:
        """Where the hole ends that the history begins with; where it begins, if there is none."""
        begin = self.entries[0]
        return self.entries[1][1] if begin[0] == UNKNOWN and len(self.entries) > 1 else begin[1]

    def epoch_at(self, offset: int) -> int | None:
        """The epoch at an offset; UNKNOWN in a hole, None outside what is known."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1
        return self.entries[number][0] if number >= 0 and offset < self.end else None

    def newest_at(self, offset: int) -> int | None:
        """The newest epoch that an offset can have: its own, or that of the next known one; None if nobody knows."""
        if offset >= self.end:
            return None
        number = max(bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1, 0)
        known = (epoch for epoch, _ in self.entries[number:] if epoch != UNKNOWN)
        return next(known, None)

    def most_at(self, offset: int) -> int:
        """As `newest_at`; above all epochs if nobody knows."""
        most = self.newest_at(offset)
        return _NEVER if most is None else most

    def meets(self, epoch: int, start: int) -> int | None:
        """The lowest offset from `start` on that the history has in this epoch; None if there is none."""
        for number, (own, first) in enumerate(self.entries):
            if own == epoch and start < self._end(number):
                return max(first, start)
        return None

    def _end(self, number: int) -> int:
        return self.entries[number + 1][1] if number + 1 < len(self.entries) else self.end

    def end_of(self, offset: int) -> int:
        """Where the entry that holds `offset` ends, exclusive."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[number][1] if number < len(self.entries) else self.end


def of_segment(segment: Segment) -> Lineage:
    """What one index says: its own batches below the checkpoint's first entry, then the checkpoint."""
    start = segment.checkpoint[0][1] if segment.checkpoint else segment.last + 1
    own = tuple(run for run in segment.runs if run[1] < start)
    told = tuple(entry for entry in segment.checkpoint if entry[1] <= segment.last)
    return Lineage(merged((*own, *told)), segment.last + 1)


def completed(newer: Lineage, older: Lineage) -> Lineage:
    """`newer`, with what `older` knows below its first entry."""
    epoch, first = newer.entries[0]
    kept = tuple(entry for entry in older.entries if entry[1] < first and entry[0] <= epoch)
    if not kept:
        return newer
    dropped = (entry[1] for entry in older.entries if entry[1] >= first or entry[0] > epoch)
    reach = min([older.end, *dropped])
    if reach < first and kept[-1][0] not in (epoch, UNKNOWN):
        kept = (*(entry for entry in kept if entry[1] < reach), (UNKNOWN, reach))
    return Lineage(merged((*kept, *newer.entries)), newer.end)


def merged(entries: Runs) -> Runs:
    """Without entries that repeat the epoch before them."""
    return tuple(entry for n, entry in enumerate(entries) if n == 0 or entry[0] != entries[n - 1][0])


def valid_end(runs: Runs, base: int, end: int, lineage: Lineage, *, proven: bool = False) -> int:
    """R2: offset up to which [base, end) of a segment or file is alive, exclusive; `base` if nothing is.

    From the newest epoch run to the oldest: the first that agrees with the lineage proves itself up to the lineage's
    end of that epoch, and everything before it, because two logs that agree on a batch agree on all before it. A
    checkpoint that was cut hides where its first epoch began: what has that epoch below the cut is alive too, for the
    one leader that wrote in it had it. Where a
    lineage begins with a hole, which only a shortened record does, what may lie in it is not called dead; nor is it
    alive if that is to be `proven`.
    """
    if not lineage.entries:
        return end
    run_end = end
    for epoch, start in reversed(runs):
        at = max(start, base, lineage.entries[0][1])
        met = lineage.meets(epoch, at)
        if met is not None:
            return max(base, min(run_end, lineage.end_of(met)))
        if not proven and at < lineage.end_of_hole and epoch <= lineage.entries[1][0]:
            return max(base, min(run_end, lineage.end_of_hole))
        run_end = start
    return base


def divergence(old: Lineage, new: Lineage) -> int | None:
    """R3: first offset where the two differ for certain; None if they may be one.

    They do where both know the epoch and it is not the same. And they do where an epoch of the new one starts that is
    newer than what the old one can have there: along a log epochs only rise, so none is newer than the next that is
    known, be it behind a hole, or where the record begins.
    """
    if not old.entries or not new.entries:
        return None
    starts = [start for epoch, start in new.entries if (most := old.newest_at(start)) is not None and epoch > most]
    begin = max(old.entries[0][1], new.entries[0][1])
    points = sorted({begin} | {start for _, start in (*old.entries, *new.entries) if start > begin})
    for point in points:
        before, after = old.epoch_at(point), new.epoch_at(point)
        if before is None or after is None:
            break
        if (before != after and UNKNOWN not in (before, after)) or (after == UNKNOWN and before > new.most_at(point)):
            starts.append(point)
            break
    return min(starts, default=None)
