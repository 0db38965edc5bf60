"""Rows with the columns that their table has."""

from __future__ import annotations

from typing import Any

from repartition.changes import DELETED, STEP


def conformed(session: Any, rows: Any, table: str) -> Any:
    """The rows, for a write to `table`: columns that it has and they have not are null, what it has not is left out.

    Args:
        session: Spark's.
        rows: a frame; DELETED and STEP stay.
        table: or a branch of it, quoted, already brought to the rows' columns.
    """
    from pyspark.sql import functions

    given = set(rows.columns)
    told = [
        functions.col(f"`{f.name}`") if f.name in given else functions.lit(None).cast(f.dataType).alias(f.name)
        for f in session.table(table).schema.fields
    ]
    return rows.select(*told, *(functions.col(name) for name in (DELETED, STEP) if name in given))
