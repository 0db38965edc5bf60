"""Columns for the rows of one copy, as long as schema, table and budget are there.

The first rows decide what the data file has: all columns of the table as it is then, or Kafka's alone. From the first
value on that cannot have its columns the copy is pending: the rest gets none, and the table takes the rows from a
derived file. Kafka never notices.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa

from converter.columns import ERROR, row_schema
from converter.values.rows import as_written_now, typed_rows
from iceberg_catalog.schema import expected_field_ids
from rsm_bridge.cpu_budget import CpuBudget
from rsm_bridge.typed_table import Given, Routes, TableColumns, TypedTable
from rsm_bridge.value_schemas import ColumnsWaitError

RAW_ROWS = row_schema("raw", expected_field_ids("raw"))
_NEW_COLUMNS = "a schema appeared in the middle of the segment and needs columns that its data file has not"


@dataclass(slots=True)
class TypedCopy:
    """See rsm_bridge.copy_worker.ValueColumns.

    Attributes:
        budget: CPU seconds that decoding may take; None: as much as it does.
        failed: rows that did not decode.
    """

    table: TypedTable
    budget: CpuBudget | None = None
    pending: str | None = None
    failed: int = 0
    _columns: TableColumns | None = None
    _begun: bool = False

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with value columns, or with null ones when pending; Kafka's alone when the copy began so."""
        started = time.thread_time()
        made = None if self.pending is not None else self._with_columns(rows)
        self._begun = True
        if self.budget is not None:
            self.budget.spend(time.thread_time() - started)
        if made is not None:
            return made
        if self._columns is None:
            return pa.RecordBatch.from_arrays(rows.columns, schema=RAW_ROWS)
        return typed_rows(rows, self._columns.rows, {}, None)

    def _with_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """None: they have none; `pending` says why, unless the rule leaves it open and nothing has a schema."""
        if self.budget is not None and not self.budget.left:
            self.pending = "decode_budget is used up"
            return None
        try:
            given = self.table.given(rows)
            if self._columns is None and not self.table.applies(given):
                return None
            routes = self._routes(given)
        except ColumnsWaitError as error:
            self.pending = str(error)
            return None
        if routes is None:
            self.pending = _NEW_COLUMNS
            return None
        made = routes.rows(rows, given)
        errors = made.column(ERROR)
        self.failed += len(errors) - errors.null_count
        return made

    def _routes(self, given: Given) -> Routes | None:
        if self._columns is not None:
            return self.table.routes_into(self._columns, given)
        if self._begun:
            return None
        routes = self.table.routes(given)
        self._columns = routes.columns
        return routes


def derived_rows(table: TypedTable, columns: TableColumns, rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """Rows of a pending file with their columns; None: the table has got other columns meanwhile.

    Raises:
        ColumnsWaitError: schema or table cannot be had now.
    """
    plain = as_written_now(rows, RAW_ROWS)
    given = table.given(plain)
    if not table.applies(given):
        return typed_rows(plain, columns.rows, {}, None)
    routes = table.routes_into(columns, given)
    return None if routes is None else routes.rows(plain, given)
