"""JSON values of any schema, in any style, whole and damaged, against the standard library's reading of them."""

from __future__ import annotations

import json
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from converter.values.json import decoder as json_decode
from converter.values.json.decoder import json_decoder
from converter.values.json.schema.infer import infer_schema
from converter.values.json.schema.widen import wider_places, with_places
from converter.values.model import Decoded, misfits
from tests.property import json_world as world
from tests.support.examples import examples


def drawn(seed: int, count: int = 25) -> tuple[world.Spec, list[bytes]]:
    rng = world.World(seed)
    spec = rng.spec()
    return spec, rng.values(spec, count)


seeds = st.integers(0, 2**32)


def check(spec: world.Spec, values: list[bytes], decoded: Decoded) -> None:
    decoded.columns.validate(full=True)
    decoded.errors.validate(full=True)
    assert len(decoded.columns) == len(decoded.errors) == len(values)
    for data, row, error in zip(values, decoded.columns.to_pylist(), decoded.errors.to_pylist(), strict=True):
        value, problems = world.expected(spec, data)
        if problems:
            assert row is None
            assert error is not None
            assert error.split(":")[0] in problems, (data, error)
            assert len(error) <= 200
        else:
            assert error is None, (data, error)
            got = world.loaded(spec, row if spec[0] == "object" else row["value"])
            assert repr(got) == repr(value), data


@examples(250)
@given(seeds)
def test_columns_are_what_the_standard_library_reads(seed: int) -> None:
    spec, values = drawn(seed)
    decoder = json_decoder(json.dumps(world.schema_of(spec)))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.columns.type == decoder.type
    check(spec, values, decoded)


@examples(40)
@given(seeds, st.integers(1, 300))
def test_pieces_and_slices_do_not_matter(seed: int, size: int) -> None:
    spec, values = drawn(seed)
    decoder = json_decoder(json.dumps(world.schema_of(spec)))
    whole = decoder.decode(pa.array(values, pa.binary()))
    with mock.patch.object(json_decode, "_PIECE_BYTES", size):
        sliced = decoder.decode(pa.array([b"{", *values, b"}"], pa.binary())[1:-1])
    assert repr(sliced.columns.to_pylist()) == repr(whole.columns.to_pylist())
    assert sliced.errors.equals(whole.errors)


@examples(80)
@given(seeds)
def test_rows_that_the_proof_doubts_come_out_the_same(seed: int) -> None:
    spec, values = drawn(seed)
    decoder = json_decoder(json.dumps(world.schema_of(spec)))
    array = pa.array(values, pa.binary())
    fast = decoder.decode(array)
    with mock.patch.object(json_decode, "proved", lambda data, offsets, good, column: np.zeros_like(good)):
        slow = decoder.decode(array)
    assert repr(slow.columns.to_pylist()) == repr(fast.columns.to_pylist())
    assert slow.errors.equals(fast.errors)


@examples(150)
@given(seeds, st.booleans())
def test_an_inferred_schema_decodes_its_sample(seed: int, mixed: bool) -> None:
    rng = world.World(seed)
    spec = rng.spec()
    values = [rng.written(rng.anything() if mixed else rng.fitting(spec)) for _ in range(12)]
    array = pa.array(values, pa.binary())
    schema = infer_schema(array)
    assert schema == infer_schema(array)
    objects, texts = [], []
    for data in values:
        value, problems = world.expected(("text",), data)
        texts.append(not problems)
        objects.append(not problems and isinstance(value, world.Pairs))
    if schema is None:
        assert not any(objects)
        return
    # Of objects without any members nothing is known: their schema's only column takes every JSON text.
    wanted = objects if json.loads(schema)["properties"] else texts
    errors = json_decoder(schema).decode(array).errors
    assert [error is None for error in errors.to_pylist()] == wanted


@examples(150)
@given(seeds)
def test_a_wider_schema_decodes_what_the_first_one_does_not(seed: int) -> None:
    rng = world.World(seed)
    spec = rng.spec()
    schema = infer_schema(pa.array([rng.written(rng.fitting(spec)) for _ in range(4)], pa.binary()))
    if schema is None:
        return
    names = json.loads(schema)["properties"]
    others = [rng.written(rng.anything() if n % 2 else rng.fitting(rng.spec())) for n in range(8)]
    others += [json.dumps({name: odd}).encode() for name in names for odd in (0.5, 2**70, "x", {"y": 1})]
    array = pa.array(others, pa.binary())
    narrow = json_decoder(schema)
    dead = misfits(narrow.decode(array).errors)
    found = array.take(pa.array(dead))
    objects = [isinstance(world.expected(("text",), others[row])[0], world.Pairs) for row in dead]
    places = wider_places(schema, found)
    assert (places is not None) == any(objects)
    if places is not None:
        wide = json_decoder(with_places(schema, places))
        assert [error is None for error in wide.decode(found).errors.to_pylist()] == objects
        changed = {steps[1] for steps, _ in json.loads(places)}
        kept = [[field for field in kind if field.name not in changed] for kind in (narrow.type, wide.type)]
        assert kept[0] == kept[1]
