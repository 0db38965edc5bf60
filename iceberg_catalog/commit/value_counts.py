"""How many rows of a table's data files have a value in one column, by the manifests' own counts."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.manifest import DataFile

from iceberg_catalog.commit.head import Head
from iceberg_catalog.commit.sound import entries_of
from iceberg_catalog.plan.types import LiveFile


def values_by_file(head: Head, column: str) -> Iterator[tuple[LiveFile, int | None]]:
    """Each live file of a head, and how many of its rows are not null there; None: its entry does not say.

    Nothing where the table has no such column. Reads every manifest. Raises what the table's storage raises.
    """
    number = next((item.field_id for item in head.table.schema().fields if item.name == column), None)
    if number is None:
        return
    for content in head.manifests:
        ours = {file.path: file for file in content.files}
        entries = entries_of(head.table, content.manifest) if ours else []
        for entry in (item.data_file for item in entries):
            if (file := ours.get(entry.file_path)) is not None:
                yield file, _values(entry, number)


def _values(entry: DataFile, number: int) -> int | None:
    if entry.column_sizes and number not in entry.column_sizes:
        return 0  # written before the table had the column
    values, nulls = (entry.value_counts or {}).get(number), (entry.null_value_counts or {}).get(number)
    return None if values is None or nulls is None else values - nulls
