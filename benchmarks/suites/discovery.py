"""What it costs to find unpublished work among 100,000 index objects, on files and on an S3 server.

All objects have the bytes of one real index, which reading does not mind. Ten partitions; in each one segment is new.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.bridge_client import BridgeClient
from benchmarks.meters import Spent, median, memory_bytes, spent, tree_cpu_s
from benchmarks.results import Case, Cases
from benchmarks.run import Plan, say
from benchmarks.segments import segment
from rsm_bridge.config.settings import load_settings
from rsm_bridge.limits import INDEX_READERS
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject, ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.listing import Notices, SegmentListing
from tierberg.stack.lake import Lake
from tierberg.stack.servers.bridge import Bridge

_PARTITIONS = 10
_OFFSETS = 100  # of one segment
_TOPIC_ID = b"discovery-bench!"
_WRITERS = 16


@dataclass(slots=True)
class _Place:
    """A store. `server`: CPU seconds of its server so far."""

    name: str
    store: ObjectStore
    server: Callable[[], float]


class _Requests:
    """Counts the pages and reads that a listing asks its store for."""

    def __init__(self, store: ObjectStore) -> None:
        self.keys = 0
        self.reads = 0
        list_after, head_bytes = store.list_after, store.head_bytes

        def listed(prefix: str, after: str | None = None) -> Iterator[ListedObject]:
            for item in list_after(prefix, after):
                self.keys += 1
                yield item

        def read(key: str, length: int) -> memoryview:
            self.reads += 1
            return head_bytes(key, length)

        store.list_after = listed  # type: ignore[method-assign]
        store.head_bytes = read  # type: ignore[method-assign]


def measure(plan: Plan) -> Cases:
    """Cases of discovery_ahead, discovery_notice, discovery_whole and discovery_start, for each store."""
    objects = 2_000 if plan.quick else 100_000
    index = _index(plan.folder / "index")
    cases: Cases = {name: [] for name in ("discovery_ahead", "discovery_notice", "discovery_whole", "discovery_start")}
    with _places(plan) as places, ThreadPoolExecutor(INDEX_READERS) as readers:
        for place in places:
            _fill(place.store, index, objects)
            _add(cases, place, readers, objects)
    return cases


@contextmanager
def _places(plan: Plan) -> Iterator[list[_Place]]:
    files = _Place("files", open_store(load_settings(None, {"data_dir": plan.folder / "files"})), lambda: 0.0)
    if plan.quick:
        yield [files]
        return
    lake = Lake(plan.folder / "lake")
    lake.start()
    try:
        settings = load_settings(None, {"data_dir": plan.folder / "s3", "store": lake.bridge_settings()["store"]})
        yield [files, _Place("S3", open_store(settings), lambda: tree_cpu_s(lake.s3.process.pid))]
    finally:
        lake.stop()


def _index(folder: Path) -> bytes:
    """The index of a small segment, as a bridge wrote it."""
    bridge = Bridge(folder)
    bridge.start()
    try:
        one = segment("synthetic-100", "none", "16k", 200_000)
        with BridgeClient(bridge.target) as client:
            client.copy(one.metadata, memoryview(one.data))
    finally:
        bridge.stop()
    found = next(path for path in (folder / "store" / "index").rglob("*") if path.is_file())
    return found.read_bytes()


def _key(partition: int, number: int) -> IndexKey:
    base = number * _OFFSETS
    name = (partition * 1_000_000 + number).to_bytes(16, "big")
    return IndexKey(topic_id=_TOPIC_ID, partition=partition, last=base + _OFFSETS - 1, base=base, segment_id=name)


def _fill(store: ObjectStore, index: bytes, objects: int) -> None:
    keys = [_key(number % _PARTITIONS, number // _PARTITIONS) for number in range(objects)]
    with ThreadPoolExecutor(_WRITERS) as writers:
        for _ in writers.map(lambda key: store.put_if_absent(str(key), index, sync=False), keys):
            pass


def _add(cases: Cases, place: _Place, readers: ThreadPoolExecutor, objects: int) -> None:
    bench = _Bench(place, _Requests(place.store), f"{place.name}, {objects:,} indexes")
    listing = SegmentListing(store=place.store, topic_id=_TOPIC_ID, readers=readers)
    before = memory_bytes(os.getpid())
    start = bench.case(listing.whole, 1)
    start.extra["bytes_held_per_index"] = (memory_bytes(os.getpid()) - before) / objects
    cases["discovery_start"].append(start)
    cases["discovery_whole"].append(bench.case(listing.whole, 3))
    last = objects // _PARTITIONS - 1
    frontiers = dict.fromkeys(range(_PARTITIONS), last * _OFFSETS)
    keys = frozenset(_key(partition, last) for partition in range(_PARTITIONS))
    for name, notices in (("discovery_ahead", Notices(look=True)), ("discovery_notice", Notices(keys))):
        # A listing that knows nothing: it sees one new segment in each partition.
        look = partial(_look, place.store, readers, frontiers, notices)
        cases[name].append(bench.case(look, 10))


def _look(
    store: ObjectStore, readers: ThreadPoolExecutor, frontiers: dict[int, int], notices: Notices
) -> dict[int, list[KnownSegment]]:
    return SegmentListing(store=store, topic_id=_TOPIC_ID, readers=readers).ahead(frontiers, notices)


@dataclass(slots=True)
class _Bench:
    place: _Place
    asked: _Requests
    name: str

    def case(self, work: Callable[[], object], rounds: int) -> Case:
        """Median wall seconds of `work`; what it asked of the store and the CPU it took stand beside."""
        self.asked.keys = self.asked.reads = 0
        server = self.place.server()
        runs: list[Spent] = []
        for _ in range(rounds):
            with spent() as took:
                work()
            runs.append(took)
        extra = {
            "cpu_s": median(item.cpu_s for item in runs),
            "server_cpu_s": (self.place.server() - server) / rounds,
            "keys_listed": self.asked.keys / rounds,
            "objects_read": self.asked.reads / rounds,
        }
        walls = [item.wall_s for item in runs]
        say(f"  {self.name}: {walls} {extra}")
        return Case(self.name, median(walls), runs=walls, extra=extra)
