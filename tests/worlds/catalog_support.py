"""Real tables and data files for the tests of iceberg_catalog."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from converter.epochs import footer_entry
from converter.parquet.columns import row_schema
from converter.types import LeaderEpoch, ValueFormat
from iceberg_catalog.commit.state import StateRef
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.tables.data_file import data_file
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.schema import expected_field_ids
from iceberg_catalog.tables.tables import ensure_table

OWNER = Owner("cluster", "orders", bytes(range(16)))
STATE = StateRef("state/x/abc.json", "abc")


@dataclass
class Place:
    """A catalog, one table and the folder its data files lie in."""

    catalog: Catalog
    table: Table
    data: Path
    value_format: ValueFormat = "raw"
    counter: itertools.count[int] = field(default_factory=itertools.count)

    def write(self, first: int, last: int, partition: int = 0, epoch: int = 0) -> DataFile:
        """A data file with one row per offset of [first, last]."""
        rows = make_rows(range(first, last + 1), partition, self.value_format)
        folder = self.data / str(partition)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{first:020d}-{last:020d}-{uuid.uuid4().hex}.parquet"
        told = footer_entry([LeaderEpoch(epoch, first)])
        pq.write_table(rows.replace_schema_metadata(told), path)
        return data_file(self.table, path.as_uri(), path.stat().st_size, pq.read_metadata(path), partition)

    def load(self) -> Table:
        return self.catalog.load_table(self.table.name())

    def offsets(self, partition: int = 0) -> list[int]:
        """Sorted offsets in the table's current snapshot, read by PyIceberg."""
        rows = self.load().scan(row_filter=f"_kafka_partition = {partition}").to_arrow()
        return sorted(rows["_kafka_offset"].to_pylist())


def make_rows(offsets: range, partition: int, value_format: ValueFormat) -> pa.Table:
    """Rows as the converter writes them; every third has no key, every fifth is a tombstone."""
    schema = row_schema(value_format, expected_field_ids(value_format))
    epoch = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = [
        {
            "value": f"value {offset}",
            "_kafka_partition": partition,
            "_kafka_offset": offset,
            "_kafka_timestamp": epoch + dt.timedelta(seconds=offset),
            "_kafka_timestamp_type": 0,
            "_kafka_key": None if offset % 3 == 0 else f"key of a record {offset:010d}".encode(),
            "_kafka_headers": [{"key": "k", "value": b"1"}, {"key": "k", "value": None}] if offset % 2 else [],
            "_kafka_value": None if offset % 5 == 0 else f"value {offset}".encode(),
            "_kafka_value_size": None if offset % 5 == 0 else len(f"value {offset}"),
            "_kafka_error": None,
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def make_place(folder: Path, value_format: ValueFormat = "raw", owner: Owner = OWNER) -> Place:
    """A fresh embedded catalog with one table; the data files lie outside the table's location."""
    catalog = open_catalog(embedded_settings(folder))
    data = folder / "store" / "data"
    table = ensure_table(catalog, owner, value_format, data_path=data.as_uri())
    return Place(catalog, table, data, value_format)
