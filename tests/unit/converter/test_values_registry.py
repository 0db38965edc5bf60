"""The schema registry's client: what it keeps, what it says of each failure, and that nobody waits longer than told."""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from rsm_bridge import limits
from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.errors import SettingsError
from rsm_bridge.values.registry import schemas as registry_schemas
from rsm_bridge.values.registry.errors import (
    RegistryUnavailableError,
    SchemaRefusedError,
    SchemaUnknownError,
    SchemaUnusableError,
)
from rsm_bridge.values.registry.look_up_time import LookUpTime
from rsm_bridge.values.registry.registry import SchemaRegistry
from tests.support.answering_server import AnsweringServer, answering
from tests.support.eventually import eventually
from tests.support.registry_answers import Schemas, talking

AVRO = {"schema": '"long"'}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def opened(url: str, clock: Callable[[], float] = time.monotonic, **more: Any) -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry(SchemaRegistrySettings.model_validate({"url": url, **more}), clock)
    try:
        yield registry
    finally:
        registry.close()


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering() as started:
        yield started


@pytest.fixture
def schemas(server: AnsweringServer) -> Schemas:
    registered = Schemas()
    server.answers = registered.answer
    return registered


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ({"schema": '"long"'}, "avro", '"long"'),
        ({"schema": '"long"', "schemaType": "AVRO"}, "avro", '"long"'),
        ({"schema": "{}", "schemaType": "JSON"}, "json", "{}"),
        ({"schema": "message A {}", "schemaType": "PROTOBUF"}, "protobuf", "message A {}"),
        ({"schema": '"größe"', "references": None}, "avro", '"größe"'),
    ],
)
def test_a_schema_is_asked_for_once_by_id(
    server: AnsweringServer, schemas: Schemas, body: dict[str, Any], kind: str, text: str
) -> None:
    schemas.add(7, "orders-value", body)
    clock = Clock()
    with opened(server.uri, clock) as registry:
        found = registry.by_id(7)
        clock.now += 1e9
        assert registry.by_id(7) == found
        assert (found.id, found.kind, found.text, dict(found.references)) == (7, kind, text, {})
    assert len(server.seen) == 1


def test_the_latest_is_asked_for_again_after_its_time(server: AnsweringServer, schemas: Schemas) -> None:
    clock = Clock()
    schemas.add(1, "a b/c-value", AVRO)
    with opened(server.uri, clock, latest_refresh="90s") as registry:
        assert registry.latest("a b/c-value").id == 1
        schemas.add(2, "a b/c-value", {"schema": '"int"'}, version=2)
        clock.now += 89.9
        assert registry.latest("a b/c-value").id == 1
        clock.now += 0.1
        assert (registry.latest("a b/c-value").id, registry.latest("a b/c-value").text) == (2, '"int"')
    assert len(server.seen) == 2


def test_what_is_unknown_is_so_for_half_a_minute(server: AnsweringServer, schemas: Schemas) -> None:
    clock = Clock()
    with opened(server.uri, clock) as registry:
        for _ in range(3):
            with pytest.raises(SchemaUnknownError, match=r"schema id 5: .* has none \(404, Schema not found"):
                registry.by_id(5)
            with pytest.raises(SchemaUnknownError, match="subject nobody: "):
                registry.latest("nobody")
        assert len(server.seen) == 2
        schemas.add(5, "orders-value", AVRO)
        clock.now += limits.REGISTRY_MISS_SECONDS
        assert registry.by_id(5).id == 5


@pytest.mark.parametrize("number", [-1, 2**31, 2**32 - 1])
def test_what_can_be_no_id_is_not_asked_for(server: AnsweringServer, schemas: Schemas, number: int) -> None:
    with opened(server.uri) as registry, pytest.raises(SchemaUnknownError, match="ids are 0 to"):
        registry.by_id(number)
    assert not server.seen


