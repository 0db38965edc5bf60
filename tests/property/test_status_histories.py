"""Histories of a healthy topic never call anybody, whatever happens between two reads of a report; troubles always do.

Each history is looked at with a store in which copies, commits, retention, topic deletion, reclaiming, merges and lost
replies happen just before the n-th read, for any n.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_bridge.status.confirm import confirmed, watch
from rsm_bridge.status.report import NOTHING_ACCEPTED
from tests.property.status_world import StatusWorld, alarms
from tests.support.examples import examples

STEPS = ("copy", "open_transaction", "end_transaction", "retention", "withdraw", "publish", "reclaim", "maintain")
MEANWHILE = (*STEPS, "delete_topic")
BEFORE = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1)), min_size=1, max_size=8)
#: Before which question, and what.
RACES = st.dictionaries(
    st.integers(0, 40), st.tuples(st.sampled_from(MEANWHILE), st.integers(0, 1)), min_size=1, max_size=6
)
WITHOUT_PARTITION = {"publish", "reclaim", "maintain", "delete_topic"}


@contextmanager
def made() -> Iterator[StatusWorld]:
    folder = Path(tempfile.mkdtemp(prefix="status-"))
    try:
        yield StatusWorld(folder)
    finally:
        shutil.rmtree(folder)


def act(world: StatusWorld, step: str, partition: int) -> None:
    """One step; nothing is copied of a topic that is gone."""
    if world.gone and step not in WITHOUT_PARTITION:
        return
    if step in WITHOUT_PARTITION:
        getattr(world, step)()
    else:
        getattr(world, step)(partition)


def told(world: StatusWorld, meanwhile: Mapping[int, Callable[[], object]]) -> dict[str, str]:
    """The alarms that the command would give: what may pass is looked at again (rsm_bridge/status/confirm.py).

    Of damage the first look must be sure: a script that asks without patience gets no second one.
    """
    found, _ = world.status(meanwhile)
    assert not alarms(found).keys() & {"index_damaged", "state_damaged"}
    return alarms(confirmed(world.status()[0], found)) if watch(found, NOTHING_ACCEPTED, 1.0)[1] else alarms(found)


@examples(40)
@given(BEFORE, RACES)
def test_a_healthy_history_calls_nobody(before: list[tuple[str, int]], races: dict[int, tuple[str, int]]) -> None:
    with made() as world:
        world.copy()
        for step, partition in before:
            act(world, step, partition)
        meanwhile = {number: partial(act, world, *what) for number, what in races.items()}
        assert not told(world, meanwhile)
        assert not told(world, {})


@pytest.mark.parametrize("step", ["retention", "delete_topic", "maintain", "publish", "reclaim"])
def test_what_happens_before_any_read_calls_nobody(step: str, tmp_path: Path) -> None:
    """Every read of one history, one after the other."""

    def history(folder: Path) -> StatusWorld:
        world = StatusWorld(folder)
        for _ in range(3):
            world.copy()
        world.publish()
        world.copy()
        world.open_transaction()
        world.copy()
        return world

    _, reads = history(tmp_path / "plain").status()
    for number in range(reads + 3):
        world = history(tmp_path / str(number))
        assert not told(world, {number: partial(act, world, step, 0)}), f"{step} before read {number}"


TROUBLES = {
    "index": "index_damaged",
    "block": "index_damaged",
    "state": "state_damaged",
    "lost first": "gap_unexplained",
    "lost between": "gap_unexplained",
    "lost last": "gap_unexplained",
    "lost data": "objects_lost",
}
LOST = {"lost first": slice(1), "lost between": slice(2, 3), "lost last": slice(3, 4)}


@examples(40)
@given(st.sampled_from(sorted(TROUBLES)), st.dictionaries(st.integers(0, 40), st.sampled_from(["copy", "publish"])))
def test_a_planted_trouble_is_named_whatever_goes_on(trouble: str, races: dict[int, str]) -> None:
    with made() as world:
        for _ in range(4):
            world.copy()
        if trouble == "state":
            world.publish()
            for listed in world.world.store.list_after("state/"):
                world.spoil(listed.key, listed.size // 2)
            races = {number: step for number, step in races.items() if step != "publish"}
        elif trouble == "lost data":
            path = next((world.folder / "store" / "data").rglob("*.parquet"))
            path.unlink()
        elif trouble in LOST:
            world.publish()
            for segment in world.live[LOST[trouble]]:
                (world.folder / "store" / world.key_of(segment)).unlink()
        else:
            key = world.key_of(world.live[2])
            size = (world.folder / "store" / key).stat().st_size
            world.spoil(key, 40 if trouble == "index" else size - 20)
            races = {number: step for number, step in races.items() if step != "publish"}
        meanwhile = {number: partial(act, world, step, 0) for number, step in races.items()}
        found, _ = world.status(meanwhile)
        assert TROUBLES[trouble] in alarms(found)
