"""A table's DataFile entry from the Parquet footer, without reading the file.

Statistics follow the table's `write.metadata.metrics.*` properties, but for the columns by whose bounds files are known
for ours, and for values that are no mode. Bounds come from the footer's raw values: going
through Python's datetime would fail on timestamps after the year 9999, which Kafka allows. A column whose footer lacks
minimum and maximum in some row group with values (Parquet leaves out values over 4 KiB) has no bounds at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector, compute_statistics_plan, match_metrics_mode
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DecimalType, StringType
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string

from converter.parquet import columns as kafka
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.schema import expected_field_ids, sort_order
from iceberg_catalog.tables.tables import stamped_format

_METRICS: Final = "write.metadata.metrics."
_ALWAYS: Final = (kafka.PARTITION, kafka.OFFSET, kafka.TIMESTAMP)


def data_file(table: Table, path: str, size_bytes: int, footer: pq.FileMetaData, partition: int) -> DataFile:
    """The entry for one data file of one Kafka partition.

    Args:
        table: where the file will be added.
        path: full URI as it will stand in the manifest.
        size_bytes: size of the whole file.
        footer: the file's own metadata; its columns must carry the table's field ids.
        partition: Kafka partition of every row.

    Raises:
        CatalogError: `schema_mismatch` if the file has a column the table has not, or lacks one of Kafka's.
    """
    shape = _shape(table)
    leaves = _leaf_ids(table, shape, footer)
    columns = {field_id: _Column(collector=shape.plan[field_id]) for field_id in leaves}
    split_offsets = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        first = group.column(0)
        start = first.data_page_offset
        split_offsets.append(min(start, first.dictionary_page_offset) if first.has_dictionary_page else start)
        for position, field_id in enumerate(leaves):
            columns[field_id].add(group.column(position))
    counted = {field_id: column for field_id, column in columns.items() if column.counts}
    bounded = {field_id: column.bounds() for field_id, column in columns.items()}
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=footer.num_rows,
        file_size_in_bytes=size_bytes,
        column_sizes={field_id: column.size for field_id, column in columns.items()},
        value_counts={field_id: column.values for field_id, column in counted.items()},
        null_value_counts={f: column.nulls for f, column in counted.items() if column.nulls is not None},
        nan_value_counts={},
        lower_bounds={field_id: bound[0] for field_id, bound in bounded.items() if bound[0] is not None},
        upper_bounds={field_id: bound[1] for field_id, bound in bounded.items() if bound[1] is not None},
        key_metadata=None,
        split_offsets=sorted(split_offsets),
        equality_ids=None,
        sort_order_id=_order_id(table),
    )
    entry.spec_id = table.metadata.default_spec_id
    return entry


@dataclass(slots=True)
class _Shape:
    """What to keep of each leaf column, by field id, and the ids of those that every file has.

    checked: the columns of the latest file and their ids; most files of a table have the same. Not the footer's own
    schema, which would keep the whole footer: a kilobyte for each column of each row group.
    """

    plan: dict[int, StatisticsCollector]
    everywhere: frozenset[int]
    checked: tuple[pa.Schema, list[int]] | None = None


_SHAPES: dict[tuple[object, ...], _Shape] = {}
_SHAPES_MAX = 256


def _shape(table: Table) -> _Shape:
    """Made once per table, schema and properties, for it takes longer than a footer."""
    metadata = table.metadata
    # A restored table counts its schemas from the older number on, and never gives out a field id again.
    state = (metadata.table_uuid, metadata.current_schema_id, metadata.last_column_id)
    key = (*state, *sorted(table.properties.items()))
    shape = _SHAPES.get(key)
    if shape is None:
        if len(_SHAPES) >= _SHAPES_MAX:
            _SHAPES.clear()
        plan = compute_statistics_plan(table.schema(), _modes(table.properties))
        created = expected_field_ids(stamped_format(table))
        shape = _SHAPES[key] = _Shape(plan, frozenset(created.values()) & plan.keys())
    return shape


def _modes(properties: Mapping[str, str]) -> dict[str, str]:
    """Modes by property. Of a wrong one PyIceberg makes an error, and Java its default: that is ours as well."""
    modes: dict[str, str] = {}
    for name, mode in properties.items():
        if name.startswith(_METRICS):
            with suppress(ValueError):
                match_metrics_mode(mode)
                modes[name] = mode
    return modes | {f"{_METRICS}column.{name}": "full" for name in _ALWAYS}


def _order_id(table: Table) -> int | None:
    """Of the order that our rows have: an engine may have given the table another one. None: it is not there."""
    ours = sort_order(stamped_format(table)).fields
    return next((order.order_id for order in table.metadata.sort_orders if order.fields == ours), None)


def _leaf_ids(table: Table, shape: _Shape, footer: pq.FileMetaData) -> list[int]:
    """Field id of each leaf column of the file, in file order, checked against the table.

    By id, not by name: value columns may have been renamed since the file was written, and more may have come.
    """
    columns = footer.schema.to_arrow_schema().remove_metadata()
    if shape.checked is not None and shape.checked[0].equals(columns, check_metadata=True):
        return shape.checked[1]
    ids = list(leaf_ids(columns))
    if strange := [footer.schema.column(number).path for number, item in enumerate(ids) if item not in shape.plan]:
        raise CatalogError("schema_mismatch", f"data file has columns {strange}, table {table.name()} has not")
    if missing := shape.everywhere - set(ids):
        names = [table.schema().find_column_name(item) for item in sorted(missing)]
        raise CatalogError("schema_mismatch", f"data file lacks columns {names} of table {table.name()}")
    shape.checked = columns, ids
    return ids


def leaf_ids(fields: Iterable[pa.Field]) -> Iterator[int]:
    """Field ids of the leaves below these fields, in file order."""
    for field in fields:
        kind = field.type
        if pa.types.is_map(kind):
            yield from leaf_ids((kind.key_field, kind.item_field))
        elif pa.types.is_list(kind):
            yield from leaf_ids((kind.value_field,))
        elif pa.types.is_struct(kind):
            yield from leaf_ids(kind.fields)
        else:
            yield int((field.metadata or {}).get(b"PARQUET:field_id", -1))


@dataclass(slots=True, kw_only=True)
class _Column:
    """Statistics of one leaf column over all row groups."""

    collector: StatisticsCollector
    size: int = 0
    values: int = 0
    nulls: int | None = 0
    low: int | bytes | None = None
    high: int | bytes | None = None
    unbounded: bool = False

    @property
    def counts(self) -> bool:
        return self.collector.mode.type != MetricModeTypes.NONE

    def add(self, chunk: pq.ColumnChunkMetaData) -> None:
        """Takes in one row group's chunk."""
        self.size += chunk.total_compressed_size
        self.values += chunk.num_values
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is None or not statistics.has_null_count:
            self.nulls = None
        elif self.nulls is not None:
            self.nulls += statistics.null_count
        if statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values:
            return
        if statistics is None or not statistics.has_min_max:
            self.unbounded = True
            return
        low, high = statistics.min_raw, statistics.max_raw
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """Serialised bounds as the column's metrics mode wants them; None where there is none."""
        mode = self.collector.mode
        if (
            self.unbounded
            or self.low is None
            or self.high is None
            or mode.type in (MetricModeTypes.NONE, MetricModeTypes.COUNTS)
        ):
            return None, None
        kind = self.collector.iceberg_type
        if isinstance(kind, DecimalType):
            return None, None  # the footer's bytes do not sort as their numbers do
        if not isinstance(self.low, bytes) or not isinstance(self.high, bytes):
            return to_bytes(kind, self.low), to_bytes(kind, self.high)
        length = mode.length if mode.type == MetricModeTypes.TRUNCATE else None
        if length is None:
            return self.low, self.high
        if isinstance(kind, StringType):
            low, high = self.low.decode(), upper_text(self.high.decode(), length)
            return to_bytes(kind, low[:length]), None if high is None else to_bytes(kind, high)
        if isinstance(kind, BinaryType):
            return self.low[:length], truncate_upper_bound_binary_string(self.high, length)
        return self.low, self.high


def upper_text(value: str, length: int) -> str | None:
    """The least text of at most `length` characters that no text beginning like `value` exceeds; None: there is none.

    Not PyIceberg's: after U+D7FF it goes on with half of a surrogate pair, which UTF-8 cannot write.
    """
    start = value[:length]
    if start == value:
        return start
    for place in reversed(range(len(start))):
        code = ord(start[place]) + 1
        code = 0xE000 if code == 0xD800 else code
        if code <= 0x10FFFF:
            return start[:place] + chr(code)
    return None
