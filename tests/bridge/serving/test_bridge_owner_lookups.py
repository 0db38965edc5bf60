"""Whose a topic is: what a caller may make the bridge read for it, and who waits meanwhile."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest

from converter.types import IndexType
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import (
    MIB,
    OWNER_BYTES_MAX,
    OWNER_HEAD_BYTES,
    OWNER_LOOKUPS_MAX,
    OWNER_UNKNOWN_MAX,
    OWNER_WORKERS,
)
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.owner_lookups import OwnerLookups
from rsm_bridge.serving.scheduling.call_pool import CallPool
from rsm_bridge.serving.scheduling.peers import Peer
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.keys import index_prefix
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.object_store import ListedObject, VersionedBytes
from rsm_bridge.storage.segments.topic_owners import TopicOwners
from tests.support import shim_client
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.certificates import Authority
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import HEADERS, Segment, ShimClient, ShimError, segment_of

RULES: list[dict[str, Any]] = [
    {"names": ["CN=broker"], "clusters": ["prod"], "may": "write"},
    {"names": ["CN=reader"], "clusters": ["prod"], "may": "read"},
    {"names": ["CN=stranger"], "clusters": ["other"], "may": "write"},
]
FLOOD = 200


class SlowStore(LocalObjectStore):
    """Listings of topics wait for `open`; counts them, and the bytes of indexes that were read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.open = threading.Event()
        self.open.set()
        self.listed: list[str] = []
        self.bytes = 0
        self.away = False

    def list_after(self, prefix: str, after: str | None = None) -> Iterator[ListedObject]:
        self.listed.append(prefix)
        assert self.open.wait(30)
        if self.away:
            raise StoreError("away")
        return super().list_after(prefix, after)

    def head_bytes(self, key: str, length: int) -> memoryview:
        found = super().head_bytes(key, length)
        self.bytes += len(found)
        return found

    def read(self, key: str) -> VersionedBytes:
        found = super().read(key)
        self.bytes += len(found.data)
        return found


@pytest.fixture
def store(tmp_path: Path) -> SlowStore:
    return SlowStore(tmp_path / "slow")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def bridge_settings(authority: Authority) -> dict[str, Any]:
    return {"tls": {**authority.settings(), "clients": RULES}, "reclaim_grace": "1h"}


def new_segment(**changes: Any) -> Segment:
    return segment_of(LogBuilder().fill(2), cluster="prod", topic_id=uuid.uuid4().bytes, **changes)


def outcome(call: Callable[[], object]) -> str | None:
    try:
        call()
    except ShimError as error:
        return error.kind
    return "ok"


