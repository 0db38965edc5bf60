"""Folders and objects that somebody else put beside ours are no topics, and hold up none; `verify` names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rsm_bridge.serving.publisher import Publisher
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.keys import parse_index_key, partition_of_folder, topic_of_folder
from rsm_bridge.storage.segments.listing import SegmentListing
from rsm_bridge.storage.segments.topic_segments import indexed_topic_ids, stored_owners, topic_ids
from tests.support.bridge_process import publisher_of, test_settings
from tests.worlds.maintain_support import World, make_world
from tests.worlds.status_support import read_topics

STRAY = (
    "z" * 32,
    "0123456789abcdef 123456789abcdef",
    "ab " * 10 + "ab",
    "A" * 32,
    "٣" * 32,
    "abc",
    "0" * 33,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path / "data")
    world.log().write(5)
    world.copy_range(0, 4)
    return world


@pytest.mark.parametrize("name", STRAY)
@pytest.mark.parametrize("root", ["index", "data", "kept"])
def test_a_stray_folder_is_no_topic(world: World, root: str, name: str) -> None:
    world.store.put_if_absent(f"{root}/{name}/0/x", b"hi")
    assert topic_ids(world.store) == indexed_topic_ids(world.store) == [world.topic_id]
    assert [owner.topic for owner in stored_owners(world.store)] == ["orders"]
    assert [read.topic_id for read in read_topics(world.store, None, float("inf"))] == [world.topic_id]
    assert topic_of_folder(f"{root}/{name}") is None


def test_a_publisher_finds_the_topics_beside_a_stray_folder(world: World, tmp_path: Path) -> None:
    world.store.put_if_absent(f"index/{STRAY[0]}/0/x", b"hi")
    publisher: Publisher = publisher_of(test_settings(tmp_path / "data"))
    publisher._discover()
    assert list(publisher._topics) == [world.topic_id]


@pytest.mark.parametrize("name", ["²", "٣", "x", "12345678901", "1" * 80])
def test_a_stray_folder_beside_partitions_is_none(world: World, name: str) -> None:
    folder = f"index/{world.topic_id.hex()}/{name}"
    world.store.put_if_absent(f"{folder}/x", b"hi")
    assert partition_of_folder(f"{folder}/") is None
    listing = SegmentListing(store=world.store, topic_id=world.topic_id)
    listing.whole(10)
    assert listing._partitions() == {0}
    assert world.publish().files_added == 1


def test_digits_of_other_scripts_are_no_index_key() -> None:
    key = f"index/{'a' * 32}/0/{4:020d}-{0:020d}-{'b' * 32}"
    assert parse_index_key(key) is not None
    assert parse_index_key(key.replace("/0/", "/٠/")) is None


def test_verify_names_what_is_passed_over(world: World, tmp_path: Path) -> None:
    world.store.put_if_absent(f"index/{STRAY[0]}/0/x", b"hi")
    assert any(STRAY[0] in line for line in verify_store(None, tmp_path / "data", None).damages)
