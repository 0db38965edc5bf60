"""Avro values against fastavro: random schemas, random values, random damage."""

from __future__ import annotations

import json
import random
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from converter.values.avro.decoder import avro_decoder
from tests.support.avro_values import Encoder, Matcher, random_schema, read_all, rows_of, without_logical
from tests.support.examples import examples

SEEDS = st.integers(0, 2**63)


def columns_of(schema: Any, values: list[bytes]) -> tuple[list[Any], list[Any]]:
    decoded = avro_decoder(json.dumps(schema)).decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    return rows_of(decoded.columns), decoded.errors.to_pylist()


@examples(150)
@given(SEEDS)
def test_every_value_is_what_fastavro_reads(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    encoder, matcher = Encoder(schema, rng), Matcher(schema)
    values = [encoder.value() for _ in range(8)]
    columns, errors = columns_of(schema, values)
    parsed = fastavro.parse_schema(without_logical(schema))
    assert errors == [None] * len(values)
    for column, value in zip(columns, values, strict=True):
        assert matcher.matches(schema, column, read_all(parsed, value)), (schema, value, column)


def damaged(value: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return value[: rng.randint(0, len(value))]
    if kind == 1:
        return value + rng.randbytes(rng.randint(1, 3))
    if kind == 2 and value:
        at = rng.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
    at = rng.randint(0, len(value))
    return value[:at] + rng.randbytes(rng.randint(1, 12)) + value[at:]


#: Where we are stricter than fastavro, or hold less; these are tested one by one in the unit tests.
STRICTER = (
    "an int of more",
    "a boolean that",
    "a map with a key twice",
    "nested too deep",
    "a timestamp beyond",
    "a decimal with more",
    "more items that take no bytes",
    "a negative length",
    "an impossible count",
    "a number does not end",
    "a branch the union does not have",  # fastavro counts negative ones from the end
    "a symbol the enum does not have",
)


@examples(150)
@given(SEEDS)
def test_damage_stays_in_its_row_and_is_seen_where_fastavro_sees_it(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    encoder, matcher = Encoder(schema, rng), Matcher(schema)
    good = [encoder.value() for _ in range(6)]
    alone, _ = columns_of(schema, good)
    mixed = [one for value in good for one in (value, damaged(value, rng), damaged(rng.choice(good), rng))]
    columns, errors = columns_of(schema, mixed)
    assert repr(columns[::3]) == repr(alone)
    assert errors[::3] == [None] * len(good)
    parsed = fastavro.parse_schema(without_logical(schema))
    for value, column, error in zip(mixed, columns, errors, strict=True):
        if error is None:
            assert matcher.matches(schema, column, read_all(parsed, value)), (schema, value, column)
        else:
            assert column is None
            if not any(text in error for text in STRICTER) and not counts_alone(schema):
                assert refused(parsed, value), (schema, value, error)


def counts_alone(schema: Any) -> bool:
    """Whether there is an array of items that take no bytes: of a damaged count fastavro makes billions of them."""
    if isinstance(schema, list):
        return any(map(counts_alone, schema))
    if not isinstance(schema, dict):
        return False
    if schema["type"] == "array" and is_empty(schema["items"]):
        return True
    inner = [schema.get("items"), schema.get("values"), *(field["type"] for field in schema.get("fields", ()))]
    return any(map(counts_alone, inner))


def is_empty(schema: Any) -> bool:
    """Whether a value takes no bytes."""
    if not isinstance(schema, dict):
        return bool(schema == "null")
    if schema["type"] == "record":
        return all(is_empty(field["type"]) for field in schema["fields"])
    return bool(schema["type"] == "fixed" and schema["size"] == 0)


def refused(parsed: Any, value: bytes) -> bool:
    try:
        read_all(parsed, value)
    except (EOFError, IndexError, MemoryError, OverflowError, ValueError):
        return True
    return False


@examples(100)
@given(st.lists(st.binary(max_size=64), max_size=20), SEEDS)
def test_any_bytes_are_read_or_refused(values: list[bytes], seed: int) -> None:
    schema = random_schema(random.Random(seed), fields=2)
    columns, errors = columns_of(schema, values)
    assert [column is None for column in columns] == [error is not None for error in errors]
