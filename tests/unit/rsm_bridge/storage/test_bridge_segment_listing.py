"""How much of the store a run asks for, and that it sees what it must."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from converter.types import SegmentMetadata
from rsm_bridge.storage.keys import IndexKey, index_key, index_prefix
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.segments import listing as segment_listing
from rsm_bridge.storage.segments.listing import ALL, Notices, SegmentListing
from tests.worlds.maintain_support import World, make_world


class Asked:
    """Counts what the store is asked; `listings` are prefixes, with where they start."""

    def __init__(self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listings: list[str] = []
        self.read: list[str] = []
        list_after, head_bytes = store.list_after, store.head_bytes

        def listed(prefix: str, after: str | None = None) -> Iterator[ListedObject]:
            self.listings.append(after or prefix)
            return list_after(prefix, after)

        def read(key: str, length: int) -> memoryview:
            self.read.append(key)
            return head_bytes(key, length)

        monkeypatch.setattr(store, "list_after", listed)
        monkeypatch.setattr(store, "head_bytes", read)

    def clear(self) -> None:
        self.listings.clear()
        self.read.clear()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture
def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(world.store, monkeypatch)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a topic with a few segments were a large one."""
    monkeypatch.setattr(segment_listing, "LIST_PAGE_KEYS", 2)


def noticed(*segments: SegmentMetadata) -> Notices:
    return Notices(frozenset(index_key(segment) for segment in segments))


def test_what_was_copied_here_is_published_without_any_listing(world: World, asked: Asked, small_pages: None) -> None:
    for _ in range(5):
        world.copy(2)
    world.publish()
    asked.clear()
    made = world.copy(2)
    result = world.publisher.run(noticed(made))
    assert (asked.listings, asked.read) == ([], [str(index_key(made))])
    assert (result.files_added, result.complete) == (1, False)
    assert world.offsets() == list(range(12))


def test_a_copy_of_another_bridge_below_a_noticed_one_is_found(world: World, asked: Asked, small_pages: None) -> None:
    for _ in range(5):
        world.copy(2)
    world.publish()
    world.copy(2)  # nobody tells us
    made = world.copy(2)
    asked.clear()
    world.publisher.run(noticed(made))
    assert asked.listings == [index_prefix(world.topic_id, 0)]
    assert world.offsets() == list(range(14))


def test_what_others_stored_is_found_from_the_frontier_on(world: World, asked: Asked, small_pages: None) -> None:
    for _ in range(8):
        world.copy(2)
    world.publish()
    world.copy(2)
    asked.clear()
    result = world.publisher.run(Notices(look=True))
    assert asked.listings == [f"{index_prefix(world.topic_id, 0)}{16:020d}"]
    assert (len(asked.read), result.complete) == (1, False)
    assert world.offsets() == list(range(18))


def test_a_partition_that_another_bridge_began_is_found(world: World, small_pages: None) -> None:
    for _ in range(8):
        world.copy(2)
    world.publish()
    world.copy(2, partition=3)
    world.publisher.run(Notices(look=True))
    assert world.offsets(3) == [0, 1]


def test_a_deletion_below_the_frontier_that_was_noticed_takes_its_rows_along(world: World, small_pages: None) -> None:
    first, *_ = [world.copy(2) for _ in range(6)]
    world.publish()
    world.delete(first)
    result = world.publisher.run(noticed(first))
    assert (result.files_removed, result.complete) == (1, False)
    assert world.offsets() == list(range(2, 12))


def test_a_deletion_nobody_noticed_waits_for_a_whole_listing(world: World, small_pages: None) -> None:
    first, *_ = [world.copy(2) for _ in range(6)]
    world.publish()
    world.delete(first)
    assert not world.publisher.run(Notices(look=True)).files_removed
    assert world.publisher.run(ALL).files_removed == 1


def test_small_topics_are_listed_whole(world: World) -> None:
    listing = SegmentListing(store=world.store, topic_id=world.topic_id)
    world.copy(2)
    assert listing.wants_whole(Notices())
    listing.whole()
    assert listing.wants_whole(Notices())


def test_the_whole_is_listed_when_it_costs_no_more_than_the_partitions(world: World, small_pages: None) -> None:
    listing = SegmentListing(store=world.store, topic_id=world.topic_id)
    for partition in range(4):
        world.copy(2, partition=partition)
    listing.whole()
    assert listing.wants_whole(Notices(look=True))
    assert not listing.wants_whole(Notices())
    for _ in range(8):
        world.copy(2)
    listing.whole()
    assert not listing.wants_whole(Notices(look=True))


