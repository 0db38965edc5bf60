"""Avro, version 1, is written as when it was released: values stored as columns alone are read back for ever.

tests/golden/values_avro_1.json is never written anew. Its values are as fastavro writes them, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from converter.values.avro.columns import Form
from converter.values.avro.compile import lay_out
from converter.values.avro.decoder import avro_decoder
from converter.values.avro.encode_compile import numbered
from converter.values.avro.schema import read_schema
from converter.values.model import Encoding
from converter.values.proof.encoders import encoder
from tests.support.golden_columns import of_json, to_json

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[4] / "golden" / "values_avro_1.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: one["parameters"]["schema"][:40])
def test_columns_become_the_bytes_they_always_became(vector: dict[str, Any]) -> None:
    made = encoder(Encoding(vector["kind"], vector["version"], vector["parameters"]))
    values = [bytes.fromhex(row["value"]) for row in vector["rows"]]
    columns = of_json([row["columns"] for row in vector["rows"]], made.type)
    found = made.encode(columns, np.array([len(value) for value in values], np.int64))
    assert found.valid.all()
    assert found.data.tobytes() == b"".join(values)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: one["parameters"]["schema"][:40])
def test_bytes_become_the_columns_they_always_became(vector: dict[str, Any]) -> None:
    parameters = vector["parameters"]
    decoder = avro_decoder(parameters["schema"], json.loads(parameters["references"]))
    values = pa.array([bytes.fromhex(row["value"]) for row in vector["rows"]], pa.binary())
    assert to_json(decoder.decode(values).columns) == [row["columns"] for row in vector["rows"]]
    assert decoder.encoding(values) == Encoding("avro", 1, parameters)


def test_every_form_of_a_column_is_among_them() -> None:
    forms: set[Form] = set()
    for vector in VECTORS:
        root, names = read_schema(vector["parameters"]["schema"], json.loads(vector["parameters"]["references"]))
        forms |= {column.form for column in numbered(lay_out(root, names).columns)}
    assert set(Form) - forms == {Form.JSON}
