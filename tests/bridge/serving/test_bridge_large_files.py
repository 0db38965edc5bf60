"""Files beside the log: in pieces, of nearly any size, byte for byte; what is too large is left out, and said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from converter.index.model import Block
from converter.types import BATCH_DTYPE, IndexType
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import (
    COPY_FILES_BYTES_MAX,
    COPY_FILES_BYTES_USUAL,
    FETCH_CHUNK_BYTES_MAX,
    FRAME_BYTES_MAX,
    INDEX_BYTES_MAX,
    KIB,
    LATER_INDEX_BYTES_MAX,
    LEADER_EPOCHS_MAX,
    MESSAGE_BYTES_MAX,
    MIB,
    SEGMENT_BYTES_MAX,
)
from rsm_bridge.metrics.progress.stored import left_out
from rsm_bridge.serving.copy.files_beside import CopyFiles
from rsm_bridge.serving.scheduling.copy_memory import CopyMemory
from rsm_bridge.serving.service import Running
from rsm_bridge.serving.wire.messages import File
from rsm_bridge.status.verify.inspection import describe
from rsm_bridge.storage.keys import INDEX_ROOT
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.read_clients import ReadClients
from rsm_bridge.storage.segments.chunks import cut
from tests.oracle.transactions import producer_snapshot, transaction_index
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, ShimError, segment_of
from tests.worlds.status_support import read_topics

PRODUCERS = 800_000  # 35 MiB: what one message of a copy could not hold


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    return producer_snapshot([(number, -1) for number in range(PRODUCERS)])


def pieces(kind: IndexType, data: bytes, size: int = MIB) -> Iterator[File]:
    for at in range(0, max(1, len(data)), size):
        yield File(kind, memoryview(data)[at : at + size], at, len(data))


def test_a_producer_snapshot_of_800_000_producers_comes_back_byte_for_byte(shim: ShimClient, snapshot: bytes) -> None:
    assert len(snapshot) > COPY_FILES_BYTES_USUAL
    sent = segment_of(LogBuilder().fill(batches=5), files={IndexType.PRODUCER_SNAPSHOT: snapshot})
    segment = shim.copied(sent)
    assert shim.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT) == snapshot
    assert shim.fetch(segment) == sent.data


def test_what_a_large_snapshot_calls_open_waits(bridge: Running, shim: ShimClient, snapshot: bytes) -> None:
    """The last of its entries is of the transaction that the segment leaves open."""
    from converter.index.codec import decode_directory

    large = producer_snapshot([*((number, -1) for number in range(PRODUCERS)), (9_000_000, 2)])
    log = LogBuilder()
    log.batch([b"x"] * 2)
    log.batch([b"y"] * 3, visible=False, producer_id=9_000_000, producer_epoch=0, base_sequence=0, attributes=0x10)
    shim.copy(sent := segment_of(log, files={IndexType.PRODUCER_SNAPSHOT: large}))
    (found,) = bridge.store.list_after(f"{INDEX_ROOT}{sent.topic_id.hex()}/")
    summary = decode_directory(bridge.store.read(found.key).data).summary
    assert [(opened.producer_id, opened.first_offset) for opened in summary.open_transactions or ()] == [(9_000_000, 2)]
    assert [(one.producer_id, one.first_offset) for one in summary.undecided] == [(9_000_000, 2)]


def test_several_copies_with_large_files_take_turns_and_all_end(shim: ShimClient, snapshot: bytes) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sent = [segment_of(LogBuilder().fill(batches=2), files={IndexType.PRODUCER_SNAPSHOT: snapshot}) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(shim.copy, sent))
    assert all(answer.custom_metadata for answer in answers)


def test_a_snapshot_beyond_the_limit_fails_no_copy(
    bridge: Running, shim: ShimClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is served, what the snapshot alone knows is refused by name, and rows wait as without a snapshot."""
    from converter.index.codec import decode_directory

    monkeypatch.setattr("rsm_bridge.serving.copy.files_beside.COPY_FILES_BYTES_MAX", 1000)
    large = producer_snapshot([(number, -1) for number in range(1000)])
    log = LogBuilder()
    log.batch([b"x"] * 2)
    log.batch([b"y"] * 3, visible=False, producer_id=9_000_000, producer_epoch=0, base_sequence=0, attributes=0x10)
    sent = segment_of(log, files={IndexType.PRODUCER_SNAPSHOT: large})
    segment = shim.copied(sent)
    assert shim.fetch(segment) == sent.data
    with pytest.raises(ShimError, match=f"PRODUCER_SNAPSHOT file had {len(large)} bytes") as failed:
        shim.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)
    assert failed.value.kind == "invalid_segment"
    (found,) = bridge.store.list_after(f"{INDEX_ROOT}{sent.topic_id.hex()}/")
    directory = decode_directory(bridge.store.read(found.key).data)
    assert directory.left_out == {IndexType.PRODUCER_SNAPSHOT: len(large)}
    assert directory.summary.open_transactions is None
    assert [one.producer_id for one in directory.summary.undecided] == [9_000_000]
    (tmp_path / "index").write_bytes(bridge.store.read(found.key).data)
    assert f"left out     producer_snapshot: {len(large)} bytes" in describe(str(tmp_path / "index"), None, None, None)
    (read,) = [topic for topic in read_topics(bridge.store, None, monotonic() + 20) if topic.topic_id == sent.topic_id]
    assert left_out(read.segments) == (found.key,)


