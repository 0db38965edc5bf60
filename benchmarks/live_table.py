"""Tables with many live files, without the files: entries like those of copied segments, committed as a bridge does.

A commit never opens a data file, so the entries can be made from one real Parquet footer, with other names and bounds.
"""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from converter.parquet.columns import OFFSET, row_schema
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import Head, LiveFiles
from iceberg_catalog.commit.state import StateRef
from iceberg_catalog.tables.data_file import data_file
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.schema import expected_field_ids
from iceberg_catalog.tables.tables import ensure_table

PARTITIONS = 10
#: Offsets of one file.
ROWS = 10_000
DATA_PATH = "file:///benchmark/data"
_CHUNK = 1000


def _footer() -> pq.FileMetaData:
    schema = row_schema("raw", expected_field_ids("raw"))
    row = dict.fromkeys(schema.names) | {"_kafka_partition": 0, "_kafka_offset": 0, "_kafka_headers": []}
    row |= {"_kafka_key": b"key of a record", "_kafka_value": b"a value of some length, as usual"}
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row], schema=schema), buffer)
    return pq.read_metadata(io.BytesIO(buffer.getvalue()))


@dataclass(slots=True)
class LiveTable:
    """One table and the next offset of each of its partitions."""

    catalog: Catalog
    table: Table
    live: LiveFiles = field(default_factory=LiveFiles)
    footer: pq.FileMetaData = field(default_factory=_footer)
    made: int = 0

    def head(self) -> Head:
        """The head as a publisher run reads it: loaded from the catalog, manifests not seen before read."""
        return self.live.read(self.catalog.load_table(self.table.name()))

    def commit(self, head: Head, change: Change) -> None:
        """Commits with a state that is said to be durable.

        Raises:
            RuntimeError: it did not land.
        """
        name = uuid.uuid4().hex
        state = StateRef(f"state/{self.table.metadata.table_uuid}/{name}.json", name)
        outcome = commit(self.catalog, head, change, state, commit_id=name, as_of_ms=0)
        if outcome.kind != "committed" or outcome.table is None:
            raise RuntimeError(f"the commit ended as {outcome.kind}: {outcome.error}")
        self.live.read(outcome.table, outcome.manifests)

    def fill(self, files: int) -> None:
        """Commits until the table has `files` live files."""
        while self.made < files:
            self.commit(self.head(), Change(append=tuple(self.entries(min(_CHUNK, files - self.made)))))

    def entries(self, count: int) -> Iterator[DataFile]:
        """Entries of new files, ROWS offsets each, partition after partition."""
        for _ in range(count):
            partition, number = self.made % PARTITIONS, self.made // PARTITIONS
            self.made += 1
            yield entry(self.table, self.footer, partition, number * ROWS)


def make_table(catalog: Catalog) -> LiveTable:
    """An empty table in the catalog."""
    owner = Owner("benchmark", "scale", uuid.uuid4().bytes)
    return LiveTable(catalog, ensure_table(catalog, owner, "raw", data_path=DATA_PATH))


def entry(table: Table, footer: pq.FileMetaData, partition: int, first: int) -> DataFile:
    """The entry of a file with the offsets [first, first + ROWS), as the publisher makes it from the index's footer."""
    last = first + ROWS - 1
    path = f"{DATA_PATH}/{partition}/{first:020d}-{last:020d}-{uuid.uuid4().hex}.parquet"
    made = data_file(table, path, 2**26, footer, partition)
    number = table.schema().find_field(OFFSET).field_id
    made.lower_bounds[number] = struct.pack("<q", first)
    made.upper_bounds[number] = struct.pack("<q", last)
    return made
