"""Somebody tags a snapshot while a commit is on its way that lets it expire: the tag stays, and what it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog import failpoints
from iceberg_catalog.commit import commit as commit_module
from iceberg_catalog.commit import expire as expire_module
from iceberg_catalog.commit.commit import Change, Outcome, commit
from iceberg_catalog.commit.expire import expire
from iceberg_catalog.commit.foreign import TAG
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from tests.worlds.catalog_support import STATE, Place, make_place
from tests.worlds.foreign_support import drop_tag, insert


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def publish(place: Place, change: Change) -> Outcome:
    head = LiveFiles().read(place.load())
    return commit(place.catalog, head, change, STATE, commit_id="c", as_of_ms=17)


def tag(place: Place, name: str, snapshot_id: int) -> None:
    place.load().manage_snapshots().create_tag(snapshot_id, name).commit()


def oldest(place: Place) -> int:
    return min(place.load().metadata.snapshots, key=lambda item: item.sequence_number or 0).snapshot_id


def at_point(monkeypatch: pytest.MonkeyPatch, point: str, act: Callable[[], None]) -> None:
    """Does something once at a fail point."""
    left = [act]

    def hit(name: str, *_: Any) -> None:
        if name == point and left:
            left.pop()()

    monkeypatch.setattr(failpoints, "hit", hit)


def as_if_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag comes between the last look and the request."""
    for module in (commit_module, expire_module):
        monkeypatch.setattr(module, "unheld", lambda _metadata, numbers: list(numbers))


@pytest.mark.parametrize("late", [False, True])
def test_a_tag_that_comes_during_a_commit_stays(place: Place, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    for number in range(SNAPSHOTS_KEPT_MAX):
        publish(place, Change(append=(place.write(number, number),)))
    first = oldest(place)
    if late:
        as_if_asked_before(monkeypatch)
    at_point(monkeypatch, "before-swap", lambda: tag(place, "audit", first))
    outcome = publish(place, Change(append=(place.write(100, 100),)))
    # Refused, and the head is what it was: that alone does not say that nothing landed.
    assert outcome.kind == ("unknown" if late else "committed")
    if late:
        assert publish(place, Change(append=(place.write(100, 100),))).kind == "committed"
    table = place.load()
    assert table.metadata.refs["audit"].snapshot_id == first
    assert table.scan(snapshot_id=first).to_arrow().num_rows == 1
    assert place.offsets() == [*range(SNAPSHOTS_KEPT_MAX), 100]


@pytest.mark.parametrize("late", [False, True])
def test_a_tag_that_comes_while_snapshots_expire_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    for number in range(3):
        publish(place, Change(append=(place.write(number, number),)))
    first = oldest(place)
    if late:
        as_if_asked_before(monkeypatch)
    at_point(monkeypatch, "before-expire", lambda: tag(place, "audit", first))
    assert expire(place.catalog, LiveFiles().read(place.load()), [first]) is None
    assert place.load().metadata.refs["audit"].snapshot_id == first


def test_the_tag_before_foreign_commits_may_be_moved_by_hand(place: Place) -> None:
    ours = publish(place, Change(append=(place.write(0, 9),))).snapshot_id
    insert(place.load())
    publish(place, Change(append=(place.write(10, 12),)))
    assert place.load().metadata.refs[TAG].snapshot_id == ours
    drop_tag(place, TAG)
    moved = place.load().metadata.current_snapshot_id
    assert moved is not None
    tag(place, TAG, moved)
    place.load().maintenance.expire_snapshots().by_id(ours).commit()
    assert publish(place, Change(append=(place.write(13, 15),))).kind == "committed"
    assert place.load().metadata.refs[TAG].snapshot_id == moved