def reference(name: str, subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


def test_references_come_with_it_each_after_its_own(server: AnsweringServer, schemas: Schemas) -> None:
    def proto(text: str, *references: dict[str, Any]) -> dict[str, Any]:
        return {"schema": text, "schemaType": "PROTOBUF", "references": list(references)}

    schemas.add(1, "deep", proto("D"))
    schemas.add(2, "left", proto("L", reference("deep.proto", "deep")))
    schemas.add(3, "right", proto("R", reference("deep.proto", "deep")))
    schemas.add(4, "top", proto("T", reference("left.proto", "left"), reference("right.proto", "right")))
    with opened(server.uri) as registry:
        assert list(registry.by_id(4).references.items()) == [
            ("deep.proto", "D"),
            ("left.proto", "L"),
            ("right.proto", "R"),
        ]
        assert registry.latest("top").references == registry.by_id(4).references
    assert all("deleted=true" in request.path.lower() for request in server.seen if "/versions/1" in request.path)


def test_a_circle_of_references_ends(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(1, "a", {"schema": "A", "references": [reference("b", "b")]})
    schemas.add(2, "b", {"schema": "B", "references": [reference("a", "a")]})
    with opened(server.uri) as registry:
        assert dict(registry.by_id(1).references) == {"b": "B", "a": "A"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"schema": "x", "schemaType": "XML"}, "of the kind 'XML', not Avro"),
        ({"schema": "x" * 300}, "larger than 256 bytes"),
        ({"schema": "ü" * 129}, "larger than 256 bytes"),
        ({"schema": "x", "references": [reference("n", "gone")]}, "refers to n, version 1 of gone, which the registry"),
        ({"schema": "x", "references": [reference("n", "json")]}, "n, which is a schema of another kind"),
        ({"schema": "x", "references": [reference("n", "big")]}, "larger than 256 bytes with all it refers to"),
        (
            {"schema": "x", "references": [reference("n", "a"), reference("n", "b")]},
            "1 of a in one place, version 1 of b",
        ),
        ({"schema": "x", "references": [reference("n", "deep")]}, "deeper than 3"),
        ({"schema": "x", "references": [reference(str(n), "a") for n in range(9)]}, "more than 8 others"),
        (
            {"schema": "x", "references": [{"name": "n", "subject": "a"}]},
            "without name, subject or",
        ),
    ],
)
def test_a_schema_that_cannot_be_used(
    server: AnsweringServer, schemas: Schemas, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(registry_schemas, "SCHEMA_BYTES_MAX", 256)
    monkeypatch.setattr(registry_schemas, "SCHEMA_REFERENCES_MAX", 8)
    monkeypatch.setattr(registry_schemas, "SCHEMA_REFERENCE_DEPTH_MAX", 3)
    schemas.add(1, "json", {"schema": "{}", "schemaType": "JSON"})
    schemas.add(2, "big", {"schema": "y" * 256})
    schemas.add(3, "a", {"schema": "a"})
    schemas.add(4, "b", {"schema": "b"})
    for depth in range(3):
        below = f"deep{depth + 1}" if depth < 2 else "a"
        name = f"deep{depth}" if depth else "deep"
        schemas.add(10 + depth, name, {"schema": "d", "references": [reference(f"r{depth}", below)]})
    schemas.add(9, "it", body)
    with opened(server.uri) as registry:
        with pytest.raises(SchemaUnusableError, match=said):
            registry.by_id(9)
        asked = len(server.seen)
        with pytest.raises(SchemaUnusableError, match=said):
            registry.by_id(9)
    assert len(server.seen) == asked


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {"error_code": 40101, "message": "Unauthorized"}), "answers 401, Unauthorized; check .*password"),
        ((403, {"error_code": 40301, "message": "denied"}), "answers 403, denied; give the user .* the right to read"),
        ((404, b"<html>nginx</html>"), "answers 404, .*is schema_registry.url the root"),
        ((404, {"error_code": 404, "message": "HTTP 404 Not Found"}), "is schema_registry.url the root"),
        ((429, {"message": "slow down"}), "too many requests"),
        ((500, {"error_code": 50001, "message": "store"}), "answers 500, store; see its log"),
        ((503, b""), "answers 503"),
        ((302, b""), "answers 302"),
        ((200, b"<html>login</html>"), "answers what is no schema"),
        ((200, b""), "answers what is no schema"),
        ((200, b"[]"), "answers what is no schema"),
        ((200, {"id": 1}), "answers what is no schema .*without a schema's text"),
        ((200, b"\xff\xfe"), "answers what is no schema"),
    ],
)
def test_a_registry_that_fails_says_nothing_about_schemas(
    server: AnsweringServer, schemas: Schemas, answer: Any, said: str
) -> None:
    clock = Clock()
    schemas.add(1, "a", AVRO)
    with opened(server.uri, clock, username="me", password="hunter2-hunter2") as registry:
        schemas.fail = lambda _: answer
        with pytest.raises(RegistryUnavailableError, match=said) as refused:
            registry.by_id(1)
        assert server.uri in str(refused.value)
        asked = len(server.seen)
        with pytest.raises(RegistryUnavailableError):
            registry.by_id(1)
        assert len(server.seen) == asked == 1
        schemas.fail = None
        clock.now += limits.REGISTRY_AGAIN_SECONDS
        assert registry.by_id(1).text == '"long"'


