"""The table of a projection: who it belongs to, how far it has read, and how one run's commits become visible at once.

A run writes to a branch of its own, begun at the table's head, and then moves `main` there. The catalog refuses that
when `main` has moved meanwhile, so of two jobs at once one wins and the other starts over, and what a killed job left
on its branch was never visible.

The frontier is a property of the snapshots that a run writes. Compaction and others' commits come in the snapshots
after; it is that of the newest ancestor of `main` that has one. Where expiry has cut the ancestry, it is that of the
tag :data:`TAG`, which keeps the run's own snapshot from expiring, and is moved by the same commit as `main`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from converter.parquet import columns
from iceberg_catalog.commit.ancestors import ancestors
from iceberg_catalog.tables.names import Owner
from repartition.errors import RepartitionError, first_line
from repartition.run.frontier import FRONTIER, Frontier, Position, decode_frontier
from repartition.spark.internals import branch_to_main

TAG: Final = "tierberg_frontier"
BRANCH: Final = "tierberg_run_"
#: In Iceberg's refusal to move `main` to a branch that does not come from it.
_CUT_OFF: Final = "is not an ancestor of"
PROJECTION_TOPIC: Final = "tierberg.copy.topic"
PROJECTION_TOPIC_ID: Final = "tierberg.copy.topic-id"
PROJECTION_KIND: Final = "tierberg.copy.kind"  # append, upsert, dead-letters


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the head of a projection says.

    Attributes:
        snapshot_id: of the head; None: the table has no snapshot yet.
        told_by: the snapshot that says how far it has read; None: the tag's, or none.
        frontier: how far it has read.
    """

    snapshot_id: int | None
    told_by: int | None
    frontier: Frontier


def owner_stamp(owner: Owner, kind: str) -> dict[str, str]:
    """Table properties that say whose projection it is."""
    return {PROJECTION_TOPIC: owner.topic, PROJECTION_TOPIC_ID: owner.topic_id.hex(), PROJECTION_KIND: kind}


def load_projection(catalog: Catalog, name: tuple[str, ...], owner: Owner, kind: str) -> Table | None:
    """The table, None if there is none.

    Raises:
        RepartitionError: `not_ours` if it is no projection of this topic id, or of another kind.
    """
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return None
    wanted = owner_stamp(owner, kind)
    found = {key: table.properties.get(key) for key in wanted}
    if found != wanted:
        raise RepartitionError(
            "not_ours",
            f"table {'.'.join(name)} is {found}, not {wanted}; choose another `table`, or drop it; one that you made "
            "yourself becomes the projection by `adopt`. A topic that was "
            "deleted and created again has other records under the same offsets, and needs a projection of its own",
        )
    return table


def recorded(table: Table, owner: Owner) -> Recorded:
    """How far the projection has read.

    Raises:
        RepartitionError: `no_frontier` if it has snapshots and none says it: never taken for the beginning.
    """
    head = table.current_snapshot()
    if head is None:
        return Recorded(None, None, Frontier(owner.topic_id))
    for current in ancestors(table.metadata, head.snapshot_id):
        text = _property(current)
        if text is not None:
            where = f"{'.'.join(table.name())}@{current.snapshot_id}"
            return Recorded(head.snapshot_id, current.snapshot_id, decode_frontier(text, where))
    return Recorded(head.snapshot_id, None, _tagged(table))


def _tagged(table: Table) -> Frontier:
    name = ".".join(table.name())
    tagged = table.metadata.refs.get(TAG)
    snapshot = None if tagged is None else table.metadata.snapshot_by_id(tagged.snapshot_id)
    text = None if snapshot is None else _property(snapshot)
    lost = "drop the table and let it be filled again: nothing in it says how far it has read"
    if table.properties.get(PROJECTION_KIND) != "upsert":
        lost = "`tierberg repartition TOPIC --repair` works it out from its rows"
    if text is None:
        raise RepartitionError(
            "no_frontier", f"table {name} has rows, but no snapshot says how far it has read; {lost}"
        )
    frontier = decode_frontier(text, f"{name}, tag {TAG}")
    beyond = table.scan(row_filter=_beyond(frontier), selected_fields=(columns.OFFSET,), limit=1)
    if beyond.to_arrow().num_rows:
        raise RepartitionError(
            "no_frontier", f"table {name}: the snapshots after tag {TAG} were expired with what they said; {lost}"
        )
    return frontier


