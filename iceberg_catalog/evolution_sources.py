"""Under which names a column's values were ever written: the table's property `tierberg.sources`.

A compact JSON object: field id → list of source names, the present one first. Only columns that are written under
anything but their own name are in it. Names are only ever added, and each name of a list leads writers to that column.
Ids of columns that are gone may stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.types import NestedField

from iceberg_catalog.errors import CatalogError

SOURCES: Final = "tierberg.sources"


@dataclass(frozen=True, slots=True)
class Sources:
    """names: source names by field id, where they differ from the column's own name."""

    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def of(self, column: NestedField) -> tuple[str, ...]:
        """Every name the column is written under, the present name first."""
        return self.names.get(column.field_id, (column.name,))

    def encode(self) -> str:
        """The property's value; equal sources give equal texts."""
        return json.dumps({str(key): list(self.names[key]) for key in sorted(self.names)}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str | None) -> Sources:
        """The inverse. None: the table has no such property.

        Raises:
            CatalogError: `schema_mismatch` for a property that Tierberg has not written.
        """
        if text is None:
            return cls()
        try:
            read = {int(key): names for key, names in json.loads(text).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise CatalogError("schema_mismatch", f"table property {SOURCES} cannot be read: {error}") from error
        lists = (
            names and isinstance(names, list) and all(isinstance(n, str) for n in names) for names in read.values()
        )
        if not all(lists):
            raise CatalogError("schema_mismatch", f"table property {SOURCES} must list names by field id: {text[:200]}")
        return cls({key: tuple(names) for key, names in read.items()})