@pytest.mark.parametrize(("name", "method"), [("reader", "fetch"), ("reader", "fetch_index"), ("broker", "delete")])
def test_calls_for_unknown_topics_delay_no_delete(
    name: str, method: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing that the flood asks for is answered."""
    entered, go_on, honest = threading.Semaphore(0), threading.Event(), new_segment()
    listing = LocalObjectStore.list_after

    def held(self: LocalObjectStore, prefix: str, after: str | None = None) -> Iterator[ListedObject]:
        if prefix in waiting:
            entered.release()
            assert go_on.wait(30)
        return listing(self, prefix, after)

    waiting: set[str] = set()
    tls = {**authority.settings(), "clients": RULES}
    with (
        bridge_thread(test_settings(tmp_path, tls=tls)) as bridge,
        ShimClient(bridge.address, authority.credentials("broker")) as broker,
        ShimClient(bridge.address, authority.credentials(name), timeout=30) as flooding,
        ThreadPoolExecutor(FLOOD) as threads,
    ):
        segments = [broker.copied(honest), broker.copied(replace(honest, segment_id=uuid.uuid4().bytes))]
        unknown = [new_segment() for _ in range(FLOOD)]
        waiting.update(index_prefix(segment.topic_id) for segment in unknown)
        monkeypatch.setattr(LocalObjectStore, "list_after", held)
        arguments = (IndexType.OFFSET,) if method == "fetch_index" else ()
        calls = [
            threads.submit(outcome, lambda segment=segment: getattr(flooding, method)(segment, *arguments))  # type: ignore[misc]
            for segment in unknown
        ]
        try:
            if method == "delete":
                for _ in range(OWNER_WORKERS):
                    assert entered.acquire(timeout=20)
            else:
                # Who may only read has no topic looked up at all.
                assert {call.result(timeout=30) for call in calls} == {"foreign_segment"}
            broker.timeout = 5.0
            for segment in segments:
                broker.delete(segment)
            assert entered._value == 0
        finally:
            go_on.set()
        ended = [call.result(timeout=30) for call in calls]
    if method == "delete":
        assert set(ended) <= {"ok", "overloaded", "deadline"}
        assert 0 < ended.count("overloaded") < FLOOD


def test_what_a_look_up_reads_does_not_grow_with_the_index(
    bridge: Running, authority: Authority, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an index with large files, and of the tombstone that has it inside."""
    with ShimClient(bridge.address, authority.credentials("broker")) as shim:
        segment = shim.copied(new_segment(files={IndexType.TIMESTAMP: bytes(12 * MIB)}))
        for _ in range(2):
            (found,) = bridge.store.list_after(index_prefix(segment.topic_id))
            assert found.size > 12 * MIB
            store.delete_many([found.key])
            store.put_if_absent(found.key, bridge.store.read(found.key).data)
            store.bytes = 0
            assert TopicOwners(store).cluster_of(segment.topic_id) == "prod"
            assert store.bytes == OWNER_HEAD_BYTES
            monkeypatch.setattr("rsm_bridge.storage.segments.topic_owners.OWNER_HEAD_BYTES", 500)
            store.bytes = 0
            assert TopicOwners(store).cluster_of(segment.topic_id) == "prod"
            assert 500 < store.bytes < OWNER_HEAD_BYTES
            monkeypatch.setattr("rsm_bridge.storage.segments.topic_owners.OWNER_HEAD_BYTES", OWNER_HEAD_BYTES)
            shim.delete(segment)


def test_a_look_up_reads_no_more_than_its_limit(
    bridge: Running, authority: Authority, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects that claim large directories, or are large tombstones of nothing, are not read on and on."""
    topic_id = uuid.uuid4().bytes
    for number in range(20):
        head = b"TBIX" + bytes(4) + (OWNER_BYTES_MAX - 1).to_bytes(4, "little")
        store.put_if_absent(f"{index_prefix(topic_id)}0/{number:020d}", head + bytes(3 * OWNER_HEAD_BYTES))
    with pytest.raises(BridgeError, match="none tells whose it is"):
        TopicOwners(store).cluster_of(topic_id)
    assert store.bytes <= OWNER_BYTES_MAX


def asked(store: SlowStore, work: Callable[[OwnerLookups, TopicOwners], Awaitable[None]]) -> None:
    """Runs `work` with the look-ups of a store."""

    async def run() -> None:
        with CallPool(OWNER_WORKERS, "owner") as pool:
            try:
                owners = TopicOwners(store)
                await asyncio.wait_for(work(OwnerLookups(owners, pool), owners), 30)
            finally:
                store.open.set()

    asyncio.run(run())


def peer(number: int) -> Peer:
    return Peer(f"ipv4:10.0.0.{number}", f"ipv4:10.0.0.{number}:5")


def test_many_calls_for_one_topic_are_one_look_up_and_unknown_ones_are_remembered(
    store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(lookups: OwnerLookups, _: TopicOwners) -> None:
        topic_id = uuid.uuid4().bytes
        store.open.clear()
        calls = [asyncio.ensure_future(lookups.cluster_of(topic_id, peer(number))) for number in range(50)]
        await asyncio.sleep(0.1)
        store.open.set()
        assert set(await asyncio.gather(*calls)) == {None}
        assert await lookups.cluster_of(topic_id, peer(1)) is None
        assert len(store.listed) == 1
        lookups.stored(topic_id)
        assert await lookups.cluster_of(topic_id, peer(1)) is None
        assert len(store.listed) == 2
        monkeypatch.setattr("rsm_bridge.serving.owner_lookups.OWNER_UNKNOWN_SECONDS", 0.0)
        lookups.stored(topic_id)
        for count in (3, 4):
            assert await lookups.cluster_of(topic_id, peer(1)) is None
            assert len(store.listed) == count

    asked(store, work)


def test_topics_that_tell_nothing_are_remembered_and_an_outage_is_not(store: SlowStore) -> None:
    async def work(lookups: OwnerLookups, _: TopicOwners) -> None:
        damaged = uuid.uuid4().bytes
        store.put_if_absent(f"{index_prefix(damaged)}0/{1:020d}", b"damage")
        for _again in range(2):
            with pytest.raises(BridgeError, match="none tells") as refused:
                await lookups.cluster_of(damaged, peer(1))
            assert refused.value.kind == "not_allowed"
        assert len(store.listed) == 1
        store.away = True
        topic_id = uuid.uuid4().bytes
        with pytest.raises(StoreError):
            await lookups.cluster_of(topic_id, peer(1))
        store.away = False
        assert await lookups.cluster_of(topic_id, peer(1)) is None

    asked(store, work)


def test_what_is_remembered_of_unknown_topics_has_a_limit(store: SlowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OWNER_UNKNOWN_MAX <= 10_000
    monkeypatch.setattr("rsm_bridge.serving.owner_lookups.OWNER_UNKNOWN_MAX", 2)

    async def work(lookups: OwnerLookups, _: TopicOwners) -> None:
        topics = [uuid.uuid4().bytes for _ in range(3)]
        first, second, third = topics
        for topic_id in (first, second, third, third, second, first):
            await lookups.cluster_of(topic_id, peer(1))
        assert store.listed == [index_prefix(topic_id) for topic_id in (first, second, third, first)]

    asked(store, work)


def test_callers_take_turns_and_the_queue_has_an_end(store: SlowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asks for very many is refused some, and another's look-up does not wait for the rest."""

    async def work(lookups: OwnerLookups, _: TopicOwners) -> None:
        store.open.clear()
        greedy = [asyncio.ensure_future(lookups.cluster_of(uuid.uuid4().bytes, peer(1))) for _ in range(FLOOD)]
        await asyncio.sleep(0.1)
        honest = uuid.uuid4().bytes
        answer = asyncio.ensure_future(lookups.cluster_of(honest, peer(2)))
        await asyncio.sleep(0.1)
        assert len(store.listed) == OWNER_WORKERS
        store.open.set()
        assert await answer is None
        results = await asyncio.gather(*greedy, return_exceptions=True)
        refused = [result for result in results if isinstance(result, BridgeError)]
        assert {error.kind for error in refused} == {"overloaded"}
        assert FLOOD - len(refused) <= OWNER_LOOKUPS_MAX // 2 + 1
        # One turn of the greedy one may come before, and what the other threads take meanwhile.
        assert store.listed.index(index_prefix(honest)) <= 2 * OWNER_WORKERS
        assert len(store.listed) == FLOOD - len(refused) + 1

    asked(store, work)


def test_a_look_up_has_a_deadline_and_goes_on_when_its_caller_leaves(
    store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(lookups: OwnerLookups, owners: TopicOwners) -> None:
        monkeypatch.setattr("rsm_bridge.serving.owner_lookups.OWNER_SECONDS_MAX", 0.1)
        store.open.clear()
        topic_id = uuid.uuid4().bytes
        with pytest.raises(BridgeError, match="was not found out within") as late:
            await lookups.cluster_of(topic_id, peer(1))
        assert late.value.kind == "deadline"
        store.open.set()
        await asyncio.gather(*(look_up.answer for look_up in lookups._flights.values()))
        await asyncio.sleep(0)
        assert await lookups.cluster_of(topic_id, peer(1)) is None
        assert len(store.listed) == 1
        monkeypatch.setattr("rsm_bridge.storage.segments.topic_owners.OWNER_SECONDS_MAX", -1.0)
        store.put_if_absent(f"{index_prefix(topic_id)}0/{1:020d}", b"damage")
        with pytest.raises(BridgeError, match="in time"):
            owners.cluster_of(topic_id)

    asked(store, work)


def test_who_joins_a_look_up_does_not_wait_for_the_turn_of_who_asked_first(store: SlowStore) -> None:
    async def work(lookups: OwnerLookups, _: TopicOwners) -> None:
        store.open.clear()
        shared = uuid.uuid4().bytes
        greedy = [asyncio.ensure_future(lookups.cluster_of(uuid.uuid4().bytes, peer(1))) for _ in range(40)]
        greedy.append(asyncio.ensure_future(lookups.cluster_of(shared, peer(1))))
        await asyncio.sleep(0.1)
        answers = [asyncio.ensure_future(lookups.cluster_of(shared, peer(2))) for _ in range(3)]
        await asyncio.sleep(0.1)
        store.open.set()
        assert set(await asyncio.gather(*answers)) == {None}
        await asyncio.gather(*greedy)
        assert store.listed.count(index_prefix(shared)) == 1
        assert store.listed.index(index_prefix(shared)) <= 2 * OWNER_WORKERS

    asked(store, work)


def test_what_was_asked_before_a_segment_was_stored_is_not_remembered(store: SlowStore) -> None:
    async def work(lookups: OwnerLookups, _: TopicOwners) -> None:
        topic_id = uuid.uuid4().bytes
        store.open.clear()
        answer = asyncio.ensure_future(lookups.cluster_of(topic_id, peer(1)))
        await asyncio.sleep(0.1)
        lookups.stored(topic_id)
        store.open.set()
        assert await answer is None
        assert await lookups.cluster_of(topic_id, peer(1)) is None
        assert len(store.listed) == 2

    asked(store, work)


def test_a_copy_begun_before_the_topic_had_an_owner_does_not_end_under_it(
    bridge: Running, authority: Authority
) -> None:
    """It takes as long as its sender likes, and the first index of a topic names the owner ever after."""
    ours = new_segment()
    first, *rest = shim_client.copy_messages(replace(new_segment(), topic_id=ours.topic_id, cluster="other"))
    outgoing: Queue[bytes | None] = Queue()
    outgoing.put(first)
    with (
        ShimClient(bridge.address, authority.credentials("broker")) as broker,
        ShimClient(bridge.address, authority.credentials("stranger")) as stranger,
    ):
        copy = stranger.stub("stream_stream", "CopySegment")(iter(outgoing.get, None), metadata=HEADERS, timeout=60)
        stages = (rsm_pb2.CopyResponse.FromString(data).heartbeat.stage for data in copy)
        assert "receiving" in stages, "it was allowed"
        ours = broker.copied(ours)
        for message in rest:
            outgoing.put(message)
        with pytest.raises(grpc.RpcError) as refused:
            list(stages)
        outgoing.put(None)
        assert ShimError(refused.value).kind == "not_allowed"
        assert len(list(bridge.store.list_after(index_prefix(ours.topic_id)))) == 1
        assert broker.fetch(ours) == ours.data
        assert TopicOwners(bridge.store).cluster_of(ours.topic_id) == "prod"
