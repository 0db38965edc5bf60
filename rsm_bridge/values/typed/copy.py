"""Columns for the rows of one copy, as long as schema, table and budget are there.

The first rows decide what the data file has: all columns of the table as it is then, or Kafka's alone. From the first
value on that cannot have its columns the copy is pending: the rest gets none, and the table takes the rows from a
derived file. Kafka never notices.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from converter.parquet.columns import ERROR
from converter.segment.writer import TypedPiece
from converter.types import LargeWork
from converter.values.allowance import Allowance
from converter.values.model import error_codes
from converter.values.proof.prover import ValueProver
from converter.values.rows import as_written_now, made_in_pieces, typed_rows
from rsm_bridge.values.layout import plain_rows
from rsm_bridge.values.typed.cpu_budget import CpuBudget
from rsm_bridge.values.typed.schemas import ColumnsWaitError
from rsm_bridge.values.typed.table import TableColumns, TypedTable

T = TypeVar("T")
_OTHER_LAYOUT = "the table was made for other values than the topic's rule now names"
_NEW_COLUMNS = "a schema, or a type, appeared in the middle of the segment and needs columns that its data file has not"


@dataclass(slots=True, kw_only=True)
class TypedCopy:
    """See rsm_bridge.serving.copy.attempt.ValueColumns.

    Attributes:
        budget: CPU seconds that decoding may take; None: as much as it does.
        prover: takes the bytes from values that their columns give back; None: all keep them.
        large: entered while a single row is decoded that takes more memory than a piece of rows may.
        failed: rows that did not decode, by code.
        allowance: of data file and tail together.
    """

    table: TypedTable
    budget: CpuBudget | None = None
    prover: ValueProver | None = None
    large: LargeWork = field(default=nullcontext)
    pending: str | None = None
    failed: Counter[str] = field(default_factory=Counter)
    allowance: Allowance = field(default_factory=Allowance)
    _columns: TableColumns | None = None
    _begun: bool = False

    @property
    def proven(self) -> bool:
        """Whether values may be in their columns alone."""
        return self.prover is not None

    @property
    def encodings(self) -> bytes:
        """How values that are become bytes again: Directory.proven."""
        return b"" if self.prover is None or self._columns is None else self.prover.packed(self._columns.rows)

    def in_turn(self, large: LargeWork) -> None:
        """See ValueColumns."""
        self.large = large

    def rows(self, rows: pa.RecordBatch) -> Iterator[TypedPiece]:
        """Rows with value columns, or with null ones when pending; Kafka's alone when the copy began so."""
        if not self._begun:
            self._begun = True
            self._spend(self._begin, rows)
        schema = plain_rows(self.table.value_format) if self._columns is None else self._columns.rows

        def made(piece: pa.RecordBatch, cells_max: int, allowance: Allowance) -> TypedPiece:
            typed = self._spend(lambda rows: self._with_columns(rows, cells_max, allowance), piece)
            return TypedPiece(typed_rows(piece, schema, {}, None)) if typed is None else typed

        yield from made_in_pieces(rows, schema, made, self.allowance, self.large)

    def _spend(self, work: Callable[[pa.RecordBatch], T], rows: pa.RecordBatch) -> T | None:
        """What the work gives; None where the copy is pending, or becomes so."""
        if self.pending is None and self.budget is not None and not self.budget.left:
            self.pending = "decode_budget is used up"
        if self.pending is not None:
            return None
        started = time.thread_time()
        try:
            return work(rows)
        except ColumnsWaitError as error:
            self.pending = str(error)
            return None
        finally:
            if self.budget is not None:
                self.budget.spend(time.thread_time() - started)

    def _begin(self, rows: pa.RecordBatch) -> None:
        """Decides what columns the data file has."""
        given = self.table.applying(self.table.given(rows))
        columns = self.table.routes(given).columns if given.parts else None
        if columns is not None and columns.value_format != self.table.value_format:
            raise ColumnsWaitError(_OTHER_LAYOUT)
        self._columns = columns

    def _with_columns(self, rows: pa.RecordBatch, cells_max: int, allowance: Allowance) -> TypedPiece | None:
        given = self.table.applying(self.table.given(rows))
        if self._columns is None:
            if given.parts:
                self.pending = _NEW_COLUMNS
            return None
        routes = self.table.routes_into(self._columns, given)
        if routes is None:
            self.pending = _NEW_COLUMNS
            return None
        made = routes.rows(rows, given, cells_max, allowance)
        if self.table.learned(given, made):
            self.pending = _NEW_COLUMNS
            return None
        self.failed += error_codes(made.column(ERROR))
        if self.prover is None or "value" not in given.parts:
            return TypedPiece(made)
        of_value = {writer: route for (part, writer), route in routes.of.items() if part == "value"}
        return TypedPiece(*self.prover.prove(made, given.parts["value"], of_value, routes.columns.types["value"]))


def derived_rows(
    table: TypedTable, columns: TableColumns, rows: pa.RecordBatch, cells_max: int, allowance: Allowance
) -> pa.RecordBatch | None:
    """Rows of a pending file with their columns; None: the table has got other columns meanwhile.

    Raises:
        CellsExceededError: they take more than `cells_max` cells; `allowance`, of their file, is to be given back.
        ColumnsWaitError: schema or table cannot be had now.
    """
    plain = as_written_now(rows, plain_rows(columns.value_format))
    given = table.applying(table.given(plain), columns)
    if not given.parts:
        return typed_rows(plain, columns.rows, {}, None)
    routes = table.routes_into(columns, given)
    if routes is None:
        return None
    made = routes.rows(plain, given, cells_max, allowance)
    return None if table.learned(given, made) else made
