"""From where the table would go on if it were rolled back: the states that its listed snapshots record.

Anybody may make any listed snapshot the head again, one that a tag or branch names for as long as it does. The plan
then goes on from the state of that one, and what it needs must be in the store still (rules.needed_after_rollback).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table

from iceberg_catalog.commit.head import Head, recorded_state
from iceberg_catalog.commit.state import StateRef, decode_state
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.types import PartState
from rsm_bridge.errors import ObjectNotFoundError
from rsm_bridge.storage.object_store import ObjectStore

States = Mapping[int, PartState]


@dataclass(slots=True)
class ListedStates:
    """Reads the states of one table's snapshots, each once; one thread at a time."""

    store: ObjectStore
    _read: dict[StateRef, States] = field(default_factory=dict)

    def read(self, head: Head, states: States) -> list[States]:
        """By partition, the different states of all snapshots of `head.table`; `states` is the head's own.

        Where nobody can tell what a snapshot had taken in (no state is recorded, or it is gone or damaged), nothing
        counts as taken in.

        Raises:
            StoreError: the store is away.
        """
        wanted = _recorded(head.table)
        known = {ref: found for ref, found in self._read.items() if ref in wanted}
        if head.state is not None:
            known[head.state] = states
        shared = {part: part for found in known.values() for part in found.values()}
        for ref in wanted - known.keys() - {None}:
            if ref is not None and (found := self._decoded(ref)) is not None:
                # Two states in a row differ in few partitions, and hundreds of them are equal.
                known[ref] = {number: shared.setdefault(part, part) for number, part in found.items()}
        self._read = known
        return [known.get(ref, {}) if ref is not None else {} for ref in wanted]

    def _decoded(self, ref: StateRef) -> States | None:
        try:
            return decode_state(self.store.read(ref.key).data, ref.sha256)
        except (ObjectNotFoundError, CatalogError):
            return None


def _recorded(table: Table) -> set[StateRef | None]:
    return {recorded_state(table, snapshot) for snapshot in table.metadata.snapshots}
