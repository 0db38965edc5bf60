"""Version 1 of the Protobuf encoding stays readable: vectors of every type, written by google.protobuf.

The file is added to and never changed: stored values are what it stands for. Floats have all their bits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converter.values.model import Encoding
from converter.values.proof.encoders import encoder
from converter.values.protobuf.encode_compile import Read
from tests.support.golden_columns import of_json

VECTORS = json.loads((Path(__file__).parents[4] / "golden" / "values_protobuf_1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_stored_values_are_still_written(vector: dict[str, Any]) -> None:
    made = encoder(Encoding(vector["kind"], vector["version"], vector["parameters"]))
    values = [bytes.fromhex(row["value"]) for row in vector["rows"]]
    columns = of_json([row["columns"] for row in vector["rows"]], made.type)
    out = made.encode(columns, np.array([len(value) for value in values], dtype=np.int64))
    assert out.valid.all()
    data = out.data.tobytes()
    assert [data[out.offsets[i] : out.offsets[i + 1]] for i in range(len(values))] == values


def test_the_vectors_have_every_way_to_read_a_column() -> None:
    seen = set()
    for vector in VECTORS:
        waiting = list(encoder(Encoding(vector["kind"], vector["version"], vector["parameters"]))._compiled.sources)  # type: ignore[attr-defined]
        while waiting:
            source = waiting.pop()
            seen.add(source.read)
            waiting += source.children
    assert seen == set(Read)
