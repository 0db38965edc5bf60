"""State objects follow the table's snapshots: what one names stays readable, what none names goes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles, recorded_states
from iceberg_catalog.commit.state import StateRef, decode_state
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from iceberg_catalog.plan.types import PartState
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import STATE_SWEEP_COMMITS
from rsm_bridge.storage.keys import STATE_ROOT
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.state_objects import StateObjects
from tests.worlds.catalog_support import Place, make_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(load_settings(None, {"data_dir": tmp_path / "bridge"}))


def keys(store: ObjectStore) -> set[str]:
    return {listed.key for listed in store.list_after(STATE_ROOT)}


def one_commit(place: Place, states: StateObjects, frontier: int) -> Table:
    commit_id = uuid.uuid4().hex
    table = place.load()
    recorded = states.put(table, {0: PartState(frontier=frontier)}, commit_id)
    listed = states.before_commit(table)
    outcome = commit(place.catalog, LiveFiles().read(table), Change(), recorded, commit_id=commit_id, as_of_ms=frontier)
    assert outcome.kind == "committed"
    assert outcome.table is not None
    states.after_commit(outcome.table, listed)
    return outcome.table


def test_they_are_bounded_and_every_kept_snapshot_can_be_read(place: Place, store: ObjectStore) -> None:
    states = StateObjects(store)
    named: Iterable[StateRef] = ()
    for number in range(3 * STATE_SWEEP_COMMITS):
        table = one_commit(place, states, number)
        named = recorded_states(table)
        for reference in named:
            decode_state(store.read(reference.key).data, reference.sha256)
        assert len(keys(store)) <= SNAPSHOTS_KEPT_MAX + STATE_SWEEP_COMMITS
    assert {reference.key for reference in named} <= keys(store)


def test_equal_states_of_two_attempts_are_two_objects(place: Place, store: ObjectStore) -> None:
    states = StateObjects(store)
    first = states.put(place.table, {0: PartState(frontier=7)}, "a" * 32)
    second = states.put(place.table, {0: PartState(frontier=7)}, "b" * 32)
    assert first.sha256 == second.sha256
    assert len({first.key, second.key} & keys(store)) == 2


def test_what_was_put_after_the_listing_stays(place: Place, store: ObjectStore) -> None:
    """Another bridge's attempt may be planned on the new head already; nobody may take its state away."""
    ours, theirs = StateObjects(store), StateObjects(store)
    left_behind = theirs.put(place.table, {0: PartState(frontier=1)}, "a" * 32)
    table = place.load()
    recorded = ours.put(table, {0: PartState(frontier=2)}, "c" * 32)
    listed = ours.before_commit(table)
    on_its_way = theirs.put(place.table, {0: PartState(frontier=3)}, "b" * 32)
    outcome = commit(place.catalog, LiveFiles().read(table), Change(), recorded, commit_id="c" * 32, as_of_ms=0)
    assert outcome.table is not None
    assert ours.after_commit(outcome.table, listed) == 1
    assert keys(store) == {recorded.key, on_its_way.key}
    assert left_behind.key not in keys(store)


def test_a_tagged_snapshot_keeps_its_state(place: Place, store: ObjectStore) -> None:
    states = StateObjects(store)
    tagged = one_commit(place, states, 0)
    snapshot = tagged.current_snapshot()
    assert snapshot is not None
    (reference,) = recorded_states(tagged)
    place.load().manage_snapshots().create_tag(snapshot.snapshot_id, "keep").commit()
    for number in range(1, SNAPSHOTS_KEPT_MAX + 2 * STATE_SWEEP_COMMITS):
        one_commit(place, states, number)
    assert decode_state(store.read(reference.key).data, reference.sha256) == {0: PartState(frontier=0)}


def test_tables_do_not_touch_each_others(place: Place, store: ObjectStore, tmp_path: Path) -> None:
    other = make_place(tmp_path / "other")
    foreign = StateObjects(store).put(other.table, {0: PartState(frontier=1)}, "a" * 32)
    one_commit(place, StateObjects(store), 1)
    assert foreign.key in keys(store)


def test_a_sweep_that_fails_leaves_the_commit_and_is_made_up_for(
    place: Place, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = StateObjects(store)
    left = states.put(place.table, {0: PartState(frontier=1)}, "a" * 32)

    def refuse(*_: Any) -> None:
        raise StoreError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "delete_many", refuse)
        one_commit(place, states, 1)
    assert left.key in keys(store)
    for number in range(STATE_SWEEP_COMMITS):
        one_commit(place, states, number)
    assert left.key not in keys(store)
