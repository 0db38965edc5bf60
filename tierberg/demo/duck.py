"""The table as PyIceberg and DuckDB see it: one plans the scan and reads the files, the other answers SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tierberg.demo.canonical import DUCKDB_CHECKSUM
from tierberg.demo.columns import DUCKDB_COLUMNS
from tierberg.demo.engines import Engine, EngineAnswer, Row
from tierberg.demo.queries import QUERIES
from tierberg.demo.spark import CATALOG, SESSION_ZONE


def open_table(data_dir: Path, table: str) -> Table:
    """Load a table from the bridge's catalog. Raises NoSuchTableError while it does not exist."""
    catalog = SqlCatalog(
        CATALOG,
        uri=f"sqlite:///{data_dir / 'catalog.db'}",
        warehouse=(data_dir / "warehouse").as_uri(),
        # The bridge made it; a reader creates nothing.
        init_catalog_tables="false",
    )
    try:
        return catalog.load_table(table)
    finally:
        catalog.close()


def value_types(table: Table) -> dict[str, str]:
    """The columns that are not Kafka's, in their order, and their Iceberg types."""
    return {
        field.name: str(field.field_type) for field in table.schema().fields if not field.name.startswith("_kafka_")
    }


def ask_duckdb(table: Table, view: str, partition: int, offset: int) -> Engine:
    """Ask all questions, count, add up the checksums and read one row, all from one snapshot.

    Args:
        table: its current snapshot is asked.
        view: its name in the statements.
        partition: of the row wanted.
        offset: of the row wanted.
    """
    connection = duckdb.connect()
    try:
        connection.execute(f"SET TimeZone = '{SESSION_ZONE}'")
        connection.register(view, table.scan().to_arrow())
        answers = [_run(connection, query.duckdb.format(table=view)) for query in QUERIES]
        counts = f"count(*), {DUCKDB_CHECKSUM}, {DUCKDB_COLUMNS}, count(_kafka_error)"
        rows, checksum, columns, errors = connection.sql(f"SELECT {counts} FROM {view}").fetchall()[0]
        found = connection.sql(
            f"""SELECT epoch_ms(_kafka_timestamp), _kafka_key, _kafka_value, _kafka_headers
                FROM {view} WHERE _kafka_partition = {partition} AND _kafka_offset = {offset}"""
        ).fetchall()[0]
    finally:
        connection.close()
    headers = tuple((header["key"], header["value"]) for header in found[3] or ())
    sample = Row(
        partition=partition, offset=offset, timestamp_ms=found[0], key=found[1], value=found[2], headers=headers
    )
    return Engine(
        name="PyIceberg + DuckDB",
        answers=answers,
        rows=int(rows),
        checksum=int(checksum),
        columns=int(columns),
        errors=int(errors),
        sample=sample,
    )


def _run(connection: Any, statement: str) -> EngineAnswer:
    relation = connection.sql(statement)
    return EngineAnswer(statement, relation.columns, relation.fetchall())
