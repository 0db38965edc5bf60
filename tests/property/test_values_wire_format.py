"""The wire format of schema registries against plain Python."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.values.wire_format import (
    MALFORMED,
    MESSAGE_INDEXES_MAX,
    NOT_FRAMED,
    NULL,
    looks_framed,
    message_indexes,
    unframe,
)
from tests.oracle.records import DecodeError, Reader, varint
from tests.support.examples import examples

ids = st.one_of(st.sampled_from([0, 1, 255, 256, 2**31 - 1, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))
framed = st.builds(lambda number, rest: b"\0" + struct.pack(">I", number) + rest, ids, st.binary(max_size=9))
values = st.one_of(st.none(), framed, framed, st.binary(max_size=8), st.binary(max_size=4).map(lambda b: b"\0" + b))

index = st.one_of(st.integers(0, 3), st.integers(-2, 200), st.integers(-(2**31), 2**31 - 1))
lists = st.builds(
    lambda indexes, pad, rest: varint(len(indexes), pad) + b"".join(map(varint, indexes)) + rest,
    st.one_of(st.lists(index, max_size=5), st.lists(st.integers(0, 2), min_size=60, max_size=MESSAGE_INDEXES_MAX + 3)),
    st.integers(0, 2),
    st.binary(max_size=6),
)
payloads = st.one_of(st.none(), st.just(b"\0"), lists, lists, st.binary(max_size=12))
cuts = st.tuples(st.integers(0, 4), st.integers(0, 4))


def sliced(rows: list[bytes | None], cut: tuple[int, int]) -> tuple[pa.BinaryArray, list[bytes | None]]:
    """The rows as a slice of a larger array."""
    start = min(cut[0], len(rows))
    end = max(start, len(rows) - cut[1])
    return pa.array(rows, pa.binary()).slice(start, end - start), rows[start:end]


@given(st.lists(values, max_size=30), cuts)
def test_values_are_parted_from_their_headers(rows: list[bytes | None], cut: tuple[int, int]) -> None:
    array, expected = sliced(rows, cut)
    result = unframe(array)
    result.payloads.validate(full=True)
    guesses = looks_framed(array)
    assert len(result.schema_ids) == len(result.payloads) == len(guesses) == len(expected)
    for i, value in enumerate(expected):
        if value is None:
            wanted, payload = NULL, None
        elif len(value) < 5 or value[0] != 0:
            wanted, payload = NOT_FRAMED, None
        else:
            wanted, payload = int.from_bytes(value[1:5], "big"), value[5:]
        assert result.schema_ids[i] == wanted
        assert result.payloads[i].as_py() == payload
        assert guesses[i] == (0 < wanted < 2**31)


def read_path(payload: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """Path and rest as Confluent's MessageIndexes.readFrom has them, with our limit; None: malformed."""
    reader = Reader(payload)
    try:
        count = reader.varint(32)
        if not 0 <= count <= MESSAGE_INDEXES_MAX:
            return None
        path = tuple(reader.varint(32) for _ in range(count)) or (0,)
    except DecodeError:
        return None
    return None if min(path) < 0 else (path, payload[reader.position :])


@given(st.lists(payloads, max_size=25), cuts)
@examples(150)
def test_payloads_are_parted_from_their_message_indexes(rows: list[bytes | None], cut: tuple[int, int]) -> None:
    array, expected = sliced(rows, cut)
    result = message_indexes(array)
    result.payloads.validate(full=True)
    assert len(set(result.paths)) == len(result.paths)
    for i, payload in enumerate(expected):
        wanted = None if payload is None else read_path(payload)
        number = result.numbers[i]
        if wanted is None:
            assert number == (NULL if payload is None else MALFORMED)
            assert not result.payloads[i].is_valid
        else:
            assert (result.paths[number], result.payloads[i].as_py()) == wanted
    assert set(result.numbers[result.numbers >= 0].tolist()) == set(range(len(result.paths)))


@pytest.mark.parametrize("rows", [[], [None], [None, None], [b""], [b"", None, b""]])
def test_nothing_to_read(rows: list[bytes | None]) -> None:
    array = pa.array(rows, pa.binary())
    assert unframe(array).payloads.null_count == len(rows)
    assert message_indexes(array).paths == ()
    assert not looks_framed(array).any()


def test_many_paths_cost_no_more_than_few() -> None:
    rows = [varint(1) + varint(i) + b"x" for i in range(50_000)]
    result = message_indexes(pa.array(rows, pa.binary()))
    assert result.paths == tuple((i,) for i in range(50_000))
    assert np.array_equal(result.numbers, np.arange(50_000))