@pytest.mark.parametrize("snapshot_first", [True, False])
def test_what_reads_need_is_kept_and_the_snapshot_goes(
    shim: ShimClient, monkeypatch: pytest.MonkeyPatch, *, snapshot_first: bool
) -> None:
    """Whatever comes first: without its transaction index no consumer could read the segment."""
    monkeypatch.setattr("rsm_bridge.serving.copy.files_beside.COPY_FILES_BYTES_MAX", 1000)
    aborts, large = transaction_index([(number, 0, 1) for number in range(10)]), producer_snapshot([(1, -1)] * 19)
    assert len(large) <= 1000 < len(large) + len(aborts)
    sent = segment_of(LogBuilder().fill(batches=1))
    order = [IndexType.PRODUCER_SNAPSHOT, IndexType.TIMESTAMP, IndexType.TRANSACTION, IndexType.LEADER_EPOCH]
    all_files = {**sent.files, IndexType.TRANSACTION: aborts, IndexType.PRODUCER_SNAPSHOT: large}
    sent = replace(sent, files={kind: all_files[kind] for kind in (order if snapshot_first else order[::-1])})
    segment = shim.copied(sent)
    assert shim.fetch_index(segment, IndexType.TRANSACTION) == aborts
    for kind in (IndexType.TIMESTAMP, IndexType.LEADER_EPOCH):
        assert shim.fetch_index(segment, kind) == all_files[kind]
    with pytest.raises(ShimError, match=f"PRODUCER_SNAPSHOT file had {len(large)} bytes"):
        shim.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)


@pytest.mark.parametrize("kind", [IndexType.TIMESTAMP, IndexType.TRANSACTION, IndexType.LEADER_EPOCH])
def test_a_copy_without_what_reads_need_is_refused(
    bridge: Running, shim: ShimClient, monkeypatch: pytest.MonkeyPatch, kind: IndexType
) -> None:
    """Kafka deletes what it has a copy of; so there is none, and the error says which file is how large."""
    monkeypatch.setattr("rsm_bridge.serving.copy.files_beside.COPY_FILES_BYTES_MAX", 1000)
    sent = segment_of(LogBuilder().fill(batches=1), files={kind: bytes(1001)})
    with pytest.raises(ShimError, match=f"{kind.name} 1001.*index.interval.bytes") as refused:
        shim.copy(sent)
    assert refused.value.kind == "invalid_segment"
    assert not list(bridge.store.list_after(f"{INDEX_ROOT}{sent.topic_id.hex()}/"))


