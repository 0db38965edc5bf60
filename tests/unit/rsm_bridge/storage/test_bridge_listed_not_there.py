"""R7: what a listing names and a read denies is not gone. A store that answers wrongly must not make a gap."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from iceberg_catalog.tables.names import Owner
from rsm_bridge.errors import ObjectNotFoundError, StoreError
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.storage.segments.listing import Notices
from rsm_bridge.tables.maintain.maintain import find_owner
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.worlds.maintain_support import DAY, NAMESPACE, World, make_world
from tests.worlds.status_support import read_topics


@dataclass
class Denial:
    """A store that says of one key that it is not there. `times`: so often; `deletes`: and then it is so.

    stats: it says so in answers without content too; the local store lists by them.
    """

    store: ObjectStore
    key: str
    times: int = 1_000_000
    deletes: bool = False
    stats: bool = False
    denied: list[str] = field(default_factory=list)

    def deny(self, key: str) -> None:
        if key == self.key and len(self.denied) < self.times:
            self.denied.append(key)
            if self.deletes:
                self.store.delete_many([key])
            raise ObjectNotFoundError(key)

    @contextmanager
    def going_on(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Denial]:
        head_bytes, stat = self.store.head_bytes, self.store.stat

        def denied_bytes(key: str, length: int) -> memoryview:
            self.deny(key)
            return head_bytes(key, length)

        def denied_stat(key: str) -> ListedObject:
            self.deny(key)
            return stat(key)

        with monkeypatch.context() as patch:
            patch.setattr(self.store, "head_bytes", denied_bytes)
            if self.stats:
                patch.setattr(self.store, "stat", denied_stat)
            yield self


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.mark.parametrize("notices", [Notices(whole=True), Notices(look=True)])
@pytest.mark.parametrize("large", [True, False])
def test_c20_two_false_denials_of_a_listed_index_are_no_gap(
    world: World, monkeypatch: pytest.MonkeyPatch, notices: Notices, large: bool
) -> None:
    if large:
        monkeypatch.setattr("rsm_bridge.storage.segments.listing.LIST_PAGE_KEYS", 1)
    world.copy()
    world.publish()
    middle = str(index_key(world.copy()))
    world.copy()
    with Denial(world.store, middle, times=2).going_on(monkeypatch) as denial:
        for _ in range(2):
            with pytest.raises(StoreError, match="lists it and says that it is not there"):
                world.publisher.run(notices)
        assert len(denial.denied) == 2
        assert world.offsets() == [0, 1, 2]
        assert world.publisher.run(notices).gaps == 0
    assert world.offsets() == list(range(9))


def test_a_noticed_segment_that_is_denied_is_no_gap_either(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.storage.segments.listing.LIST_PAGE_KEYS", 1)
    world.copy()
    world.publish()
    made = [index_key(world.copy()) for _ in range(2)]
    with Denial(world.store, str(made[0]), times=1, stats=True).going_on(monkeypatch):
        assert world.publisher.run(Notices(frozenset(made))).gaps == 0
    assert world.offsets() == list(range(9))


def test_what_is_reclaimed_between_listing_and_reading_fails_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = [world.copy() for _ in range(3)]
    world.publish()
    world.delete(published[0])
    world.later(DAY)
    key = str(index_key(published[0]))
    with Denial(world.store, key, deletes=True).going_on(monkeypatch) as denial:
        result = world.publish()
        assert (len(denial.denied), len(result.segments)) == (1, 2)
    assert len(read_segments(world.store, world.topic_id)) == 2


def test_maintenance_reads_nothing_into_a_denial(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.copy()
    world.publish()
    with Denial(world.store, str(index_key(first))).going_on(monkeypatch):
        with pytest.raises(StoreError, match="not there"):
            read_segments(world.store, world.topic_id)
        with pytest.raises(StoreError, match="not there"):
            find_owner(world.store, world.catalog, world.topic_id, NAMESPACE)
    assert find_owner(world.store, world.catalog, world.topic_id, NAMESPACE) == Owner("test", "orders", world.topic_id)


def test_the_sweep_takes_no_object_of_a_segment_whose_index_is_denied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept bytes are in no table: only the index names them, and Kafka's reads need them."""
    world.copy()
    world.publish()
    world.log().write(3)
    verbatim = index_key(world.copy_range(3, 5, mode="verbatim"))
    world.maintenance.head()  # knows whose topic it is
    stored = world.stored()
    world.later(COPY_IS_OVER_SECONDS + 60)
    with (
        Denial(world.store, str(verbatim)).going_on(monkeypatch),
        pytest.raises(StoreError, match="not there"),
    ):
        world.maintain()
    assert world.stored() == stored
    world.check()


def test_status_and_verify_read_nothing_into_a_denial(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the segment gone, nor is it damaged: nobody knows yet."""
    world.copy()
    denied = str(index_key(world.copy()))
    with Denial(world.store, denied).going_on(monkeypatch):
        (read,) = read_topics(world.store, None, time.monotonic() + 20)
        assert (read.listed, len(read.segments), read.damaged) == (2, 1, [])  # "1 of 2 indexes were read"
        monkeypatch.setattr("rsm_bridge.status.verify.store.open_made_store", lambda _: world.store)
        report = verify_store(None, tmp_path, None)
    assert (report.segments, report.damages) == (1, [])
    assert len(report.unread) == 1
    assert report.unread[0].startswith(f"{denied}: store_unavailable")
    assert "1 could not be read" in report.lines()[-1]
    with Denial(world.store, denied, deletes=True).going_on(monkeypatch):
        report = verify_store(None, tmp_path, None)
    assert (report.segments, report.damages, report.unread) == (1, [], [])


def test_status_takes_what_went_while_it_read_for_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [str(index_key(world.copy())) for _ in range(2)]
    with Denial(world.store, gone[1], deletes=True).going_on(monkeypatch):
        (read,) = read_topics(world.store, None, time.monotonic() + 20)
    assert (read.listed, len(read.segments), read.damaged) == (1, 1, [])
