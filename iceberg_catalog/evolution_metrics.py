"""Of which typed columns the files keep bounds.

Statistics of every column of every file lie in the manifests, so a table of 400 columns keeps them of some only:
Kafka's own (set when the table is created) and the first METRICS_COLUMNS_MAX top-level value columns that are no
structs, lists or maps. What is set once stays, whatever order columns have later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, NestedField, StringType

from converter import columns
from converter.columns import zone
from iceberg_catalog.limits import METRICS_COLUMNS_MAX

_DEFAULT: Final = "write.metadata.metrics.default"
_COLUMN: Final = "write.metadata.metrics.column."


def metrics_changes(before: Schema, after: Schema, properties: Mapping[str, str]) -> dict[str, str | None]:
    """Properties to set on a typed table whose columns change; None: to remove, for a column that has another name now.

    Engines refuse to change a table with a metrics property for a column it has not.
    """
    changes: dict[str, str | None] = {} if properties.get(_DEFAULT) == "none" else {_DEFAULT: "none"}
    if (error := f"{_COLUMN}{columns.ERROR}") not in properties:
        changes[error] = "full"
    former = {field.field_id: field.name for field in before.fields}
    primitives = [field for field in after.fields if zone(field.name) == "value" and field.field_type.is_primitive]
    kept, new = [], []
    for field in primitives:
        old = former.get(field.field_id, field.name)
        if f"{_COLUMN}{old}" not in properties:
            new.append(field)
            continue
        kept.append(field)
        if old != field.name:
            changes[f"{_COLUMN}{old}"] = None
            changes[f"{_COLUMN}{field.name}"] = properties[f"{_COLUMN}{old}"]
    for field in new[: max(METRICS_COLUMNS_MAX - len(kept), 0)]:
        changes[f"{_COLUMN}{field.name}"] = _mode(field)
    return changes


def _mode(field: NestedField) -> str:
    return "truncate(16)" if isinstance(field.field_type, StringType | BinaryType) else "full"
