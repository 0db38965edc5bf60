"""Tables that cannot be published: tried again with back-off, said once, and no delay for the others."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from iceberg_catalog.errors import CatalogError
from rsm_bridge.limits import PUBLISH_BACKOFF_SECONDS_MAX, PUBLISH_BACKOFF_SECONDS_MIN, PUBLISH_WORKERS
from rsm_bridge.serving import publisher as publisher_module
from rsm_bridge.serving.outages import Outages
from rsm_bridge.serving.publisher import Publisher, _backoff
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.segments.listing import Notices
from rsm_bridge.tables.publish.table_run import RunResult
from tests.support.bridge_process import publisher_of, test_settings
from tests.support.eventually import eventually
from tests.worlds.maintain_support import make_world

GOOD = b"good" * 4
HANG_S = 30.0
Behaviour = Callable[[], object]


class Desk:
    """Runs that do what the test says; counts them by topic id."""

    def __init__(self) -> None:
        self.behaviour: dict[bytes, Behaviour] = {}
        self.runs: dict[bytes, int] = defaultdict(int)
        self.ended = threading.Event()

    def hang(self) -> None:
        self.ended.wait(HANG_S)
        raise TimeoutError("read timed out")

    def has_run(self, topic_id: bytes, times: int) -> bool:
        return self.runs[topic_id] >= times

    def made_for(self, topic_id: bytes) -> Any:
        desk = self

        class Run:
            def run(self, _: Notices) -> RunResult:
                desk.runs[topic_id] += 1
                desk.behaviour.get(topic_id, lambda: None)()
                return RunResult(head=None, states={}, segments=[])

        return Run()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk()
    monkeypatch.setattr(Publisher, "_table_run", lambda _, topic_id: made.made_for(topic_id))
    monkeypatch.setattr(publisher_module, "_backoff", lambda _: 0.05)
    yield made
    made.ended.set()


@pytest.fixture
def said() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def publisher(tmp_path: Path, desk: Desk, said: list[dict[str, Any]]) -> Iterator[Publisher]:
    settings = test_settings(tmp_path, publish_interval="10ms")

    def keep(_: Any, __: str, event: Any) -> Any:
        said.append(event)
        raise structlog.DropEvent

    log = structlog.wrap_logger(None, processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(0))
    made = publisher_of(settings, log)
    made.start()
    yield made
    desk.ended.set()
    made.stop()


def events(said: list[dict[str, Any]]) -> list[str]:
    return [entry["event"] for entry in said]


def test_tables_run_beside_each_other(publisher: Publisher, desk: Desk) -> None:
    together = threading.Barrier(PUBLISH_WORKERS)
    for number in range(PUBLISH_WORKERS):
        topic_id = b"%016d" % number
        desk.behaviour[topic_id] = partial(together.wait, 10)
        publisher.notify(topic_id)
    eventually(lambda: len(desk.runs) == PUBLISH_WORKERS and together.n_waiting == 0)
    assert not together.broken


def test_tables_that_hang_again_and_again_do_not_delay_those_that_work(publisher: Publisher, desk: Desk) -> None:
    """As with a catalog or bucket that swallows the requests for some tables, twice as many as there are workers."""
    bad = [b"%016d" % number for number in range(2 * PUBLISH_WORKERS)]

    def refuse() -> None:
        raise CatalogError("unavailable", "no answer")

    for topic_id in bad:
        desk.behaviour[topic_id] = refuse
        publisher.notify(topic_id)
    eventually(lambda: all(desk.runs[topic_id] for topic_id in bad))
    for topic_id in bad:
        desk.behaviour[topic_id] = desk.hang
    time.sleep(0.3)
    waits = []
    for number in range(1, 6):
        asked = time.monotonic()
        publisher.notify(GOOD)
        eventually(partial(desk.has_run, GOOD, number))
        waits.append(time.monotonic() - asked)
    assert max(waits) < 2.0


def test_an_outage_of_all_tables_is_said_once_and_ends_once(
    publisher: Publisher, desk: Desk, said: list[dict[str, Any]]
) -> None:
    tables = [b"%016d" % number for number in range(3)]
    away = threading.Event()
    away.set()

    def asked(topic_id: bytes) -> None:
        if away.is_set():
            raise ConnectionError(f"Max retries exceeded with url: /v1/{topic_id.decode()} (refused)")

    for topic_id in tables:
        desk.behaviour[topic_id] = partial(asked, topic_id)
        publisher.notify(topic_id)
    eventually(lambda: all(desk.runs[topic_id] > 3 for topic_id in tables))
    assert events(said).count("publishing failed") == 1
    away.clear()
    eventually(lambda: "publishing works again" in events(said))
    time.sleep(0.3)
    assert events(said).count("publishing works again") == 1


def test_a_table_refused_for_good_is_not_said_anew_when_others_work(
    publisher: Publisher, desk: Desk, said: list[dict[str, Any]]
) -> None:
    def refused() -> None:
        raise CatalogError("schema_mismatch", "table kafka.bad is not ours")

    bad = b"bad!" * 4
    desk.behaviour[bad] = refused
    publisher.notify(bad)
    for number in range(1, 5):
        publisher.notify(GOOD)
        eventually(partial(desk.has_run, GOOD, number))
        eventually(partial(desk.has_run, bad, number + 1))
    assert events(said) == ["publishing failed"]


def test_a_table_with_another_cause_is_said_too() -> None:
    outages = Outages()
    assert outages.failed(b"a", "refused, url: /v1/a")
    assert not outages.failed(b"b", "refused, url: /v1/b")
    assert outages.failed(b"c", "not ours")
    assert not outages.works(b"a")
    assert not outages.works(b"a")
    assert outages.works(b"b")
    assert outages.failed(b"a", "refused, url: /v1/a")
    assert outages.works(b"c")


def test_tries_and_tables_that_differ_only_by_names_and_ids_have_one_cause() -> None:
    outages = Outages()
    refused = "OSError: When uploading part for key 'kafka/{}/metadata/{}-m0.avro': HTTP status {} (Request ID: {})"
    assert outages.failed(b"a", refused.format("orders1", "6edc5889-e7e1", 400, "T7WWYCTQG9UQJERM"))
    assert not outages.failed(b"a", refused.format("orders1", "bd01df43-7c92", 400, "EXQTU8ZE9S2W6P6Y"))
    assert not outages.failed(b"b", refused.format("orders2", "a15ff621-e28d", 400, "H9VZGJJC4LZKVMTQ"))
    assert outages.failed(b"b", refused.format("orders2", "0480c331-298a", 503, "VWXDGBTVXDUB3DGL"))


def test_back_off_doubles_up_to_its_limit_and_half_of_it_is_random() -> None:
    for failures, longest in ((1, PUBLISH_BACKOFF_SECONDS_MIN * 2), (3, PUBLISH_BACKOFF_SECONDS_MIN * 8), (50, 1e9)):
        longest = min(longest, PUBLISH_BACKOFF_SECONDS_MAX)
        drawn = [_backoff(failures) for _ in range(200)]
        assert longest / 2 <= min(drawn) < longest * 0.6
        assert longest * 0.9 < max(drawn) <= longest


def test_what_was_read_is_not_read_again_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is slow, or a catalog that is away, must not cost one read of every index at each try."""
    world = make_world(tmp_path)
    for _ in range(4):
        world.copy(2)
    read: list[str] = []
    head_bytes = ObjectStore.head_bytes

    def noted(self: ObjectStore, key: str, length: int) -> memoryview:
        if len(read) == 2:
            read.append("failed")
            raise CatalogError("unavailable", "in the middle of the listing")
        read.append(key)
        return head_bytes(self, key, length)

    monkeypatch.setattr(type(world.store), "head_bytes", noted)
    with pytest.raises(CatalogError):
        world.publish()
    world.publish()
    assert sorted(key for key in read if key != "failed") == sorted(world.stored("index"))
    assert world.offsets() == list(range(8))