def test_the_brokers_offset_index_takes_no_room() -> None:
    files, piece = CopyFiles(), memoryview(bytes(MIB))
    for at in range(0, COPY_FILES_BYTES_MAX, MIB):
        files.add(File(IndexType.OFFSET, piece, at, COPY_FILES_BYTES_MAX))
    assert files.announced == 0
    for kind in (IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT):
        for one in pieces(kind, bytes(COPY_FILES_BYTES_MAX // 2)):
            files.add(one)
    assert files.announced == COPY_FILES_BYTES_MAX
    assert not files.left_out
    assert set(files.whole()) == {IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT}


@given(
    st.permutations(list(IndexType)),
    st.dictionaries(st.sampled_from(list(IndexType)), st.integers(0, 150 * MIB), min_size=1),
)
def test_what_is_kept_does_not_depend_on_the_order(order: list[IndexType], sizes: dict[IndexType, int]) -> None:
    """And never more is announced than may be kept. The files have no bytes here: only sizes are asked."""
    needed = sum(sizes.get(kind, 0) for kind in (IndexType.TIMESTAMP, IndexType.TRANSACTION, IndexType.LEADER_EPOCH))
    snapshot = sizes.get(IndexType.PRODUCER_SNAPSHOT)
    files = CopyFiles()

    def begin_all() -> None:
        for kind in (kind for kind in order if kind in sizes):
            files.begin(kind, sizes[kind])
            assert files.announced <= COPY_FILES_BYTES_MAX

    if needed > COPY_FILES_BYTES_MAX:
        with pytest.raises(BridgeError) as refused:
            begin_all()
        assert refused.value.kind == "invalid_segment"
        return
    begin_all()
    out = snapshot is not None and needed + snapshot > COPY_FILES_BYTES_MAX
    assert files.left_out == ({IndexType.PRODUCER_SNAPSHOT: snapshot} if out else {})
    assert files.announced == needed + (0 if out else snapshot or 0)


def test_the_turn_for_large_files_is_taken_once() -> None:
    """A snapshot that is dropped lets the sum fall and cross the line again."""

    async def kept_twice() -> None:
        memory = CopyMemory(0, 1)
        share = memory.share()
        await share.keep()
        await share.keep()
        share.leave()
        async with asyncio.timeout(10):
            await memory.share().keep()

    asyncio.run(kept_twice())


def test_what_is_left_out_takes_no_memory() -> None:
    files, piece = CopyFiles(), memoryview(bytes(MIB))
    size = COPY_FILES_BYTES_MAX + MIB
    for at in range(0, size, MIB):
        files.add(File(IndexType.PRODUCER_SNAPSHOT, piece, at, size))
    files.add(File(IndexType.LEADER_EPOCH, memoryview(b"0"), 0, 1))
    assert files.announced == 1
    assert files.whole() == {IndexType.LEADER_EPOCH: b"0"}
    assert files.left_out == {IndexType.PRODUCER_SNAPSHOT: size}
    with pytest.raises(BridgeError, match="Kafka writes none"):
        CopyFiles().add(File(IndexType.TIMESTAMP, piece, 0, SEGMENT_BYTES_MAX + 1))


def test_pieces_are_joined() -> None:
    files = CopyFiles()
    data = bytes(range(256)) * 40
    for piece in [*pieces(IndexType.TIMESTAMP, b""), *pieces(IndexType.TRANSACTION, data, 1000)]:
        files.add(piece)
    assert files.announced == len(data)
    assert files.whole() == {IndexType.TIMESTAMP: b"", IndexType.TRANSACTION: data}


def add_all(files: CopyFiles, pieces: list[File]) -> None:
    for piece in pieces:
        files.add(piece)


def test_pieces_that_do_not_fit_are_refused() -> None:
    first, second = list(pieces(IndexType.TRANSACTION, b"abcdef", 3))
    other = File(IndexType.TIMESTAMP, memoryview(b""), 0, 0)
    for wrong in (
        [second],
        [first, first],
        [first, replace(second, size=7)],
        [first, replace(second, data=memoryview(b"defg"))],
        [first, replace(second, data=memoryview(b""))],
        [replace(first, position=-1)],
        [replace(first, size=-6)],
        [first, other],
        [first, second, first],
    ):
        files = CopyFiles()
        with pytest.raises(BridgeError) as failed:
            add_all(files, wrong)
        assert failed.value.kind == "bad_request"
    files = CopyFiles()
    files.add(first)
    with pytest.raises(BridgeError, match="ends after 3 of 6 bytes"):
        files.whole()


def test_a_message_holds_a_piece_and_the_metadata_of_any_segment() -> None:
    assert FRAME_BYTES_MAX < MESSAGE_BYTES_MAX
    # An epoch's entry: two lengths, two tags, a varint of five bytes and one of nine.
    assert LEADER_EPOCHS_MAX * 20 + LATER_INDEX_BYTES_MAX + 64 * KIB < MESSAGE_BYTES_MAX


def test_an_object_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    client = MemoryStore()
    store = ObjectStore(client, ReadClients(client), "memory://")
    store.put_if_absent("index/x", b"abc")
    monkeypatch.setattr("rsm_bridge.storage.object_store.INDEX_BYTES_MAX", 3)
    assert store.read("index/x").data == b"abc"
    monkeypatch.setattr("rsm_bridge.storage.object_store.INDEX_BYTES_MAX", 2)
    with pytest.raises(BridgeError, match="has 3 bytes") as failed:
        store.read("index/x")
    assert failed.value.kind == "corrupt_object"
    assert INDEX_BYTES_MAX > COPY_FILES_BYTES_MAX


def test_an_index_that_would_be_too_large_is_refused(
    bridge: Running, shim: ShimClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rsm_bridge.serving.copy.attempt.INDEX_BYTES_MAX", 1000)
    segment = segment_of(LogBuilder().fill(batches=3))
    with pytest.raises(ShimError, match="more than 1000") as failed:
        shim.copy(segment)
    assert failed.value.kind == "invalid_segment"
    assert not list(bridge.store.list_after(f"data/{segment.topic_id.hex()}/"))


@pytest.mark.parametrize("size", [0, -1, 2**31 - 1])
def test_a_batch_of_a_size_that_none_can_have_is_damage(size: int) -> None:
    from converter.errors import SegmentError

    batches = np.zeros(2, dtype=BATCH_DTYPE)
    batches["served_size"] = (100, size)
    empty = np.empty(0, dtype=np.int64)
    block = Block(number=0, first_batch=7, batches=batches, pages=None, deltas=empty, deltas_start=0)  # type: ignore[arg-type]
    with pytest.raises(SegmentError, match=str(size)) as failed:
        cut(block)
    assert failed.value.kind == "corrupt_object"
    assert FETCH_CHUNK_BYTES_MAX == SEGMENT_BYTES_MAX
