"""A real registry that is away, or errs, for two minutes of steady producing: copies go on, columns follow.

It is away when a schema comes up that the bridge has never asked for: on a topic that has columns already, and on one
whose first records these are. Topics whose schemas are known notice nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from rsm_bridge.status.verify.store import verify_store
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_status import causes, only_partition, status
from tests.e2e.e2e_support import Pair
from tests.e2e.e2e_typed import columns_are, published, register
from tests.e2e.e2e_typed_stream import (
    HEADER,
    QUIET,
    Stream,
    columns_equal,
    frontier_rows,
    no_copy_failed,
    stored,
    turns,
    wait_copied,
    wait_frontier,
)
from tests.support.fault_proxy import FaultProxy, Weather, fault_proxy
from tests.support.typed_case import Kind
from tests.support.typed_json import JSON
from tests.support.typed_wide import wide
from tierberg.stack.lake import Lake
from tierberg.stack.servers.registry import RegistryServer
from tierberg.stack.servers.versitygw import can_be_had
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]  # the first use fetches servers and builds one

AWAY_S = 120
SILENT_S = 20
PAUSE_S = 2.0
#: What was sent is off the broker's disk after this; a copy that waited for the registry each time would not be.
COPIED_S = 120
CAUGHT_UP_S = 600
KNOWN, WIDENED, NEW = "avro-known", "avro-widened", "json-new"
NARROW, WIDE = wide(16, 20, 0, 200), wide(20, 20, 1000, 200)


@dataclass
class Scene:
    """The registry is reached through the proxy by the bridge, and directly by the test."""

    pair: Pair
    catalog: Catalog
    registry: RegistryServer
    proxy: FaultProxy
    ids: dict[str, int]

    def framed(self, kind: Kind, subject: str) -> list[bytes]:
        return [kind.framed(self.ids[subject], value) for value in kind.values]


def registered(registry: RegistryServer) -> dict[str, int]:
    """Schema ids by subject."""
    given = {"narrow": NARROW, "wide": WIDE, "json": JSON}
    with closing(SchemaRegistryClient({"url": registry.url, "timeout": 30})) as client:
        return {subject: register(client, f"{subject}-value", kind) for subject, kind in given.items()}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """With a lake of its own: the topics of another scene have the same names."""
    if not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    lake, registry = Lake(tmp_path / "lake"), RegistryServer(tmp_path / "registry")
    rules = [NARROW.rule("avro-.*", "wire"), JSON.rule("json-.*", "wire")]
    with ExitStack() as stack:
        lake.start()
        stack.callback(lake.stop)
        stack.callback(registry.stop)
        registry.start()
        proxy = stack.enter_context(fault_proxy(registry.port))
        asked = {"url": registry.url.replace(str(registry.port), str(proxy.port)), "request_timeout": "2s"}
        settings = lake.bridge_settings() | {"topics": rules, "schema_registry": asked}
        settings["store"]["fetch_timeout"] = "10s"  # two cores for six servers
        catalog = stack.enter_context(
            closing(open_catalog(CatalogSettings("reader", lake.catalog.client_properties())))
        )
        pair = start_pair(tmp_path / "pair", bridge_settings=settings)
        stack.callback(pair.bridge.stop)
        stack.callback(pair.broker.stop)
        yield Scene(pair, catalog, registry, proxy, registered(registry))


@contextmanager
def gone(scene: Scene) -> Iterator[str]:
    """Silent for a while, then its process is killed. It comes back with the schemas it had, under their ids."""
    process = scene.registry.process
    process.freeze()
    killing = threading.Timer(SILENT_S, process.kill)
    killing.start()
    try:
        yield "schema registry at "
    finally:
        killing.join()
        # It keeps schemas in memory: nobody is to ask before they are in it again.
        scene.proxy.weather = Weather(refused=1.0)
        scene.registry.start()
        assert registered(scene.registry) == scene.ids
        scene.proxy.weather = Weather()


@contextmanager
def erring(scene: Scene) -> Iterator[str]:
    """It answers each request with a status of 500."""
    scene.proxy.weather = Weather(refused=1.0, refusal=500)
    try:
        yield "answers 500"
    finally:
        scene.proxy.weather = Weather()


Outage = Callable[[Scene], AbstractContextManager[str]]


def waits(pair: Pair, topic: str) -> bool:
    return "columns_wait" in causes(only_partition(status(pair, topic)))


def why(pair: Pair, topic: str) -> str:
    """What `tierberg status` says the topic's rows wait for. For that nobody is needed yet."""
    found = only_partition(status(pair, topic))
    (finding,) = [item for item in found["findings"] if item["code"] == "columns_wait"]
    assert finding["level"] == "waits", finding
    return str(finding["said"])


