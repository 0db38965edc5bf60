"""What a catalog does not take of one writer's columns costs that writer alone; the others' come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table import Table

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.evolve import table as evolve_table
from iceberg_catalog.evolve.table import WriterTypes, evolved
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import ensure_table

GOOD = WriterTypes(pa.struct([pa.field("good", pa.int32())]))
ALSO_GOOD = WriterTypes(pa.struct([pa.field("also_good", pa.string())]))
BAD = WriterTypes(pa.struct([pa.field("hostile", pa.int32())]))


@pytest.fixture
def opened(tmp_path: Path) -> tuple[Catalog, Table]:
    catalog = open_catalog(embedded_settings(tmp_path))
    owner = Owner("c", "t", b"t" * 16)
    return catalog, ensure_table(catalog, owner, "raw", data_path=f"file://{tmp_path}/data")


@pytest.mark.parametrize("error", [BadRequestError("no such name here"), ValueError("no text"), TypeError("no type")])
def test_a_writer_whose_columns_the_catalog_refuses_stands_alone(
    opened: tuple[Catalog, Table], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    catalog, table = opened
    commit = catalog.commit_table

    def refusing(mine: Table, requirements: Any, updates: Any) -> Any:
        if "hostile" in str(updates):
            raise error
        return commit(mine, requirements, updates)

    monkeypatch.setattr(catalog, "commit_table", refusing)
    monkeypatch.setattr(evolve_table, "EVOLVE_PAUSE_MS", 0)
    found = evolved(catalog, table, [GOOD, BAD, ALSO_GOOD], incompatible="new-column", generation=0)
    assert {"good", "also_good"} <= set(found.table.schema().column_names)
    assert "hostile" not in found.table.schema().column_names
    assert [len(said) for said in found.refused] == [0, 1, 0]
    assert str(error) in found.refused[1][0]


def test_a_writer_with_a_type_that_no_column_may_have_stands_alone(opened: tuple[Catalog, Table]) -> None:
    catalog, table = opened
    odd = WriterTypes(pa.struct([pa.field("odd", pa.float16())]))
    found = evolved(catalog, table, [odd, GOOD], incompatible="new-column", generation=0)
    assert "good" in found.table.schema().column_names
    assert "float16" in str(found.refused[0]) or "halffloat" in str(found.refused[0])
