"""The topic's table as one run reads it: one snapshot, pinned, with the state recorded for it.

Never an incremental scan: retention, rewinds and merges make delete and overwrite snapshots, over which incremental
reads lose rows or fail. A pinned snapshot and a range of offsets survive all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.commit.state import decode_state
from iceberg_catalog.plan.types import LiveFile, PartState
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import is_owner, owned_tables
from repartition.errors import RepartitionError
from rsm_bridge.storage.backend import Backend
from rsm_bridge.storage.segments.topic_segments import several


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """One snapshot of a topic's table; `snapshot_id` is None while it has none, and then there is nothing to read."""

    owner: Owner
    table: Table
    snapshot_id: int | None
    states: Mapping[int, PartState]
    files: tuple[LiveFile, ...]


@dataclass(slots=True)
class Source:
    """A topic's table. Keep one per table: manifests are read once. Not for several threads."""

    backend: Backend
    owner: Owner
    name: tuple[str, ...]
    _live: LiveFiles = field(default_factory=LiveFiles, init=False)

    def own(self) -> Source:
        """The same, for another thread."""
        return Source(self.backend, self.owner, self.name)

    def pin(self) -> Pinned:
        """Its head.

        Raises:
            RepartitionError: `no_source` if the table is gone, or another topic's by now.
            CatalogError, BridgeError: head or state cannot be read; what the catalog raises passes through.
        """
        table = self._loaded()
        if table is None or not is_owner(table, self.owner):
            raise RepartitionError(
                "no_source",
                f"table {'.'.join(self.name)} of topic {self.owner.topic}, id {self.owner.topic_id.hex()}, is gone. "
                "Its projections stay as they are; a topic that was created again needs projections of its own",
            )
        head = self._live.read(table)
        states: dict[int, PartState] = {}
        if head.state is not None:
            states = decode_state(self.backend.store.read(head.state.key).data, head.state.sha256)
        return Pinned(owner=self.owner, table=table, snapshot_id=head.snapshot_id, states=states, files=head.files)

    def has(self, snapshot_id: int) -> bool:
        """Whether a snapshot is there still: its files are, as long as it is."""
        table = self._loaded()
        return table is not None and table.snapshot_by_id(snapshot_id) is not None

    def _loaded(self) -> Table | None:
        try:
            return self.backend.catalog.load_table(self.name)
        except NoSuchTableError:
            return None


def find_sources(backend: Backend) -> list[Source]:
    """Every topic's table in the catalog, by topic."""
    found = owned_tables(backend.catalog, namespace=backend.namespace)
    return sorted(
        (Source(backend, owner, tuple(table.name())) for table, owner in found),
        key=lambda source: (source.owner.topic, source.owner.topic_id),
    )


def find_source(backend: Backend, topic: str, topic_id: str | None = None) -> Source:
    """The table of one topic.

    Args:
        backend: store and catalog.
        topic: its name.
        topic_id: which one, 32 hex digits, when a topic was created again; None: the only one.

    Raises:
        RepartitionError: `no_source` when there is none, or several.
    """
    named = [source for source in find_sources(backend) if source.owner.topic == topic]
    found = [source for source in named if topic_id in (None, source.owner.topic_id.hex())]
    if not found:
        said = f"topic {topic} has no table in {backend.namespace}: nothing was tiered yet, or it was dropped"
        raise RepartitionError("no_source", said)
    if len(found) > 1:
        raise RepartitionError("no_source", several(topic, [source.owner for source in found]))
    return found[0]
