"""What adds rows below the frontier is refused while the table's head holds what others did there.

An undelete and a requeue add rows of segments that the table has passed. Which of them are there is known of our own
files alone: an engine's rewrite may have every one of them in files of its own, and a row that its DELETE took away on
purpose looks like one that is missing. And what came in on top of others' commits is gone again once somebody puts the
table back to before them, which is the cure. So that comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyiceberg.catalog import Catalog

from iceberg_catalog.commit.foreign import foreign_commits
from iceberg_catalog.commit.foreign_files import concerning, foreign_files
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.errors import CatalogError
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.segments.known import KnownSegment, owner_of
from rsm_bridge.tables.context import TableContext
from rsm_bridge.words import plural


def refuse_beside_engines(head: Head, partitions: Collection[int]) -> None:
    """To be asked of the head that rows of these partitions are about to be added to.

    Raises:
        BridgeError: `bad_request`: others have committed to the table since a snapshot that it can be put back to; or
            nothing tells of that any more, and files of theirs may concern these partitions.
        CatalogError: a manifest cannot be read.
    """
    name = ".".join(head.table.name())
    again = "What is to stay of what the engine did, it does again after that. Operations manual: `Engines`"
    if (found := foreign_commits(head.table)) is not None:
        done = ", ".join(found.operations) or "snapshots that have expired"
        raise BridgeError(
            "bad_request",
            f"others committed {done} to table {name} after snapshot {found.since}: rows that are added now could be "
            "in it twice, or be ones that were deleted there on purpose. Nothing was added. First put the table back "
            f"with an engine's rollback_to_snapshot to {found.since}, then run this again. {again}",
        )
    theirs = foreign_files(head) if head.foreign else ()
    mine = {file.path: file for number in partitions for file in concerning(theirs, number)}
    if not mine:
        return
    deletes = sum(file.deletes for file in mine.values())
    data = len(mine) - deletes
    kinds = [plural(data, "data file")] * bool(data) + [plural(deletes, "delete file")] * bool(deletes)
    raise BridgeError(
        "bad_request",
        f"table {name} has {' and '.join(kinds)} of others in these partitions, first {next(iter(mine))}, and no "
        "snapshot is named any more that it could be put back to: rows that are added now could be in it twice, or be "
        "ones that were deleted there on purpose. Nothing was added. Drop the table by an engine, without PURGE; the "
        f"bridge makes it anew from the store; then run this again. {again}",
    )


def refuse_table_beside_engines(catalog: Catalog, segments: Sequence[KnownSegment], context: TableContext) -> None:
    """The same before anything is changed, of the topic's table as it is now, for rows of these segments.

    A topic without a table has no rows of others. A table that cannot be read refuses nothing: whoever adds rows reads
    it again, and says so.

    Raises:
        BridgeError: as :func:`refuse_beside_engines`. CatalogError: `unavailable`. What else the catalog and the
            table's storage raise passes through.
    """
    if not segments:
        return
    try:
        table = context.table(catalog, owner_of(segments))
        head = None if table is None else LiveFiles().read(table)
        if head is not None:
            refuse_beside_engines(head, {known.key.partition for known in segments})
    except CatalogError as error:
        if error.kind == "unavailable":
            raise
