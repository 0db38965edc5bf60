"""Rows with the columns and nested fields that their table has."""

from __future__ import annotations

from typing import Any

from repartition.run.by_name import as_type
from repartition.run.changes import KEPT, STEP
from repartition.run.envelope import DELETED


def conformed(session: Any, rows: Any, table: str) -> Any:
    """The rows, for a write to `table`: what it has and they have not is null, columns that it has not are left out.

    A column whose type is the table's goes as it is.

    Args:
        session: Spark's.
        rows: a frame; DELETED, STEP and KEPT stay.
        table: or a branch of it, quoted, already brought to the rows' columns.
    """
    from pyspark.sql import functions

    given = {f.name: f.dataType for f in rows.schema.fields}
    told = []
    for field in session.table(table).schema.fields:
        column = functions.col(f"`{field.name}`")
        made = as_type(column, given.get(field.name), field.dataType, lossy=False)
        told.append(column if made is column else made.alias(field.name))
    return rows.select(*told, *(functions.col(name) for name in (DELETED, STEP, KEPT) if name in given))