def _beyond(frontier: Frontier) -> str:
    """Rows that who has read up to there has not seen, those of partitions that came later among them."""
    known = ", ".join(str(number) for number in (-1, *frontier.positions))
    further = (
        f"({columns.PARTITION} = {number} AND {columns.OFFSET} >= {position.next})"
        for number, position in frontier.positions.items()
    )
    return " OR ".join([f"{columns.PARTITION} NOT IN ({known})", *further])


def frontier_of_rows(session: Any, catalog: str, table: Table, owner: Owner) -> Recorded:
    """How far a table has read that has a row for each record, as its rows tell: in each partition behind the last one.

    What was read behind that has no rows, and is read again. Everything that the topic's table has taken back or added
    since it began counts as unseen.
    """
    head = table.metadata.current_snapshot_id
    name, partition = quoted(catalog, *table.name()), columns.PARTITION
    rows = session.sql(
        f"SELECT {partition}, max({columns.OFFSET}) + 1 AS next FROM {name} VERSION AS OF {head} GROUP BY {partition}"
    ).collect()
    return Recorded(head, None, Frontier(owner.topic_id, {row[0]: Position(next=row[1]) for row in rows}))


def keep_frontier(session: Any, catalog: str, table: Table, told_by: int) -> None:
    """Puts the tag on the snapshot that says how far the projection has read, unless it is there already."""
    tagged = table.metadata.refs.get(TAG)
    if tagged is None or tagged.snapshot_id != told_by:
        name = quoted(catalog, *table.name())
        session.sql(f"ALTER TABLE {name} CREATE OR REPLACE TAG `{TAG}` AS OF VERSION {told_by}")


def _property(snapshot: Snapshot) -> str | None:
    return snapshot.summary.additional_properties.get(FRONTIER) if snapshot.summary is not None else None


def quoted(*names: str) -> str:
    """An identifier for Spark's SQL."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def literal(text: str) -> str:
    """A text for Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextmanager
def staged(
    session: Any, catalog: str, name: tuple[str, ...], head: int | None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A branch begun at `head`, as a table to read and write, and what makes it `main`; it is gone afterwards.

    Args:
        session: Spark's.
        catalog: its name there.
        name: of the table, namespaces first.
        head: snapshot id the run was planned on; None: the table has none.

    Raises:
        RepartitionError: `raced` if the table had none and has a `main` now; by the second value, if `main` is not at
            `head` any more. Other errors of Spark and the catalog pass.
    """
    table = quoted(catalog, *name)
    ref = f"{BRANCH}{int(time.time() * 1000)}_{uuid.uuid4().hex[:8]}"
    begin = "" if head is None else f" AS OF VERSION {head}"
    session.sql(f"ALTER TABLE {table} CREATE BRANCH `{ref}`{begin}")

    def publish() -> None:
        try:
            branch_to_main(session, table, ref, TAG, FRONTIER)
        except Exception as error:
            # Who expires all but the newest snapshots takes those that tie the branch's end to `main`.
            if main() == head and _CUT_OFF not in str(error):
                raise  # the catalog is away, or does not let us: nobody was faster
            raise RepartitionError("raced", f"{'.'.join(name)} has moved on meanwhile: {first_line(error)}") from error

    def main() -> int | None:
        found = session.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").collect()
        return int(found[0][0]) if found else None

    try:
        # Made from nothing, or from what another job has published meanwhile, whose rows would come once more.
        if head is None and main() is not None:
            raise RepartitionError("raced", f"{'.'.join(name)} has got its first rows meanwhile")
        yield f"{table}.`branch_{ref}`", publish
    finally:
        session.sql(f"ALTER TABLE {table} DROP BRANCH IF EXISTS `{ref}`")


def run_branches(metadata: TableMetadata, before_ms: int) -> list[str]:
    """Branches of runs that began before then, milliseconds since the epoch: those that are alive are younger."""
    began = {name: name.removeprefix(BRANCH).partition("_")[0] for name in metadata.refs if name.startswith(BRANCH)}
    return [name for name, text in began.items() if text.isdecimal() and int(text) < before_ms]
