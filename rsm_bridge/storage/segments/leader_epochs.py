"""`tierberg leader-epochs`: the leader-epoch checkpoint of a partition, out of the indexes of its tiered segments.

A replica that lost its history (docs/operations.md, "History that nobody can read") has a checkpoint that begins above
what is tiered, and Kafka cannot find a segment below without its epoch. Every index has the history of its copy; folded
together (publish rule R1) they are the whole one up to the last tiered offset. What lies above is in the broker's own
file alone, so that is joined on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_catalog.plan.lineage import UNKNOWN, Lineage, valid_end
from iceberg_catalog.plan.lineage_record import fold
from iceberg_catalog.plan.types import PartState, Runs
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.segments.known import KnownSegment, parse_checkpoint
from rsm_bridge.words import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The epochs of one log, and how sure that is.

    Attributes:
        entries: (epoch, start offset), ascending.
        start, end: what the live segments cover, end exclusive.
        holes: [first, last] offsets of which no copy says the epoch; the entry before them covers them.
        astray: index keys of live segments that are not, or not whole, part of this history.
    """

    entries: Runs
    start: int
    end: int
    holes: tuple[tuple[int, int], ...]
    astray: tuple[str, ...]

    def checkpoint(self) -> str:
        """Kafka's file: version 0, the number of entries, one line for each."""
        lines = ["0", str(len(self.entries)), *(f"{epoch} {start}" for epoch, start in self.entries)]
        return "\n".join(lines) + "\n"


def history_of(segments: Sequence[KnownSegment], partition: int) -> History:
    """The history that all indexes of a partition, deleted ones too, tell together.

    Args:
        segments: of one topic id.
        partition: which of its partitions.

    Raises:
        BridgeError: `not_found` when the partition has no live segment.
    """
    mine = [known for known in segments if known.key.partition == partition and known.segment is not None]
    live = [known for known in mine if known.live]
    if not live:
        raise BridgeError("not_found", f"partition {partition} has no live segment in the store")
    lineage = fold((known.segment for known in mine if known.segment is not None), PartState())
    starts = [start for _, start in lineage.entries[1:]] + [lineage.end]
    holes = [(start, end - 1) for (epoch, start), end in zip(lineage.entries, starts, strict=True) if epoch == UNKNOWN]
    return History(
        entries=tuple(entry for entry in lineage.entries if entry[0] != UNKNOWN),
        start=min(known.key.base for known in live),
        end=lineage.end,
        holes=tuple(holes),
        astray=tuple(known.listed.key for known in live if not _whole(known, lineage)),
    )


def _whole(known: KnownSegment, lineage: Lineage) -> bool:
    segment = known.segment
    return segment is not None and valid_end(segment.runs, segment.base, segment.last + 1, lineage) == segment.last + 1


def joined(history: History, current: bytes) -> History:
    """The history with what the broker's own checkpoint says from its first entry on.

    Args:
        history: out of the store.
        current: the broker's `leader-epoch-checkpoint`.

    Raises:
        BridgeError: `bad_request` when the file does not parse, or says another epoch of an offset that both know.
    """
    try:
        own = parse_checkpoint(current)
    except ValueError as error:
        raise BridgeError("bad_request", f"the broker's file is no leader-epoch checkpoint: {error}") from error
    if not own:
        return history
    stored = Lineage(history.entries, history.end)
    first = own[0][1]
    for start in sorted({start for _, start in (*own, *history.entries) if first <= start < history.end} | {first}):
        ours, theirs = stored.epoch_at(start), Lineage(own, max(history.end, first + 1)).epoch_at(start)
        if ours is not None and ours != theirs:
            raise BridgeError(
                "bad_request",
                f"at offset {start} the broker's file has epoch {theirs} and the tiered segments epoch {ours}: this "
                "replica has another history; take the file of the replica that is leader",
            )
    below = tuple(entry for entry in history.entries if entry[1] < first)
    above = own if not below or below[-1][0] != own[0][0] else own[1:]
    holes = history.holes
    if below and first > history.end and below[-1][0] != own[0][0]:
        holes = (*holes, (history.end, first - 1))
    return History(entries=(*below, *above), start=history.start, end=history.end, holes=holes, astray=history.astray)


def said(history: History, *, with_current: bool) -> list[str]:
    """What a person must know before they use it."""
    epochs = plural(len(history.entries), "epoch")
    lines = [f"{epochs}, out of the tiered segments of offsets {history.start} to {history.end - 1}"]
    if not with_current:
        lines.append(
            f"epochs that begin at offset {history.end} or above are not in the store: join the broker's own file with "
            "--current FILE"
        )
    if history.entries and history.entries[0][1] > history.start:
        lines.append(f"no copy says the epoch of offsets {history.start} to {history.entries[0][1] - 1}")
    lines += [
        f"no copy says the epoch of offsets {first} to {last}: they count to the one before"
        for first, last in history.holes
    ]
    lines += [f"not part of this history: {key}" for key in history.astray]
    if len(lines) == 1:
        lines.append("every tiered segment agrees with it, and there is no hole")
    return lines
