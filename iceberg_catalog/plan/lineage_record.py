"""R1: what of the living history is recorded, and how the record is read.

Kafka cuts its leader-epoch checkpoint at the log start; so is the record. It begins with the epoch that holds the least
of floor, frontier, the lowest row of the table, and the lowest deleted segment whose rows stay: below, nothing is
published, judged or taken back any more. Where that epoch began stays recorded, as far as it is known, and Kafka
forgets it. A broker whose older epoch wins back has rows of its own below, which retention never deleted; then all
starts anew at its lowest row (rewind.py). Every restart of a broker is an epoch, and one state of all partitions goes
with each commit.

Where that does not move, in an archive or under a retention of years, a record is shortened to its newest
LINEAGE_ENTRIES_MAX entries, behind a hole. Nothing is lost by it: Kafka's own checkpoint comes with every copy, and an
index that has the epoch with which the record begins, at the offset at which it begins, has the same log below it.
Only what agrees in this way completes a record that was cut: another branch would look alive again below the cut, for
what had shown it dead is not there any more.

What a shortened record costs: of a deletion in its hole nobody may be able to tell whether it is of the living log,
once no index has that epoch any more. It does not raise the floor then, for rows that live would go with it. Its rows
stay until the next deletion above the hole raises the floor over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from iceberg_catalog.limits import LINEAGE_ENTRIES_MAX
from iceberg_catalog.plan.lineage import UNKNOWN, Lineage, completed, merged, of_segment
from iceberg_catalog.plan.types import PartState, Runs, Segment


def fold(segments: Iterable[Segment], state: PartState) -> Lineage:
    """The living history from all indexes, tombstoned ones too, and the recorded one."""
    told = [of_segment(segment) for segment in segments]
    record = read_record(state, told)
    was_cut = bool(state.lineage) and state.lineage[0][1] <= state.floor
    roots = _roots(told)
    result = Lineage()
    for newer in sorted([*told, record], key=lambda item: (*item.rank, item.entries)):
        if newer.entries:
            # What completed the record may itself be cut: at once what agrees with that too, or each plan adds some.
            result = rooted(newer, roots) if newer is record and was_cut else completed(rooted(newer, roots), result)
    return result


def _roots(told: Sequence[Lineage]) -> dict[int, Lineage]:
    """By epoch with which any begins, the one of all that have it which reaches down furthest."""
    firsts = {item.entries[0][0] for item in told if item.entries}
    found: dict[int, Lineage] = {}
    for item in told:
        for epoch, _ in item.entries:
            if epoch in firsts and (epoch not in found or item.entries[0][1] < found[epoch].entries[0][1]):
                found[epoch] = item
    return found


def rooted(newer: Lineage, roots: Mapping[int, Lineage]) -> Lineage:
    """With what is known below its first entry from others that have the same epoch there.

    An epoch has one leader, so it begins at one offset of one log: who has rows of it has all below, whichever branch
    was stronger meanwhile.
    """
    while True:
        epoch, first = newer.entries[0]
        root = roots.get(epoch)
        if root is None:
            return newer
        begin = next(start for own, start in root.entries if own == epoch)
        if begin > first or root.entries[0][1] >= first:
            return newer
        newer = Lineage(merged((*(entry for entry in root.entries if entry[1] <= begin), *newer.entries)), newer.end)


def read_record(state: PartState, told: Sequence[Lineage]) -> Lineage:
    """The recorded history, with what indexes of the same log tell below it. `told`: by each index."""
    record = Lineage(state.lineage, state.known_end)
    epoch, begin = next((entry for entry in record.entries if entry[0] != UNKNOWN), (UNKNOWN, 0))
    same = [item for item in told if epoch != UNKNOWN and item.epoch_at(begin) == epoch]
    below = min((item.entries for item in same), key=lambda entries: entries[0][1], default=())
    below = tuple(entry for entry in below if entry[1] < begin)
    if not below:
        return record
    hole = tuple(entry for entry in record.entries[:1] if entry[0] == UNKNOWN and entry[1] < below[0][1])
    known = record.entries[1:] if record.entries[0][0] == UNKNOWN else record.entries
    return Lineage(merged((*hole, *below, *known)), record.end)


def recorded(lineage: Lineage, state: PartState, floor: int, least: int) -> Runs:
    """What of a history is to be recorded.

    Args:
        lineage: the living one.
        state: recorded with the head. What it has is kept as it is until floor or history change.
        floor: the new one.
        least: of the new floor and frontier and the table's lowest row.
    """
    before = state.lineage
    if before and floor == state.floor and before[0][1] <= least and cut(lineage.entries, before[0][1]) == before:
        return before
    return cut(lineage.entries, min(least, lineage.end - 1))  # with its last epoch: another may have taken its place


def cut(entries: Runs, begin: int) -> Runs:
    """From the epoch on that holds `begin`, at most the newest LINEAGE_ENTRIES_MAX. A hole begins at `begin`."""
    entries = entries[max(sum(start <= begin for _, start in entries) - 1, 0) :]
    hole = tuple((UNKNOWN, max(begin, start)) for _, start in entries[:1])
    if len(entries) > LINEAGE_ENTRIES_MAX:
        return merged((*hole, *entries[1 - LINEAGE_ENTRIES_MAX :]))
    return (*hole, *entries[1:]) if entries and entries[0][0] == UNKNOWN else entries
