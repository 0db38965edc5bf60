"""What an undelete finds before it changes anything: rows that are away though their index is back, rows it would lose.

An index that was turned and whose rows are not in the table is left by an undelete that died, whose commit was refused,
or that a rollback took out of the table again; or retention has passed it since. The next undelete takes it along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.types import LiveFile, PartState
from rsm_bridge.errors import BridgeError, ObjectNotFoundError
from rsm_bridge.storage.listed_keys import confirm_gone
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, segments_by_partition
from rsm_bridge.storage.segments.undelete_record import Undeleted
from rsm_bridge.storage.state_objects import recorded_parts
from rsm_bridge.tables.context import TableContext


@dataclass(frozen=True, slots=True)
class Seen:
    """Live files and recorded state of the table; empty without one, or of one that nobody can read."""

    files: Sequence[LiveFile] = ()
    states: Mapping[int, PartState] = field(default_factory=dict)


def seen_before(store: ObjectStore, catalog: Catalog, segments: Sequence[KnownSegment], context: TableContext) -> Seen:
    """The table as it is.

    Raises:
        CatalogError: `unavailable`. What else catalog and storage raise when they are away passes through.
    """
    try:
        for owner in dict.fromkeys(known.owner for known in segments):
            table = context.table(catalog, owner)
            if table is not None:
                head = LiveFiles().read(table)
                return Seen(head.files, recorded_parts(store, head))
    except CatalogError as error:
        if error.kind == "unavailable":
            raise
    except ObjectNotFoundError as error:
        confirm_gone(store, [error.key])
    return Seen()


def turned_before(segments: Iterable[KnownSegment], record: Undeleted, seen: Seen) -> list[KnownSegment]:
    """Live segments that an undelete had brought back, below the floor and without rows in the table."""
    below = record.below(seen.states)
    return [known for known in segments if known.live and known.listed.key in below and rows_away(known, seen.files)]


def rows_away(known: KnownSegment, files: Iterable[LiveFile]) -> bool:
    """Whether a segment has rows, and no live file of the table has offsets of it."""
    key = known.key
    return bool(known.data_files()) and not any(
        file.partition == key.partition and file.first <= key.last and file.last >= key.base for file in files
    )


def refuse_loss(
    live: Iterable[KnownSegment], turning: Iterable[KnownSegment], lowest: Mapping[int, int], seen: Seen
) -> None:
    """Foresees whether going back to `lowest` would lose rows.

    Args:
        live: all segments; those that are deleted do not count.
        turning: deleted ones that are about to come back.
        lowest: by partition.
        seen: the table.

    Raises:
        BridgeError: `bad_request`, as the run itself would when indexes are turned already.
    """
    groups = segments_by_partition(
        [*(known for known in live if known.live), *(known for known in turning if not leaving(known))]
    )
    for item in seen.files:
        offset = lowest.get(item.partition)
        if offset is not None and item.first >= offset and not covered(item.first, item.last, groups[item.partition]):
            raise would_lose(item, offset)


def leaving(known: KnownSegment) -> bool:
    """Whether its objects are being removed."""
    return known.deletion is not None and known.deletion.reclaiming


def would_lose(item: LiveFile, offset: int) -> BridgeError:
    """The refusal for the sake of one file."""
    return BridgeError(
        "bad_request",
        f"partition {item.partition}: the table has offsets {item.first} to {item.last}, which no segment in the store "
        f"has any more; they would be lost by going back to offset {offset}",
    )


def covered(first: int, last: int, segments: Iterable[KnownSegment]) -> bool:
    """Whether segments together hold every offset of [first, last]."""
    at = first
    for known in sorted(segments, key=lambda item: item.key.base):
        if known.key.base <= at:
            at = max(at, known.key.last + 1)
    return at > last
