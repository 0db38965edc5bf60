"""An index object under a key that is not its own is damage, wherever it is read: no way past the owner check."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from converter.types import SegmentMetadata
from rsm_bridge.errors import BridgeError
from rsm_bridge.status.store.topic import read_topic
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.keys import index_key, parse_index_key
from rsm_bridge.storage.segments.deleter import Deleter
from rsm_bridge.storage.segments.known import read_footer, read_known, read_segments
from rsm_bridge.storage.segments.reader import SegmentReader
from rsm_bridge.tables.maintain.maintain import find_owner
from rsm_bridge.tables.maintain.undelete import turn_back
from rsm_bridge.tables.publish.table_run import TableRun
from tests.worlds.maintain_support import NAMESPACE, World, make_world, published

OTHER = bytes(range(16))
#: What a key may say otherwise than the index under it.
MOVES: dict[str, Callable[[SegmentMetadata], SegmentMetadata]] = {
    "another topic": lambda found: replace(found, topic_id=OTHER),
    "another partition": lambda found: replace(found, partition=7),
    "another first offset": lambda found: replace(found, start_offset=found.start_offset + 1),
    "another last offset": lambda found: replace(found, end_offset=found.end_offset + 1),
    "another segment": lambda found: replace(found, segment_id=uuid.UUID(int=9).bytes),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def path_of(world: World, key: str) -> Path:
    return Path(world.store.uri(key).removeprefix("file://"))


def moved(world: World, how: str) -> tuple[SegmentMetadata, str, str]:
    """A segment in the table whose index lies under another key, too: what Kafka would ask for, that key, the own."""
    (own,) = published(world, (3,))
    misplaced = MOVES[how](own)
    key, own_key = str(index_key(misplaced)), str(index_key(own))
    assert world.store.put_if_absent(key, world.store.read(own_key).data)
    return misplaced, key, own_key


@pytest.mark.parametrize("how", MOVES)
def test_it_is_neither_served_nor_taken_in(world: World, how: str) -> None:
    segment, key, own_key = moved(world, how)
    with ThreadPoolExecutor(1) as helpers:
        reader = SegmentReader(world.store, helpers)
        for asked in (segment, replace(segment, custom_metadata=b"")):
            with pytest.raises(BridgeError) as refused:
                reader.directory_of(asked)
            assert refused.value.kind == "corrupt_object"
            assert key in str(refused.value)
            assert own_key in str(refused.value)
    parsed = parse_index_key(key)
    assert parsed is not None
    with pytest.raises(BridgeError, match=own_key):
        read_known(world.store, parsed, world.store.stat(key))


def test_another_topic_gets_no_rows_and_the_own_goes_on(world: World) -> None:
    moved(world, "another topic")
    before = world.loaded().metadata_location
    with pytest.raises(BridgeError) as refused:
        TableRun(store=world.store, catalog=world.catalog, topic_id=OTHER, context=world.context).run()
    assert refused.value.kind == "corrupt_object"
    assert world.loaded().metadata_location == before
    assert world.catalog.list_tables(NAMESPACE) == [world.loaded().name()]
    assert find_owner(world.store, world.catalog, OTHER, NAMESPACE) is None
    world.copy(4)
    world.publish()
    assert world.offsets() == list(range(7))


def test_a_deletion_of_it_says_nothing_and_does_not_come_back(world: World) -> None:
    segment, key, own_key = moved(world, "another topic")
    Deleter(world.store).delete(segment)
    parsed = parse_index_key(key)
    assert parsed is not None
    with pytest.raises(BridgeError, match=own_key):
        read_known(world.store, parsed, world.store.stat(key))
    with pytest.raises(BridgeError, match=own_key):
        turn_back(world.store, key)


def test_one_that_took_its_place_after_it_was_read(world: World) -> None:
    """What was listed is read again by range later: batches and footers."""
    world.copy(3)
    world.copy(4)
    one, two = read_segments(world.store, world.topic_id)
    path_of(world, one.listed.key).write_bytes(world.store.read(two.listed.key).data)
    with pytest.raises(BridgeError, match=two.listed.key):
        read_footer(world.store, one)
    assert one.segment is not None
    with pytest.raises(BridgeError, match=two.listed.key):
        one.segment.load()


@pytest.mark.parametrize("how", ["another topic", "another partition"])
def test_verify_and_status_name_it(world: World, how: str) -> None:
    _, key, own_key = moved(world, how)
    folder = Path(world.store.root_uri.removeprefix("file://")).parent
    report = verify_store(None, folder, None)
    assert [line for line in report.damages if key in line and own_key in line], report.damages
    assert len(report.damages) == 1
    topic_id = OTHER if how == "another topic" else world.topic_id
    with ThreadPoolExecutor(2) as pool:
        found = read_topic(world.store, topic_id, None, time.monotonic() + 60, pool)
    assert found is not None
    damaged = found.damaged
    assert [name for name, _ in damaged] == [key]
    assert own_key in str(damaged[0][1])


def renamed(index: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The index with its data file's key changed, as long as before, and a right checksum."""
    size = int.from_bytes(index[8:12], "little")
    (stored,) = {part for part in index[:size].split(b'"') if part.startswith(b"data/")}
    made = change(stored)
    assert len(made) == len(stored)
    head = bytearray(index[:size].replace(stored, made))
    head[28:32] = crc32c(bytes(head[32:]), crc32c(bytes(head[:28]))).to_bytes(4, "little")
    return bytes(head) + index[size:]


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key.replace(key[5:37], OTHER.hex().encode()),
        lambda key: key.replace(b"/0/", b"/1/"),
        lambda key: key.replace(b"data/", b"dato/"),
        lambda key: key.replace(b".parquet", b".parque/"),
        lambda key: b"data/../" + key[8:],
    ],
    ids=["another topic's", "another partition's", "another root's", "another form", "outside"],
)
def test_an_index_that_names_what_is_not_its_partitions(world: World, change: Callable[[bytes], bytes]) -> None:
    (own,) = published(world, (3,))
    key = str(index_key(own))
    path = path_of(world, key)
    index = path.read_bytes()
    path.write_bytes(renamed(index, lambda name: name))
    assert path.read_bytes() == index
    path.write_bytes(renamed(index, change))
    with pytest.raises(BridgeError, match="no object of its partition") as refused:
        read_segments(world.store, world.topic_id)
    assert key in str(refused.value)
