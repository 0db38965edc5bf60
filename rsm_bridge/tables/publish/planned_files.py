"""The data files a plan asks for: the segments' own as they are, derived ones written now.

Kept for as long as a run works on one head, so that planning again writes nothing twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from converter.index.model import StoredObject
from converter.values.allowance import Allowance
from converter.values.rows import TABLE
from iceberg_catalog.commit.head import Head
from iceberg_catalog.evolve.table import stamped_generation
from iceberg_catalog.plan.types import Derive, LiveFile, Trim, UseMain
from iceberg_catalog.tables.data_file import data_file, leaf_ids
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.intact import named, require_intact
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, read_footer, read_index
from rsm_bridge.tables.publish.restored_values import restored_values
from rsm_bridge.tables.publish.rewritten import Cut, ObjectFile, Shape, of_another, write_derived
from rsm_bridge.values.layout import layout_of
from rsm_bridge.values.registry.look_up_time import LookUpTime
from rsm_bridge.values.typed.copy import derived_rows
from rsm_bridge.values.typed.schemas import ColumnsWaitError
from rsm_bridge.values.typed.table import TableColumns, TypedTable


class NoColumnsYetError(Exception):
    """The rows of a pending segment cannot have their columns now. `key`: of its index; the message says why."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class TableChangedError(Exception):
    """The table has got other columns since its head was read: start again from the head."""