def test_a_long_history_is_read_in_parts(world: World, asked: Asked, small_pages: None) -> None:
    for _ in range(9):
        world.copy(2)
    listing = SegmentListing(store=world.store, topic_id=world.topic_id)
    assert [listing.whole(3) is None for _ in range(4)] == [True, True, True, False]
    assert len(listing.known()) == 9
    assert (len(asked.listings), len(asked.read)) == (2, 9)


def test_after_a_start_what_is_new_is_published_before_a_long_history_is_read(
    world: World, asked: Asked, monkeypatch: pytest.MonkeyPatch, small_pages: None
) -> None:
    for _ in range(9):
        world.copy(2)
    world.publish()
    world.copy(2)
    monkeypatch.setattr("rsm_bridge.tables.publish.planning.INDEX_READS_MAX", 3)
    world.publisher = world.new_publisher()
    asked.clear()
    assert not world.publisher.run(ALL).complete
    assert world.offsets() == list(range(20))
    assert len(asked.read) == 3  # whose topic it is, and the new one
    assert [world.publisher.run(ALL).complete for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("notices", [ALL, Notices(look=True)])
@pytest.mark.parametrize("large", [True, False])
def test_what_each_listing_misses_of_what_is_stored_meanwhile_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, notices: Notices, large: bool
) -> None:
    """Two segments come while a listing goes on; its pages show the upper one only. The second look is no better."""
    if large:
        request.getfixturevalue("small_pages")
    for _ in range(6):
        world.copy(2)
    world.publish()
    list_after = world.store.list_after

    def listed(prefix: str, after: str | None = None) -> Iterator[ListedObject]:
        missed, _ = str(index_key(world.copy(2))), world.copy(2)
        return (found for found in list_after(prefix, after) if found.key != missed)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "list_after", listed)
        result = world.publisher.run(notices)
    assert result.gaps == 0
    published = world.offsets()
    assert len(published) > 12
    assert published == list(range(len(published)))
    world.publish()
    assert world.offsets() == list(range(world.log().end))


def test_a_topic_without_rows_is_not_listed_at_each_notice(world: World, asked: Asked) -> None:
    copies = [world.copy(2) for _ in range(3)]
    for segment in copies:
        world.withdraw(segment)
    assert world.publish().complete
    more = world.copy(2)
    world.withdraw(more)
    asked.clear()
    result = world.publisher.run(noticed(more))
    assert (result.head, result.complete, len(result.segments)) == (None, False, 4)
    assert (asked.listings, asked.read) == ([], [str(index_key(more))])
    last = world.copy(2)
    assert world.publisher.run(noticed(last)).files_added == 1


def test_readers_share_the_work_in_order(world: World) -> None:
    for partition in range(3):
        for _ in range(4):
            world.copy(2, partition=partition)
    with ThreadPoolExecutor(4) as readers:
        found = SegmentListing(store=world.store, topic_id=world.topic_id, readers=readers).whole()
    assert found is not None
    keys = [str(known.key) for known in found]
    assert keys == sorted(world.stored("index"))


def test_what_is_gone_is_forgotten(world: World) -> None:
    segment = world.copy(2)
    listing = SegmentListing(store=world.store, topic_id=world.topic_id)
    listing.whole()
    world.store.delete_many([str(index_key(segment))])
    assert listing.ahead({0: 0}, noticed(segment)) == {0: []}
    assert listing.known() == []


def test_a_key_that_never_was_is_no_error(world: World) -> None:
    world.copy(2)
    listing = SegmentListing(store=world.store, topic_id=world.topic_id)
    never = IndexKey(topic_id=world.topic_id, partition=0, last=99, base=90, segment_id=b"n" * 16)
    assert listing.ahead({0: 50}, Notices(frozenset({never}))) == {0: []}


def test_a_listing_made_while_an_object_is_replaced_is_no_listing_of_the_new_one() -> None:
    # Seen with a store that keeps versions beside its files: a tombstone's version with the size of its index. What was
    # read then was the index; taken for the tombstone, it stayed live until the bridge was started again.
    torn = ListedObject("index/k", 2000, 1_700_000_000_000, "new")
    whole = ListedObject("index/k", 2430, 1_700_000_000_000, "new")
    assert not whole.same(torn)
    assert whole.same(replace(whole, modified_ms=1_700_000_000_304))
    assert not whole.same(replace(whole, version="old"))
