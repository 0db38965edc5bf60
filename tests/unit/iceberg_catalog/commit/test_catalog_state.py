"""Recorded state: what is written is read, anything else is refused."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.commit import state as module
from iceberg_catalog.commit.state import decode_state, encode_state
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.types import PartState

OFFSETS = st.integers(-1, 2**63 - 1)
STATES = st.builds(
    PartState,
    frontier=OFFSETS,
    floor=OFFSETS,
    lineage=st.lists(st.tuples(st.integers(-1, 2**31 - 1), OFFSETS), max_size=4).map(tuple),
    known_end=OFFSETS,
    peeked=st.lists(st.tuples(OFFSETS, OFFSETS, st.booleans()), max_size=3).map(tuple),
)


@given(st.dictionaries(st.integers(0, 2**31 - 1), STATES, max_size=6))
def test_round_trip(states: dict[int, PartState]) -> None:
    data, digest = encode_state(states)
    assert digest == hashlib.sha256(data).hexdigest()
    assert decode_state(data, digest) == states


@given(st.dictionaries(st.integers(0, 100), STATES, max_size=6))
def test_equal_states_have_equal_names(states: dict[int, PartState]) -> None:
    shuffled = dict(reversed(list(states.items())))
    assert encode_state(states) == encode_state(shuffled)


def test_damaged_bytes_are_refused() -> None:
    data, digest = encode_state({0: PartState(frontier=5, floor=0, lineage=((0, 0),), known_end=5)})
    for broken in (data[:-1], data.replace(b"5", b"6"), b""):
        with pytest.raises(CatalogError) as caught:
            decode_state(broken, digest)
        assert caught.value.kind == "corrupt_state"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["version", "partitions", "0", "frontier", "peeked"]), inner, max_size=4)
        ),
    )
)
def test_any_other_json_is_refused_by_one_error(document: object) -> None:
    for wrapped in (document, {"version": 1, "partitions": document}, {"version": 1, "partitions": {"0": document}}):
        data = json.dumps(wrapped).encode()
        with suppress(CatalogError):  # any other exception fails the test
            decode_state(data, hashlib.sha256(data).hexdigest())


def test_a_newer_version_is_refused() -> None:
    data = b'{"partitions":{},"version":2}'
    with pytest.raises(CatalogError, match="version 2"):
        decode_state(data, hashlib.sha256(data).hexdigest())


def test_the_limit_holds_for_writing_and_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    data, digest = encode_state({0: PartState()})
    monkeypatch.setattr(module, "STATE_BYTES_MAX", 10)
    with pytest.raises(CatalogError):
        encode_state({0: PartState()})
    with pytest.raises(CatalogError):
        decode_state(data, digest)
