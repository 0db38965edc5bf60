"""Columns back into JSON: every canonical value, odd ones never with another meaning, any arrays, slices and sizes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.values.json import encoder as json_encode
from converter.values.json.decoder import json_decoder
from converter.values.model import Encoder
from converter.values.proof.encoders import encoder
from tests.property import json_world as world
from tests.support.examples import examples
from tests.support.json_writing import WRITERS, Documents, rewritten, sizes_of, texts

seeds = st.integers(0, 2**32)
SIZES = 700


@pytest.mark.parametrize("writer", WRITERS)
@examples(40)
@given(seed=seeds, skip=st.booleans())
def test_every_canonical_value_comes_back(writer: str, seed: int, skip: bool) -> None:
    write, is_sorted, big = WRITERS[writer]
    rng = Documents(seed)
    rng.big, rng.others, rng.skip = big, not is_sorted, skip
    spec = rng.spec()
    values = [write(document) for document in rng.rows(spec, 30)]
    columns, back = rewritten(json.dumps(world.schema_of(spec)), values)
    assert columns.null_count == 0
    assert texts(back) == values


@examples(200)
@given(seeds)
def test_odd_values_do_not_come_back_as_another_meaning(seed: int) -> None:
    rng = world.World(seed)
    spec = rng.spec()
    values = rng.values(spec, 25)
    schema = json.dumps(world.schema_of(spec))
    columns, back = rewritten(schema, values)
    came = texts(back)
    assert not any(came[row] is not None for row in range(len(values)) if not columns[row].is_valid)
    rows = [row for row, text in enumerate(came) if text is not None]
    assert all(len(came[row] or b"") == len(values[row]) for row in rows)
    again = json_decoder(schema).decode(pa.array([came[row] for row in rows], pa.binary()))
    for row, got, error in zip(rows, again.columns.to_pylist(), again.errors.to_pylist(), strict=True):
        if error is not None:
            # 1e20 as a form without exponent has it: the same number, which no column takes in this form.
            assert "beyond 2^53" in error
        else:
            assert came[row] == values[row] or loaded(spec, got) == loaded(spec, columns[row].as_py())


def loaded(spec: world.Spec, row: dict[str, Any]) -> str:
    """A row with its JSON texts loaded, in which the order of other members does not count."""
    return repr(world.loaded(spec, row if spec[0] == "object" else row["value"]))


def any_value(rng: Documents, kind: pa.DataType) -> Any:
    """Anything an array of this type may hold."""
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: any_value(rng, field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(rng.text(), any_value(rng, kind.item_type)) for _ in range(rng.randrange(4))]
    if pa.types.is_list(kind):
        return [any_value(rng, kind.value_type) for _ in range(rng.randrange(4))]
    if pa.types.is_string(kind):
        return rng.choice([rng.text(), "{}", "{", '{"a":1,"b":"\\', '{"a":[1,{"b":2}],"c":"},"}', "null"])
    if pa.types.is_floating(kind):
        return rng.choice([float("nan"), float("inf"), -float("inf"), rng.double()])
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_decimal(kind):
        return Decimal(rng.choice([0, 10**38 - 1, 1 - 10**38]))
    if pa.types.is_date32(kind):
        return rng.choice([-(2**31), 2**31 - 1, 0, -719163, -719162, 2932896, 2932897])
    return rng.choice([-(2**63), 2**63 - 1, 0, -62135596800000000, 253402300799999999, 253402300800000000, -1])


def any_rows(seed: int, count: int) -> tuple[Encoder, pa.StructArray, Documents]:
    rng = Documents(seed)
    spec = rng.spec()
    write, _, _ = WRITERS[rng.choice(list(WRITERS))]
    rng.big = False
    decoder = json_decoder(json.dumps(world.schema_of(spec)))
    encoding = decoder.encoding(pa.array([write(document) for document in rng.rows(spec, 5)], pa.binary()))
    assert encoding is not None
    made = encoder(encoding)
    return made, pa.array([any_value(rng, made.type) for _ in range(count)], type=made.type), rng


@examples(80)
@given(seeds)
def test_any_arrays_and_sizes_are_safe(seed: int) -> None:
    made, columns, rng = any_rows(seed, 10)
    sizes = np.array([rng.choice([-1, 0, 1, 2, rng.randrange(300), 5000]) for _ in range(10)], dtype=np.int64)
    back = made.encode(columns, sizes)
    assert (np.diff(back.offsets) == np.maximum(sizes, 0)).all()
    assert not back.valid[sizes < 0].any()
    # Which size each row has is found by trying; then all come out at once, from any slice.
    alone = [sized(made, columns[row : row + 1]) for row in range(10)]
    fitting = np.array([-1 if text is None else len(text) for text in alone], dtype=np.int64)
    assert texts(made.encode(columns, fitting)) == alone
    first, behind = sorted((rng.randrange(11), rng.randrange(11)))
    with mock.patch.object(json_encode, "_PIECE_BYTES", rng.randint(1, 200)):
        assert texts(made.encode(columns[first:behind], fitting[first:behind])) == alone[first:behind]


def sized(made: Encoder, row: pa.StructArray) -> bytes | None:
    many = row.take(pa.array(np.zeros(SIZES, dtype=np.int64)))
    found = [text for text in texts(made.encode(many, np.arange(SIZES))) if text is not None]
    assert len(found) < 2
    return found[0] if found else None


@examples(100)
@given(seeds)
def test_nothing_is_written_beside_a_row(seed: int) -> None:
    made, columns, rng = any_rows(seed, 15)
    nothing = pa.nulls(15, made.type)
    both = pa.concat_arrays([columns, nothing]).take(
        pa.array([row + 15 * part for row in range(15) for part in (0, 1)])
    )
    sizes = np.array([rng.choice([rng.randrange(100), rng.randrange(8), 64]) for _ in range(30)], dtype=np.int64)

    def filled(shape: Any, dtype: Any) -> np.ndarray:
        return np.full(shape, 0x55, dtype=dtype)

    with mock.patch.object(np, "empty", filled):
        back = made.encode(both, sizes)
    assert not back.valid[1::2].any()
    for row in range(1, 30, 2):
        assert (back.data[back.offsets[row] : back.offsets[row + 1]] == 0x55).all()


@examples(30)
@given(seeds, st.integers(1, 400))
def test_pieces_and_slices_do_not_matter(seed: int, size: int) -> None:
    rng = Documents(seed)
    spec = rng.spec()
    values = [json.dumps(document).encode() for document in rng.rows(spec, 30)]
    decoder = json_decoder(json.dumps(world.schema_of(spec)))
    array = pa.array(values, pa.binary())
    encoding = decoder.encoding(array)
    assert encoding is not None
    columns = decoder.decode(array).columns
    with mock.patch.object(json_encode, "_PIECE_BYTES", size):
        back = encoder(encoding).encode(columns[7:29], sizes_of(values[7:29]))
    assert texts(back) == values[7:29]
