"""Rows of a typed table that did not decode: where they are, and what becomes of them under the present rules.

A dead letter has a text in `_kafka_error`. It is decoded from `_kafka_value` and `_kafka_key`, which it has as Kafka
wrote them. What it gains is never taken back: the row changes only if what failed then does not fail now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from converter.parquet.columns import ERROR, RAW_VALUE, VALUE, VALUE_SIZE
from converter.values.allowance import Allowance
from converter.values.model import error_codes
from converter.values.rows import as_written_now, made_in_pieces
from iceberg_catalog.commit.head import Head
from iceberg_catalog.commit.value_counts import values_by_file
from iceberg_catalog.plan.types import LiveFile
from rsm_bridge.storage.keys import stored_key
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.tables.publish.planned_files import TableChangedError
from rsm_bridge.tables.publish.rewritten import ObjectFile, rows_of_group
from rsm_bridge.values.layout import layout_of, plain_rows
from rsm_bridge.values.typed.table import OF_KEY, Given, Routes, TableColumns, TypedTable


@dataclass(slots=True)
class Look:
    """What decoding dead letters again came to, in rows.

    Attributes:
        decoded: have no error any more.
        gained: have other columns than before: those, and rows whose value decodes now and whose key does not.
        left: still have an error, by the code they would have now; by the old one where a part is not typed any more.
    """

    decoded: int = 0
    gained: int = 0
    left: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Revision:
    """Decodes dead letters again into one state of the table's columns.

    Attributes:
        typed: the topic's columns.
        columns: of the head; None: whatever the table would get, for a dry run.
    """

    typed: TypedTable
    columns: TableColumns | None

    def look(self, store: ObjectStore, key: str) -> Look:
        """What would become of the dead letters of one data file. Raises what :meth:`rows` raises, and the store."""
        found = Look()

        def again(rows: pa.RecordBatch, cells_max: int, allowance: Allowance) -> None:
            made, gained = self._again(rows, cells_max, allowance)
            now, before = made.column(ERROR), rows.column(ERROR)
            errors = cast(pa.StringArray, pc.if_else(pa.array(gained), now, pc.coalesce(now, before)))
            found.gained += int(gained.sum())
            found.decoded += errors.null_count
            found.left += error_codes(errors)

        allowance = Allowance()
        for rows in _dead_rows(store, key):
            schema = rows.schema if self.columns is None else self.columns.rows
            for _ in made_in_pieces(rows, schema, again, allowance):
                pass
        return found

    def rows(self, rows: pa.RecordBatch, cells_max: int, allowance: Allowance) -> pa.RecordBatch:
        """Rows of the table's columns, with those that decode now in place of what they were; the others as they are.

        Raises:
            TableChangedError: the table has got other columns than `columns`.
            ColumnsWaitError: registry or catalog do not answer in time.
            CellsExceededError: what decodes now takes more than `cells_max` cells; `allowance`, of the file, is to be
                given back.
        """
        dead = np.flatnonzero(_mask(rows.column(ERROR).is_valid()))
        if not len(dead):
            return rows
        made, gained = self._again(rows.take(pa.array(dead)), cells_max, allowance)
        order = np.arange(rows.num_rows)
        order[dead[gained]] = rows.num_rows + np.flatnonzero(gained)
        joined = pa.Table.from_batches([rows, made]).take(pa.array(order)).combine_chunks()
        (whole,) = joined.to_batches()
        return whole

    def _made(
        self, plain: pa.RecordBatch, given: Given, cells_max: int, allowance: Allowance
    ) -> tuple[Routes, pa.RecordBatch]:
        while True:
            routes = self.typed.routes(given) if self.columns is None else self.typed.routes_into(self.columns, given)
            if routes is None:
                raise TableChangedError
            made = routes.rows(plain, given, cells_max, allowance)
            if not self.typed.learned(given, made):
                return routes, made
            if self.columns is not None:
                raise TableChangedError

    def _again(self, dead: pa.RecordBatch, cells_max: int, allowance: Allowance) -> tuple[pa.RecordBatch, np.ndarray]:
        """Dead letters decoded under the present rules, and for which rows this is better than what they were."""
        plain = as_written_now(dead, plain_rows(layout_of(dead.schema)))
        given = self.typed.given(plain)
        routes, made = self._made(plain, given, cells_max, allowance)
        before = as_written_now(dead, routes.columns.rows)
        names = {part: set(kind.names) for part, kind in routes.columns.types.items()}
        # A part that has no typed columns by the present rule was not decoded again.
        kept = {name for part, own in names.items() if part not in given.parts for name in own}
        arrays = dict(zip(made.schema.names, made.columns, strict=True)) | {name: before.column(name) for name in kept}
        # Bytes that are in columns alone cannot be decoded again: those stand for the value, and had no error.
        alone = _mask(plain.column(VALUE_SIZE).is_valid()) & _mask(plain.column(RAW_VALUE).is_null())
        alone &= VALUE not in plain.schema.names
        of_key = _mask(pc.starts_with(before.column(ERROR), OF_KEY))
        error = made.column(ERROR)
        of_key_now = _mask(pc.fill_null(pc.starts_with(error, OF_KEY), fill_value=False))
        # A key that has its columns keeps them, whatever the present rule makes of it.
        had_key = np.zeros(len(of_key), dtype=bool)
        for name in names["key"]:
            had_key |= _mask(before.column(name).is_valid())
        keeps_key = of_key_now & had_key
        for own, rows in ((names["value"], alone), (names["key"], keeps_key)):
            arrays |= {name: _chosen(arrays[name], before.column(name), rows) for name in own}
        error = _chosen(error, pa.nulls(len(rows), pa.string()), keeps_key)
        arrays[ERROR] = error
        none = _mask(error.is_null())
        of_key_now &= ~keeps_key
        gained = np.where(of_key, none & ("key" in given.parts), (none | of_key_now) & ("value" in given.parts))
        return pa.RecordBatch.from_arrays([arrays[name] for name in made.schema.names], schema=made.schema), gained


def _chosen(values: pa.Array, others: pa.Array, which: np.ndarray) -> pa.Array:
    """The values, those of `others` where `which` says so."""
    if not which.any():
        return values
    places = np.arange(len(values)) + np.where(which, len(values), 0)
    return pa.concat_arrays([values, others]).take(pa.array(places))


def files_with_errors(store: ObjectStore, head: Head) -> list[LiveFile]:
    """Data files of a head that have dead letters, by partition and offset.

    Taken from the manifests' counts of `_kafka_error`; where they lack them, from the column.

    Raises:
        What the table's storage and the store raise.
    """
    found: list[LiveFile] = []
    for file, errors in values_by_file(head, ERROR):
        if errors is None:
            key = stored_key(store, file.path)
            errors = 0 if key is None else sum(rows.num_rows for rows in _dead_rows(store, key))
        if errors:
            found.append(file)
    return sorted(found, key=lambda file: (file.partition, file.first))


def _dead_rows(store: ObjectStore, key: str) -> Iterator[pa.RecordBatch]:
    """The rows of a data file that have an error, some of a row group in memory at a time; others are not read."""
    source = pq.ParquetFile(ObjectFile(store, key))
    if ERROR not in source.schema_arrow.names:
        return
    for number in range(source.num_row_groups):
        mask = source.read_row_group(number, columns=[ERROR]).column(ERROR).is_valid()
        if pc.any(mask).as_py():
            for rows in rows_of_group(source, number, key):
                yield rows.filter(rows.column(ERROR).is_valid())


def _mask(values: pa.Array) -> np.ndarray:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