def waiting_for_registry(pair: Pair, topic: str) -> int:
    """How many segments were stored without columns because of it. The catalog may be slow, too."""
    return sum("schema registry" in (item.pending or "") for item in stored(pair, topic))


def goes_on(scene: Scene, streams: dict[str, Stream], still: dict[str, int], reason: str) -> int:
    """Copies go on for AWAY_S, and the table of a known schema; the others stand. How often that was seen."""
    pair, ends, rounds = scene.pair, time.monotonic() + AWAY_S, 0
    while time.monotonic() < ends:
        end = streams[KNOWN].end()
        wait_copied(streams.values(), COPIED_S)
        wait_frontier(pair, KNOWN, end, COPIED_S)
        for topic, rows in still.items():
            assert reason in (said := why(pair, topic)), said
            assert frontier_rows(scene.catalog, topic) == rows
        no_copy_failed(pair, streams)
        rounds += 1
    return rounds


@pytest.mark.parametrize("outage", [gone, erring], ids=["gone", "erring"])
def test_two_minutes_without_the_registry(scene: Scene, outage: Outage) -> None:
    pair = scene.pair
    narrow, other = scene.framed(NARROW, "narrow"), scene.framed(WIDE, "wide")
    streams = {topic: Stream(pair, topic, turns(narrow), PAUSE_S) for topic in (KNOWN, WIDENED)}
    streams[NEW] = Stream(pair, NEW, turns(scene.framed(JSON, "json")), PAUSE_S)
    try:
        for topic in (KNOWN, WIDENED):
            streams[topic].start()
            wait_for(f"records in {topic}", streams[topic].end, COPIED_S)
        streams[WIDENED].exchange(turns(QUIET))
        rows = streams[WIDENED].end()
        wait_frontier(pair, WIDENED, rows, CAUGHT_UP_S)

        began = time.monotonic()
        with outage(scene) as reason:
            streams[WIDENED].exchange(turns(other, narrow))
            streams[NEW].start()
            wait_for("rows to wait", lambda: all(waits(pair, topic) for topic in (WIDENED, NEW)), COPIED_S, 1.0)
            rounds = goes_on(scene, streams, {WIDENED: rows, NEW: 0}, reason)
            ends = {topic: stream.end() for topic, stream in streams.items()}
            wait_copied(streams.values(), COPIED_S)
            away = time.monotonic() - began
            for stream in streams.values():
                stream.served()
            pending = {topic: waiting_for_registry(pair, topic) for topic in streams}
        back = time.monotonic()
        for topic, end in ends.items():
            wait_frontier(pair, topic, end, CAUGHT_UP_S)
        took = time.monotonic() - back
        print(f"{rounds} rounds in {away:.0f} s; pending segments {pending}; caught up in {took:.0f} s; rows {ends}")
    finally:
        for stream in streams.values():
            stream.stop()
    assert pending[KNOWN] == 0
    assert min(pending[WIDENED], pending[NEW]) > 1
    check(scene, streams)


def check(scene: Scene, streams: dict[str, Stream]) -> None:
    """Everything that was ever sent is in Kafka and, once, in the tables, with its columns."""
    pair = scene.pair
    wait_copied(streams.values(), COPIED_S)
    kinds = {scene.ids["narrow"]: NARROW, scene.ids["wide"]: WIDE}

    def columns(value: bytes) -> dict[str, Any]:
        return kinds[int.from_bytes(value[1:HEADER], "big")].columns(value[HEADER:])

    for topic, stream in streams.items():
        wait_frontier(pair, topic, stream.end(), CAUGHT_UP_S)
        table = published(scene.catalog, topic, len(stream.sent))
        if topic == NEW:
            columns_are(table, JSON, stream.sent, HEADER)
        else:
            columns_equal(table, stream.sent, columns)
        assert sorted(stream.sent) == table.column("_kafka_offset").to_pylist()
        stream.served()
        assert causes(only_partition(status(pair, topic))) == {"published"}
        report = verify_store(pair.bridge.folder / "tierberg.yaml", None, topic)
        assert report.damages == []
        assert report.rows == len(stream.sent)
    no_copy_failed(pair, streams)
