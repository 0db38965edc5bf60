"""Loads, or compiles, every kernel for JSON, both ways: a minute cold, seconds from the cache on disk."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from converter.values.json_decode import json_decoder
from converter.values.json_encode import json_encoder

_SCHEMA: Final = """{"type": "object", "properties": {
    "i": {"type": "integer"}, "t": {}, "l": {"type": "array", "items": {"type": "number"}},
    "m": {"type": "object", "additionalProperties": {"type": "string"}},
    "o": {"type": "object", "properties": {"b": {"type": "boolean"}}}}}"""
_VALUE: Final = rb'{"i":1,"t":["\n"],"l":[1.5],"m":{"k":"\u00e9"},"o":{"b":true},"x":null}'


def warm_json() -> None:
    """Decode one value in which every kind of node occurs, and encode it again."""
    decoder = json_decoder(_SCHEMA)
    values = pa.array([_VALUE], pa.binary())
    columns = decoder.decode(values).columns
    encoding = decoder.encoding(values)
    if encoding is not None:
        json_encoder(encoding.parameters).encode(columns, np.array([len(_VALUE)], dtype=np.int64))
