"""State objects of one table: put before the commit that names one, deleted when no kept snapshot names it.

Each attempt to commit puts its own object, so that nobody's commit can come to rely on one that is about to go. What
was listed before our commit was sent and is named by no snapshot after it landed can never be named any more: an
attempt that put it was planned on a head that has passed, and its swap fails (iceberg_catalog/commit/commit.py). That
holds for any number of bridges and needs no clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table

from iceberg_catalog import failpoints
from iceberg_catalog.commit.head import Head, recorded_states
from iceberg_catalog.commit.state import StateRef, decode_state, encode_state
from iceberg_catalog.plan.types import PartState
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import STATE_SWEEP_COMMITS
from rsm_bridge.storage.keys import state_key, state_prefix
from rsm_bridge.storage.object_store import ObjectStore


def recorded_parts(store: ObjectStore, head: Head) -> dict[int, PartState]:
    """The state recorded with a head, by partition.

    Raises:
        BridgeError, CatalogError: it cannot be read.
    """
    return {} if head.state is None else decode_state(store.read(head.state.key).data, head.state.sha256)


@dataclass(slots=True)
class StateObjects:
    """Writes and sweeps the state objects of one table; one thread at a time."""

    store: ObjectStore
    _commits: int = field(default=0, init=False)

    def put(self, table: Table, states: Mapping[int, PartState], commit_id: str) -> StateRef:
        """Makes a state durable under a key that no other attempt uses.

        Raises:
            CatalogError: `corrupt_state` when it is too large to be read again.
            StoreError: the store did not take it.
        """
        data, sha256 = encode_state(states)
        reference = StateRef(state_key(table.metadata.table_uuid, sha256, commit_id), sha256)
        failpoints.hit("before-state", ".".join(table.name()))
        self.store.put_if_absent(reference.key, data)
        return reference

    def before_commit(self, table: Table) -> list[str]:
        """What a sweep after the coming commit may look at; usually nothing, since a listing costs a request."""
        if self._commits % STATE_SWEEP_COMMITS:
            return []
        return [listed.key for listed in self.store.list_after(state_prefix(table.metadata.table_uuid))]

    def after_commit(self, table: Table, listed: list[str]) -> int:
        """Deletes of `listed` what no snapshot of the committed table names; returns how many.

        A failure is left to a later sweep: the commit stands.
        """
        self._commits += 1
        named = {reference.key for reference in recorded_states(table)}
        unnamed = [key for key in listed if key not in named]
        if unnamed:
            failpoints.hit("state-sweep", ".".join(table.name()))
        with contextlib.suppress(BridgeError):
            self.store.delete_many(unnamed)
        return len(unnamed)
