"""A store that is slower than a fetch may take: reads come late, but they come; publishing never hurries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import ObjectNotFoundError, StoreError
from rsm_bridge.storage import read_clients
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.read_clients import ReadClients
from tests.support.answering_server import Answer, AnsweringServer, Request, answering

QUICK_S = 0.2
SLOW_S = 0.5


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering() as running:
        yield running


def store_at(server: AnsweringServer, fetch_timeout: str = f"{QUICK_S * 1000:.0f}ms") -> ObjectStore:
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    options = {"endpoint": server.uri, "region": "us-east-1", "allow_http": True, **keys}
    store = {"url": "s3://bucket", "options": options, "fetch_timeout": fetch_timeout}
    return open_store(load_settings(None, {"store": store}))


def slow(_: Request) -> Answer:
    time.sleep(SLOW_S)
    return 200, b"bytes"


def test_a_slow_answer_is_waited_for_and_the_next_one_at_once(server: AnsweringServer) -> None:
    server.answers = slow
    store = store_at(server)
    assert store.read("k").data == b"bytes"
    assert len(server.seen) > 1
    server.seen.clear()
    started = time.monotonic()
    assert store.read("k").data == b"bytes"
    assert time.monotonic() - started < SLOW_S + QUICK_S
    assert len(server.seen) == 1


def test_a_store_that_is_quick_again_is_hurried_again(server: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_clients, "SLOW_STORE_SECONDS", 0.3)
    server.answers = slow
    store = store_at(server)
    store.read("k")
    server.answers = lambda _: (200, b"bytes")
    time.sleep(0.4)
    hung = threading.Event()

    def one_hangs(_: Request) -> Answer | None:
        if hung.is_set():
            return 200, b"bytes"
        hung.set()
        time.sleep(SLOW_S)
        return 200, b"late"

    server.answers = one_hangs
    assert store.read("k").data == b"bytes", "the hanging request was given up and asked again"


def test_what_is_answered_at_once_is_not_asked_again(server: AnsweringServer) -> None:
    store = store_at(server)
    server.answers = lambda _: (404, {})
    with pytest.raises(ObjectNotFoundError):
        store.read("k")
    assert len(server.seen) == 1
    server.seen.clear()
    server.answers = lambda _: (403, {})
    with pytest.raises(StoreError):
        store.read("k")
    assert len(server.seen) == 1


def test_a_slow_refusal_is_asked_again_while_there_is_time(server: AnsweringServer) -> None:
    """As in `tierberg status`, which gives each request 5 s: one refusal of ten is no store that is away."""

    def refused_twice(_: Request) -> Answer:
        time.sleep(1.2)
        return (503, {}) if len(server.seen) < 3 else (200, b"bytes")

    server.answers = refused_twice
    assert store_at(server, fetch_timeout="5s").read("k").data == b"bytes"


def test_work_nobody_waits_for_takes_its_time(server: AnsweringServer) -> None:
    server.answers = slow
    started = time.monotonic()
    assert store_at(server).unhurried().read("k").data == b"bytes"
    assert time.monotonic() - started < SLOW_S + QUICK_S
    assert len(server.seen) == 1


def test_one_client_alone_is_asked_once() -> None:
    asked: list[object] = []

    def question(client: object) -> None:
        asked.append(client)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        ReadClients("client").ask(question)  # type: ignore[arg-type]
    assert asked == ["client"]