@pytest.mark.parametrize(
    ("answer", "sort", "malformed"),
    [
        ((403, {"error_code": 40301, "message": "denied"}), "403", False),
        ((500, {"error_code": 50001, "message": "store"}), "500", False),
        ((422, {"error_code": 42201, "message": "x"}), "422", False),
        ((404, b"<html>"), "404", False),
        ((301, b""), "301", False),
        ((200, b"<html>login</html>"), "JSONDecodeError", False),
        ((200, {"subject": "x"}), "TypeError", True),
        ((200, {"schema": "x", "references": {"name": "x"}}), "AttributeError", True),
        ((200, b"[" * 100_000), "RecursionError", True),
    ],
)
def test_an_answer_about_one_schema_is_not_about_the_others(
    server: AnsweringServer, schemas: Schemas, answer: Any, sort: str, malformed: bool
) -> None:
    good = (200, {"schema": '"int"'})
    schemas.fail = lambda request: answer if "/ids/1?" in f"{request.path}?" else good
    with opened(server.uri, Clock()) as registry:
        with pytest.raises(SchemaRefusedError, match=r"schema id 1: .* answers") as refused:
            registry.by_id(1)
        assert (refused.value.sort, refused.value.malformed, refused.value.everybody) == (sort, malformed, False)
        assert registry.by_id(2).text == '"int"'


@pytest.mark.parametrize("status", [401, 429, 502, 503, 504])
def test_an_outage_is_about_all_schemas(server: AnsweringServer, schemas: Schemas, status: int) -> None:
    schemas.fail = lambda _: (status, {})
    with opened(server.uri, Clock()) as registry:
        for number in (1, 2):
            with pytest.raises(RegistryUnavailableError) as failed:
                registry.by_id(number)
            assert not isinstance(failed.value, SchemaRefusedError)
    assert len(server.seen) == 1


def test_what_is_refused_is_asked_for_again_with_growing_pauses(server: AnsweringServer, schemas: Schemas) -> None:
    clock = Clock()
    schemas.fail = lambda _: (403, {})
    with opened(server.uri, clock) as registry:
        for tries, pause in enumerate((2.0, 4.0, 8.0, 16.0, limits.REGISTRY_MISS_SECONDS), start=1):
            for elapsed in (0.0, pause - 0.1):
                clock.now += elapsed
                with pytest.raises(SchemaRefusedError) as refused:
                    registry.by_id(1)
                assert refused.value.tries == tries
            assert len(server.seen) == tries
            clock.now += 0.1
        schemas.fail = None
        schemas.add(1, "a", AVRO)
        assert registry.by_id(1).text == '"long"'


@pytest.mark.parametrize("answer", [(404, b"<html>"), (403, {}), (200, {})])
def test_an_answer_about_a_reference_is_about_what_refers_to_it(
    server: AnsweringServer, schemas: Schemas, answer: Any
) -> None:
    body = {"schema": "x", "references": [reference("n", "a")]}
    schemas.fail = lambda request: (200, body) if "/ids/" in request.path else answer
    with opened(server.uri) as registry, pytest.raises(SchemaRefusedError, match="schema id 1: "):
        registry.by_id(1)


@pytest.mark.parametrize("subject", ["\ud800", "long" * 20_000])
def test_a_reference_that_no_request_can_name(server: AnsweringServer, schemas: Schemas, subject: str) -> None:
    schemas.add(1, "it", {"schema": "x", "references": [reference("n", subject)]})
    with opened(server.uri) as registry, pytest.raises(SchemaUnusableError, match="no request can name"):
        registry.by_id(1)


def test_settings_that_no_request_can_be_made_of_are_about_all_schemas() -> None:
    with opened("http://127.0.0.1:99999") as registry, pytest.raises(RegistryUnavailableError) as failed:
        registry.by_id(1)
    assert failed.value.everybody


def test_nobody_there_is_said_at_once_and_known_schemas_stay(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(1, "a", AVRO)
    with talking(lambda: iter(()), 0.0) as gone:
        pass
    with opened(f"{gone},{server.uri}") as registry:  # the second is asked
        assert registry.by_id(1).id == 1
        schemas.fail = lambda _: (503, {})
        with pytest.raises(RegistryUnavailableError):
            registry.by_id(2)
        assert registry.by_id(1).id == 1
    with opened(gone) as registry, pytest.raises(RegistryUnavailableError, match=r"ConnectError.*check that it runs"):
        registry.by_id(1)


def silence() -> Iterator[bytes]:
    return itertools.repeat(b"")


def dripping_head() -> Iterator[bytes]:
    return itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], itertools.repeat(b"x"))