@dataclass(slots=True, kw_only=True)
class PlannedFiles:
    """Files for one head.

    Attributes:
        segments: by index key; what the plan was made from.
        typed: the columns of the topic's values; None where it has none.
        generation: of this bridge's rules.
        look_up_seconds: that schemas may be looked up for while one file is written.
        now: the id of the table's present schema, asked of the catalog.
    """

    store: ObjectStore
    head: Head
    topic_id: bytes
    segments: Mapping[str, KnownSegment]
    typed: TypedTable | None
    generation: int
    look_up_seconds: float = math.inf
    now: Callable[[], int]
    _columns: TableColumns = field(init=False)
    _ids: frozenset[int] = field(init=False)
    _merged_for_another: dict[str, bool] = field(default_factory=dict)
    _intact: set[str] = field(default_factory=set)
    _made: dict[tuple[int, UseMain | Derive], list[DataFile]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._columns = TableColumns.of(self.head.table)
        self._ids = frozenset(leaf_ids(self._columns.rows))

    def added(self, partition: int, piece: UseMain | Derive) -> list[DataFile]:
        """The files of one piece of a plan; none where the rows asked for are not there.

        Raises:
            NoColumnsYetError: of a pending segment that cannot have its columns now.
            TableChangedError: a file has columns that came after the head was read.
            BridgeError, CatalogError, SegmentError: and what the store raises.
        """
        made = self._made.get((partition, piece))
        if made is None:
            made = self._own(partition, piece) if isinstance(piece, UseMain) else self._derived(partition, piece)
            self._made[partition, piece] = made
        return made

    def trimmed(self, partition: int, file: LiveFile, trim: Trim) -> list[DataFile]:
        """Derived files with the rows of `file` that stay. Raises what `added` raises."""
        key = self.store.key(file.path)
        if key is None:
            raise BridgeError("internal", f"{file.path} lies outside of the store")
        return [
            made
            for first, last in trim.kept(file)
            for made in self._write(partition, [Cut(data_key=key, first=first, last=last)], None)
        ]

    def _own(self, partition: int, piece: UseMain) -> list[DataFile]:
        known = self.segments[piece.segment_id]
        stored = known.tail if piece.tail else known.data
        if stored is None:
            raise BridgeError("internal", f"the plan wants rows of {piece.segment_id}, which has none")
        footer = read_footer(self.store, known, tail=piece.tail)
        file = None if known.segment is None else known.segment.tail if piece.tail else known.segment.main
        if file is not None and self._lacks_columns(footer):
            cut = self._cut(known, stored, file.first, file.last, pending=True)
            return self._write(partition, [cut], piece.segment_id)
        return [data_file(self.head.table, self.store.uri(stored.key), stored.size, footer, partition)]

    def _lacks_columns(self, footer: pq.FileMetaData) -> bool:
        """Whether a segment's own file has no columns for its values, or was made for another table or rule."""
        if self._made_for_another(footer):
            return True
        if TABLE in (footer.metadata or {}) or TABLE not in (self._columns.rows.metadata or {}):
            return False
        return self.typed is not None or self._rules_are_older()

    def _rules_are_older(self) -> bool:
        """Whether newer rules gave the table columns that this bridge knows nothing of."""
        return TABLE in (self._columns.rows.metadata or {}) and stamped_generation(self.head.table) > self.generation

    def _made_for_another(self, footer: pq.FileMetaData) -> bool:
        """Whether a file has columns of a table that is gone, or the layout of a rule that is not the table's.

        Raises:
            TableChangedError: it has columns that came after the head was read.
        """
        columns, rows = self._columns, footer.schema.to_arrow_schema()
        if of_another(footer, columns.rows) or layout_of(rows) != columns.value_format:
            return True
        if self._ids.issuperset(leaf_ids(rows)):
            return False
        if self.now() != self.head.table.metadata.current_schema_id:
            raise TableChangedError
        return True  # of a later state of the table than the one that was restored

    def _derived(self, partition: int, piece: Derive) -> list[DataFile]:
        cuts: list[Cut] = []
        pending: str | None = None
        for segment_id, first, last in piece.ranges:
            known = self.segments[segment_id]
            if known.data is not None and known.segment is not None:
                between = known.rows_between(first, last)
                waits = known.pending is not None or self._waits(known, between)
                cuts.extend(self._cut(known, stored, start, end, pending=waits) for stored, start, end in between)
                pending = segment_id if waits else pending
        return self._write(partition, cuts, pending) if cuts else []

    def _cut(self, known: KnownSegment, stored: StoredObject, first: int, last: int, *, pending: bool) -> Cut:
        # Nothing proves a derived file afterwards: other bytes, or another file's, would stay in the table.
        if stored.key not in self._intact:
            require_intact(self.store, stored)
            self._intact.add(stored.key)
        values = restored_values(read_index(self.store, known)) if pending and known.proven else None
        main = None if known.segment is None else known.segment.main
        before = main.rows if main is not None and stored == known.tail else 0
        return Cut(data_key=stored.key, first=first, last=last, pending=pending, values=values, first_row=before)

    def _waits(self, known: KnownSegment, between: Sequence[tuple[StoredObject, int, int]]) -> bool:
        """Whether one of a segment's own files lacks columns; a merged file has what its table had."""
        if known.shares:
            return any(self._merged_is_of_another(stored.key) for stored, _, _ in between)
        return any(
            self._lacks_columns(read_footer(self.store, known, tail=stored == known.tail)) for stored, _, _ in between
        )

    def _merged_is_of_another(self, key: str) -> bool:
        """Of a file that many segments share; none of their indexes has its footer."""
        if key not in self._merged_for_another:
            with named(key):
                footer = pq.read_metadata(ObjectFile(self.store, key))
            self._merged_for_another[key] = self._made_for_another(footer)
        return self._merged_for_another[key]

    def _write(self, partition: int, cuts: list[Cut], pending: str | None) -> list[DataFile]:
        try:
            written = write_derived(
                self.store,
                cuts,
                self._shape(pending is not None),
                topic_id=self.topic_id,
                partition=partition,
                table_uuid=self.head.table.metadata.table_uuid,
                head_snapshot=self.head.snapshot_id,
            )
        except ColumnsWaitError as error:
            raise NoColumnsYetError(pending or cuts[0].data_key, str(error)) from error
        if written is None:
            return []
        uri = self.store.uri(written.key)
        return [data_file(self.head.table, uri, written.size, written.footer, partition)]

    def _shape(self, pending: bool) -> Shape:
        columns, typed = self._columns, self.typed
        if pending and typed is None and self._rules_are_older():
            newer = stamped_generation(self.head.table)
            raise ColumnsWaitError(
                f"rules of generation {newer} gave the table columns, this bridge's are of generation "
                f"{self.generation}: restart it with the newer rules"
            )
        if not pending or typed is None:
            return Shape(schema=columns.rows, value_format=columns.value_format)

        look_ups = LookUpTime(self.look_up_seconds)

        def decoded(rows: pa.RecordBatch, cells_max: int, allowance: Allowance) -> pa.RecordBatch:
            with look_ups.of_this_thread():
                made = derived_rows(typed, columns, rows, cells_max, allowance)
            if made is None:
                raise TableChangedError
            return made

        return Shape(schema=columns.rows, value_format=columns.value_format, typed=decoded, large=typed.large)
