"""Large files beside the log, read by many at once: what they take of memory, and damage and merges meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from crc32c import crc32c

from converter.index.codec import decode_directory
from converter.types import IndexType
from rsm_bridge.limits import FETCH_CHUNK_BYTES, MIB
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.keys import index_prefix
from rsm_bridge.storage.local import LocalObjectStore
from tests.support.bridge_process import BridgeProcess, bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, segment_of

READERS = 20
FILE_BYTES = 48 * MIB + 12
GROWTH_BYTES_MAX = 160 * MIB
#: No two of its pieces are alike.
FILE = b"".join(number.to_bytes(4, "little") for number in range(FILE_BYTES // 4))


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Running]:
    with bridge_thread(test_settings(tmp_path)) as running:
        yield running


def stored(address: str, data: bytes = FILE) -> Segment:
    with ShimClient(address) as shim:
        return shim.copied(segment_of(LogBuilder().fill(2), files={IndexType.TIMESTAMP: data}))


def pieces(shim: ShimClient, segment: Segment) -> Iterator[bytes]:
    request = rsm_pb2.FetchIndexRequest(segment=segment.message(), type=rsm_pb2.IndexType.Name(IndexType.TIMESTAMP))
    call = shim.stub("unary_stream", "FetchIndex")(request.SerializeToString(), metadata=HEADERS, timeout=60)
    for chunk in call:
        yield rsm_pb2.FetchChunk.FromString(chunk).data


def high_water(pid: int) -> int:
    """The most memory the process has had at once, in bytes."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def test_twenty_readers_of_a_large_file_take_a_piece_each(tmp_path: Path) -> None:
    """All of them have begun before any goes on."""
    with bridge_thread(test_settings(tmp_path)) as running:
        segment = stored(running.address)
    begun = threading.Barrier(READERS, timeout=60)

    def read(address: str) -> tuple[int, int]:
        size = checksum = 0
        with ShimClient(address) as shim:
            for piece in pieces(shim, segment):
                if size == 0:
                    begun.wait()
                size, checksum = size + len(piece), crc32c(piece, checksum)
        return size, checksum

    with (
        BridgeProcess("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0") as bridge,
        ThreadPoolExecutor(READERS) as threads,
    ):
        with ShimClient(bridge.address) as shim:
            shim.fetch(segment)
        before = high_water(bridge.process.pid)
        found = list(threads.map(read, [bridge.address] * READERS))
        grown = high_water(bridge.process.pid) - before
    assert set(found) == {(FILE_BYTES, crc32c(FILE))}
    assert grown < GROWTH_BYTES_MAX, f"{grown / MIB:.0f} MiB for {READERS} readers of {FILE_BYTES / MIB:.0f} MiB"


@pytest.mark.parametrize("size", [0, 1, FETCH_CHUNK_BYTES - 1, FETCH_CHUNK_BYTES, FETCH_CHUNK_BYTES + 1])
def test_sizes_about_a_piece_come_back_byte_for_byte(bridge: Running, size: int) -> None:
    segment = stored(bridge.address, FILE[:size])
    with ShimClient(bridge.address) as shim:
        assert shim.fetch_index(segment, IndexType.TIMESTAMP) == FILE[:size]


def index_of(bridge: Running, segment: Segment) -> tuple[Path, int, int]:
    """The index's file, and where the TIMESTAMP file begins and ends in it."""
    (found,) = bridge.store.list_after(index_prefix(segment.topic_id))
    section = decode_directory(bridge.store.read(found.key).data).files[IndexType.TIMESTAMP]
    path = Path(bridge.store.uri(found.key).removeprefix("file://"))
    return path, section.offset, section.offset + section.size


@pytest.mark.parametrize("at", ["first piece", "middle", "last byte"])
def test_a_flip_anywhere_fails_the_read_before_its_last_piece(bridge: Running, at: str) -> None:
    size = 3 * FETCH_CHUNK_BYTES + 5
    segment = stored(bridge.address, FILE[:size])
    path, start, end = index_of(bridge, segment)
    data = bytearray(path.read_bytes())
    data[{"first piece": start + 1, "middle": (start + end) // 2, "last byte": end - 1}[at]] ^= 1
    path.write_bytes(data)
    got: list[bytes] = []
    with ShimClient(bridge.address) as shim, pytest.raises(grpc.RpcError) as failed:
        got.extend(pieces(shim, segment))
    assert ShimError(failed.value).kind == "corrupt_object"
    assert "index/" in str(ShimError(failed.value))
    assert sum(map(len, got)) < size


def test_an_index_that_was_written_anew_meanwhile_is_no_damage(
    bridge: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file lies elsewhere in the new index: the read says that it is to be repeated, and is right then."""
    data = FILE[: 4 * FETCH_CHUNK_BYTES]
    segment = stored(bridge.address, data)
    path, start, _ = index_of(bridge, segment)
    ranged = LocalObjectStore.get_range

    def moved(self: LocalObjectStore, key: str, at: int, length: int) -> memoryview:
        if at == start + 2 * FETCH_CHUNK_BYTES:
            again = segment_of(LogBuilder().fill(2), files={IndexType.TIMESTAMP: FILE[8 : 8 + len(data)]})
            with ShimClient(bridge.address) as other:
                theirs, _, _ = index_of(bridge, other.copied(replace(again, topic_id=b"o" * 16)))
            path.write_bytes(theirs.read_bytes())
        return ranged(self, key, at, length)

    before = path.read_bytes()
    monkeypatch.setattr(LocalObjectStore, "get_range", moved)
    with ShimClient(bridge.address) as shim:
        with pytest.raises(ShimError, match="written anew") as failed:
            shim.fetch_index(segment, IndexType.TIMESTAMP)
        assert failed.value.kind == "store_unavailable"
        monkeypatch.setattr(LocalObjectStore, "get_range", ranged)
        path.write_bytes(before)
        assert shim.fetch_index(segment, IndexType.TIMESTAMP) == data