def dripping_body() -> Iterator[bytes]:
    return itertools.chain([b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"], itertools.repeat(b"x"))


def hanging_up() -> Iterator[bytes]:
    return iter([b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nx"])


def registry_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("registry")]


@pytest.mark.parametrize("way", [silence, dripping_head, dripping_body])
def test_a_look_up_ends_at_its_deadline_and_leaves_nothing_running(way: Callable[[], Iterator[bytes]]) -> None:
    with talking(way, 0.05) as uri, opened(uri, request_timeout="400ms") as registry:
        began = time.monotonic()
        with pytest.raises(RegistryUnavailableError):
            registry.by_id(1)
        assert 0.3 < time.monotonic() - began < 1.5
        # After that nobody waits: not for it, and not for another.
        began = time.monotonic()
        for number in range(50):
            with pytest.raises(RegistryUnavailableError, match="not asked for, since a moment ago"):
                registry.by_id(number)
        assert time.monotonic() - began < 0.2
        began = time.monotonic()
        registry.close()
        assert time.monotonic() - began < 1.5
        assert not registry_threads()


def test_who_has_less_patience_finds_later_what_a_look_up_brings(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.by_id |= dict.fromkeys(range(1, 4), AVRO)
    patience = LookUpTime(0.3)

    def hastily(registry: SchemaRegistry, number: int) -> str:
        with patience.of_this_thread():
            return registry.by_id(number).text

    schemas.delay = 0.2
    with opened(server.uri, request_timeout="5s") as registry:
        assert hastily(registry, 1) == '"long"'
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError, match=r"schema id 2: .* has not answered yet"):
                hastily(registry, 2)
        assert patience.seconds <= 0
        assert hastily(registry, 1) == '"long"'
        eventually(lambda: not registry._calls)
        assert hastily(registry, 2) == '"long"'
        assert registry.by_id(3).text == '"long"'  # this thread has as much as ever
    assert len(server.seen) == 3


@pytest.mark.parametrize("way", [silence, dripping_head])
def test_a_look_up_that_nobody_is_patient_with_ends_at_its_deadline(way: Callable[[], Iterator[bytes]]) -> None:
    """By itself, or because the first who asks afterwards ends it."""

    def still_runs() -> bool:
        with LookUpTime(0.01).of_this_thread(), pytest.raises(RegistryUnavailableError) as failed:
            registry.by_id(1)
        return "has not answered yet" in str(failed.value)

    with talking(way, 0.05) as uri, opened(uri, request_timeout="400ms") as registry:
        began = time.monotonic()
        assert still_runs()
        eventually(lambda: not still_runs())
        assert 0.3 < time.monotonic() - began < 1.5


def test_several_are_looked_up_at_a_time_and_one_worker_stays_free(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.by_id |= dict.fromkeys(range(30), AVRO)
    schemas.delay = 0.3
    with opened(server.uri) as registry:
        began = time.monotonic()
        registry.ask([-1, *range(20), 2**31])
        assert registry.by_id(25).text == '"long"'
        assert time.monotonic() - began < 2 * schemas.delay
        eventually(lambda: not registry._calls)
        assert [registry.by_id(number).text for number in range(limits.REGISTRY_WORKERS - 1)] == ['"long"'] * 3
    assert len(server.seen) == limits.REGISTRY_WORKERS


@pytest.mark.parametrize("key", [50, "subject"])
def test_what_nobody_waits_for_any_more_keeps_no_worker(key: int | str) -> None:
    """Its bytes come one at a time, so that no time-out of a read ends it."""
    with talking(dripping_body, 0.05) as uri, opened(uri, request_timeout="300ms") as registry:
        registry.ask(range(4))
        time.sleep(0.5)
        with pytest.raises(RegistryUnavailableError):
            registry.by_id(key) if isinstance(key, int) else registry.latest(key)
        assert not registry._calls


def flood() -> Iterator[bytes]:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n"
    return itertools.chain([head], itertools.repeat(b"x" * (1 << 20)))


def packed() -> Iterator[bytes]:
    body = gzip.compress(json.dumps({"schema": "x" * 1000}).encode())
    return iter([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body), body])


def test_an_answer_is_bounded_while_it_comes_in() -> None:
    # One schema that is too large is no trouble of the others: it is told apart from a registry that is away.
    with talking(flood, 0.0) as uri, opened(uri, request_timeout="20s") as registry:
        for number in (1, 2):
            with pytest.raises(SchemaUnusableError, match=f"id {number}: an answer of more than 16777216 bytes"):
                registry.by_id(number)


def test_an_answer_is_not_unpacked() -> None:
    told = pytest.raises(SchemaRefusedError, match="a packed answer")
    with talking(packed, 0.0) as uri, opened(uri) as registry, told:
        registry.by_id(1)


def test_a_large_schema_within_the_limit_is_read(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(1, "a", {"schema": '"' * (limits.SCHEMA_BYTES_MAX - 10)})
    with opened(server.uri, request_timeout="20s") as registry:
        assert len(registry.by_id(1).text) == limits.SCHEMA_BYTES_MAX - 10


def test_a_connection_that_ends_in_the_middle_is_a_failure() -> None:
    with talking(hanging_up, 0.0) as uri, opened(uri) as registry, pytest.raises(RegistryUnavailableError):
        registry.by_id(1)


def test_it_recovers_after_every_worker_was_held_up(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(1, "a", AVRO)
    clock = Clock()
    with opened(server.uri, clock, request_timeout="500ms") as registry, ThreadPoolExecutor(12) as copies:
        schemas.fail = lambda _: None
        asked = [copies.submit(registry.by_id, number) for number in range(12)]
        assert all(isinstance(call.exception(5), RegistryUnavailableError) for call in asked)
        schemas.fail = None
        clock.now += 1000
        assert registry.by_id(1).id == 1


def test_those_who_want_the_same_ask_once(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(1, "a", AVRO)
    may = threading.Event()

    def later(_: Any) -> Any:
        assert may.wait(10)
        return 200, AVRO

    schemas.fail = later
    with opened(server.uri, request_timeout="10s") as registry, ThreadPoolExecutor(8) as copies:
        asked = [copies.submit(registry.by_id, 1) for _ in range(8)]
        while not server.seen:
            time.sleep(0.01)
        may.set()
        assert {call.result(10).id for call in asked} == {1}
    assert len(server.seen) == 1


def test_credentials_are_sent_and_never_said(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.fail = lambda request: (
        500,
        {"message": f"you sent {request.headers.get('Authorization')} hunter2-hunter2"},
    )
    with opened(server.uri, username="me", password="hunter2-hunter2") as registry:
        with pytest.raises(RegistryUnavailableError, match=r"\[hidden\]") as refused:
            registry.by_id(1)
        assert "hunter2" not in str(refused.value)
        assert "bWU6aHVudGVy" not in str(refused.value)
        assert server.seen[0].headers["Authorization"].startswith("Basic bWU6aHVudGVy")
        assert "hunter2" not in repr(registry._settings)
    with opened(server.uri, bearer_token="hunter2-token", logical_cluster="lsrc-1") as registry:
        with pytest.raises(RegistryUnavailableError, match=r"\[hidden\]"):
            registry.by_id(1)
        assert server.seen[1].headers["Authorization"] == "Bearer hunter2-token"
        assert server.seen[1].headers["target-sr-cluster"] == "lsrc-1"


def test_after_its_end_it_says_so(server: AnsweringServer, schemas: Schemas) -> None:
    with opened(server.uri) as registry:
        registry.close()
        with pytest.raises(RegistryUnavailableError, match="was closed"):
            registry.by_id(1)


def test_the_cache_is_bounded(server: AnsweringServer, schemas: Schemas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.values.registry.registry.REGISTRY_SCHEMAS_MAX", 2)
    for number in (1, 2, 3):
        schemas.add(number, f"s{number}", AVRO)
    with opened(server.uri) as registry:
        for number in (1, 2, 1, 3, 1, 2):  # 2 leaves when 3 comes
            registry.by_id(number)
    assert [request.path.rpartition("/")[2] for request in server.seen] == ["1", "2", "3", "2"]


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(SettingsError, match=r"pip install 'tierberg\[typed\]'"):
        SchemaRegistry(SchemaRegistrySettings(url="http://127.0.0.1:1"))


def test_a_file_of_tls_that_is_not_there_is_named(tmp_path: Any) -> None:
    with pytest.raises(SettingsError, match=r"schema_registry\.tls: .*no-such\.pem"):
        SchemaRegistry(
            SchemaRegistrySettings.model_validate(
                {"url": "https://127.0.0.1:1", "tls": {"ca_file": tmp_path / "no-such.pem"}}
            )
        )
    (tmp_path / "bad.pem").write_text("x")
    with pytest.raises(SettingsError, match=r"schema_registry\.tls: "):
        SchemaRegistry(
            SchemaRegistrySettings.model_validate(
                {"url": "https://127.0.0.1:1", "tls": {"certificate_file": tmp_path / "bad.pem"}}
            )
        )
