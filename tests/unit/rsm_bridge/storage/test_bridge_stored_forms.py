"""Small stored forms of the bridge: custom metadata, tombstones, keys. What was written comes back; damage is named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.types import LeaderEpoch, SegmentMetadata
from rsm_bridge.errors import BridgeError
from rsm_bridge.status.causes import CAUSES, CauseCode
from rsm_bridge.storage.custom_metadata import CustomMetadata, decode_custom_metadata
from rsm_bridge.storage.keys import data_key, index_key, index_prefix, kept_key, parse_index_key
from rsm_bridge.storage.tombstone import Tombstone, decode_tombstone, is_tombstone

ROOT = Path(__file__).resolve().parents[4]

I63 = st.integers(0, 2**63 - 1)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SEGMENT = SegmentMetadata(
    cluster_name="c",
    topic="flights",
    topic_id=bytes(range(16)),
    partition=12,
    segment_id=bytes(range(16, 32)),
    start_offset=100,
    end_offset=199,
    max_timestamp_ms=0,
    broker_id=1,
    event_timestamp_ms=0,
    segment_size_bytes=1000,
    leader_epochs=(LeaderEpoch(0, 0), LeaderEpoch(3, 120), LeaderEpoch(5, 150), LeaderEpoch(9, 400)),
    custom_metadata=b"",
)


@given(st.binary(min_size=16, max_size=16), U32, U32, U64, U64, st.booleans())
def test_custom_metadata_comes_back_and_fits(
    attempt: bytes, index: int, directory: int, data: int, kept: int, verbatim: bool
) -> None:
    made = CustomMetadata(
        attempt=attempt, index_size=index, directory_size=directory, data_size=data, kept_size=kept, verbatim=verbatim
    )
    assert decode_custom_metadata(made.encode()) == made
    assert 0 < len(made.encode()) <= 128  # Kafka stops the partition above that


def test_no_custom_metadata_is_a_copy_that_never_finished() -> None:
    assert decode_custom_metadata(b"") is None


@given(st.binary(min_size=1, max_size=128))
def test_what_others_wrote_is_foreign(data: bytes) -> None:
    with pytest.raises(BridgeError) as caught:
        decode_custom_metadata(data)
    assert caught.value.kind == "foreign_segment"


def test_every_flipped_bit_of_custom_metadata_is_noticed() -> None:
    whole = CustomMetadata(attempt=bytes(16), index_size=1, directory_size=2, data_size=3, kept_size=4).encode()
    for place in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(BridgeError):
            decode_custom_metadata(bytes(flipped))


@given(
    st.sampled_from(["deleted", "withdrawn"]),
    I63,
    st.text(max_size=50),
    st.text(max_size=50),
    st.binary(),
    st.booleans(),
    st.booleans(),
)
def test_tombstones_come_back(
    kind: str, time_ms: int, topic: str, cluster: str, index: bytes, reclaiming: bool, forgotten: bool
) -> None:
    stone = Tombstone(
        kind=kind,  # type: ignore[arg-type]
        time_ms=time_ms,
        topic=topic,
        cluster_name=cluster,
        index=index,
        reclaiming=reclaiming,
        forgotten=forgotten,
    )
    assert is_tombstone(stone.encode())
    assert decode_tombstone(stone.encode()) == stone


def test_a_tombstone_of_kafkas_is_what_it_was_before_there_were_others() -> None:
    assert (
        b"forgotten" not in Tombstone(kind="deleted", time_ms=1, topic="t", cluster_name="c", index=b"index").encode()
    )
    assert (
        b'"forgotten": true'
        in Tombstone(kind="deleted", time_ms=1, topic="t", cluster_name="c", index=b"index", forgotten=True).encode()
    )


def test_damaged_and_newer_tombstones_are_named() -> None:
    whole = Tombstone(kind="deleted", time_ms=1, topic="t", cluster_name="c", index=b"index").encode()
    for place in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(BridgeError) as caught:
            decode_tombstone(bytes(flipped))
        version = place // 8 == 4
        assert caught.value.kind == ("unsupported_version" if version else "corrupt_object")
    for size in range(len(whole)):
        with pytest.raises(BridgeError):
            decode_tombstone(whole[:size])
    assert not is_tombstone(b"TBIX")


def test_index_keys_sort_by_last_offset_within_a_partition() -> None:
    keys = [
        str(index_key(replace(SEGMENT, start_offset=base, end_offset=last)))
        for base, last in ((0, 9), (5, 9), (8, 10), (0, 10**18))
    ]
    assert keys == sorted(keys)
    assert all(key.startswith(index_prefix(SEGMENT.topic_id, 12)) for key in keys)
    assert not keys[0].startswith(index_prefix(SEGMENT.topic_id, 1))


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_index_keys_come_back(partition: int, base: int, last: int) -> None:
    key = index_key(replace(SEGMENT, partition=partition, start_offset=base, end_offset=last))
    assert parse_index_key(str(key)) == key


@pytest.mark.parametrize("key", ["", "index/", "index/0/0/0", "data/x.parquet", "index/" + "0" * 32 + "/0/1-0-x"])
def test_other_keys_are_none(key: str) -> None:
    assert parse_index_key(key) is None


def test_keys_of_one_attempt_name_offsets_and_attempt() -> None:
    attempt = bytes([0xAB]) * 16
    data, kept = data_key(SEGMENT, attempt), kept_key(SEGMENT, attempt)
    assert data.endswith(f"{100:020d}-{199:020d}-{'ab' * 16}.parquet")
    assert kept.endswith(f"{100:020d}-{199:020d}-{'ab' * 16}.kept")
    assert data.startswith(f"data/{SEGMENT.topic_id.hex()}/12/")


@pytest.mark.parametrize("page", ["docs/operations.md", "docs/first-topic.md"])
def test_the_size_of_custom_metadata_is_the_one_that_the_pages_name(page: str) -> None:
    """A broker that allows less stops tiering, and the bridge hears nothing of it."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    size = len(CustomMetadata(attempt=bytes(16), index_size=1, directory_size=1, data_size=1, kept_size=1).encode())
    named = text.partition("`remote.log.metadata.custom.metadata.max.bytes`")[2][:120]
    assert re.search(rf"\b{size}\b", named), named
    assert f"custom.metadata.max.bytes to {size} or more" in CAUSES[CauseCode.COPY_STUCK].advice
