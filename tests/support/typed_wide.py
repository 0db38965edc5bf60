"""Avro records of as many fields as one likes: a writer whose schema grows from version to version."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import fastavro

from tests.support.typed_case import Kind

#: The first field is the row's number; the others take these in turn.
TYPES: tuple[tuple[Any, Callable[[random.Random, int], Any]], ...] = (
    ("long", lambda draw, _: draw.choice([0, -1, 2**63 - 1, -(2**63), draw.getrandbits(40)])),
    ("double", lambda draw, _: draw.choice([0.0, -1.5, 5e-324, draw.random()])),
    ("string", lambda draw, length: draw.choice(["", "né 漢字", draw.randbytes(length // 2).hex()])),
    (["null", "string"], lambda draw, length: draw.choice([None, draw.randbytes(length // 2).hex()])),
    ("boolean", lambda draw, _: draw.random() < 0.5),
)


def schema_of(fields: int) -> dict[str, Any]:
    """The first `fields` fields; each version begins with all of the one before."""
    others = ({"name": f"f{place}", "type": TYPES[place % len(TYPES)][0]} for place in range(1, fields))
    return {"type": "record", "name": "Wide", "fields": [{"name": "number", "type": "long"}, *others]}


def wide(fields: int, columns: int, first: int, count: int, text_length: int = 24) -> Kind:
    """`count` rows of a record with `fields` fields, as a table of `columns` columns has them.

    Args:
        first: number of the first row.
        text_length: characters of most texts.
    """
    schema = schema_of(fields)
    parsed = fastavro.parse_schema(schema)
    absent = {f"f{place}": None for place in range(fields, columns)}

    def encoded(number: int) -> bytes:
        draw, out = random.Random(number), io.BytesIO()
        row = {f"f{place}": TYPES[place % len(TYPES)][1](draw, text_length) for place in range(1, fields)}
        fastavro.schemaless_writer(out, parsed, {"number": number, **row})
        return out.getvalue()

    def decoded(value: bytes) -> dict[str, Any]:
        found: Any = fastavro.schemaless_reader(io.BytesIO(value), parsed, None)
        return {**found, **absent}

    return Kind("avro", json.dumps(schema), [encoded(number) for number in range(first, first + count)], decoded)
