"""What a pass of reclaiming or maintenance removed, or would remove, by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["data", "kept", "derived", "tombstone", "state", "metadata", "snapshot", "folded"]

#: One line each in the report, in this order.
KINDS: Mapping[Kind, str] = {
    "data": "data files",
    "kept": "kept bytes",
    "derived": "derived data files",
    "tombstone": "tombstones",
    "state": "state objects",
    "metadata": "manifests and metadata files",
    "snapshot": "snapshots expired",
    "folded": "small manifests folded into one",
}
#: Counted, but nothing of them is removed by itself.
WITHOUT_BYTES: frozenset[Kind] = frozenset({"snapshot", "folded"})


@dataclass(slots=True, kw_only=True)
class Tally:
    """Objects and bytes by kind; those of WITHOUT_BYTES have none.

    waiting: seen, but not due yet. merged, merged_into: small files of the table, and what they became. unmerged: those
    left as they are because of others' delete files. missing: files that left the table because the store has them no
    more; missing_stay: those that could not, or not yet. lost: those that live segments need.
    """

    objects: Counter[Kind] = field(default_factory=Counter)
    bytes: Counter[Kind] = field(default_factory=Counter)
    waiting: int = 0
    merged: int = 0
    merged_into: int = 0
    unmerged: int = 0
    missing: int = 0
    missing_stay: int = 0
    lost: list[str] = field(default_factory=list)

    def add(self, kind: Kind, size: int) -> None:
        """One object of `size` bytes."""
        self.objects[kind] += 1
        self.bytes[kind] += size

    def lines(self) -> list[str]:
        """The report for a terminal: kinds with something in them, then what waits."""
        lines = [
            f"  {KINDS[kind]}: {self.objects[kind]}" + ("" if kind in WITHOUT_BYTES else f", {self.bytes[kind]} bytes")
            for kind in KINDS
            if self.objects[kind]
        ]
        if self.merged:
            lines.append(f"  small files merged: {self.merged} into {self.merged_into}")
        if self.unmerged:
            lines.append(
                f"  small files not merged: {self.unmerged}, for their partitions have delete files of others, and the "
                "rows these delete would be back. Operations manual: `Engines`"
            )
        if self.missing:
            lines.append(f"  files of the table that are not in the store: {self.missing} taken out of it")
        if self.missing_stay:
            lines.append(
                f"  files of the table that are not in the store: {self.missing_stay} stay in it, for their rows would "
                "be lost, cannot come again yet, or were perhaps deleted by others; scans fail. Operations manual: `A "
                "catalog restored from a backup`"
            )
        if self.lost:
            lines.append(
                f"  data files that live segments need are lost: {len(self.lost)}, first {self.lost[0]}; scans and "
                "fetches fail there. Operations manual: `Segments that the store has lost`"
            )
        if self.waiting:
            lines.append(f"  not due yet: {self.waiting} objects")
        return lines or ["  nothing to do"]
