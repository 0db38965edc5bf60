"""One record whose schema id the registry answers for with something else costs its own columns, and no other row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from structlog.testing import capture_logs

from rsm_bridge.serving import publisher
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.tables.maintain import replay_topics
from rsm_bridge.values.registry import registry as registry_client
from rsm_bridge.values.typed import schema_waits
from tests.bridge.values.test_bridge_learning import copied
from tests.bridge.values.test_bridge_typed import ORDER, avro, framed, pending_of, shown
from tests.support.answering_server import Answer, AnsweringServer, Request, answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.shim_client import ShimClient

VALUE = avro(ORDER, {"id": 7, "who": "x"})
GOOD = framed(1, VALUE)
REFUSED: dict[int, Answer] = {
    403: (403, {"error_code": 40301, "message": "denied"}),
    500: (500, {"error_code": 50001, "message": "Error while retrieving schema"}),
    201: (200, b"<html>login</html>"),
    202: (200, {"subject": "x"}),
    204: (200, {"schema": json.dumps(ORDER), "references": [{"name": "x", "subject": "denied", "version": 1}]}),
}
RULES: list[dict[str, Any]] = [
    {"pattern": "auto.*", "value_format": "auto"},
    {"pattern": ".*", "value_format": "avro"},
]


def answer(request: Request) -> Answer | None:
    words = request.path.partition("?")[0].split("/")
    if "denied" in words:
        return REFUSED[403]
    return REFUSED.get(int(words[-1])) or (200, {"schema": json.dumps(ORDER)})


@pytest.fixture(scope="module")
def server() -> Iterator[AnsweringServer]:
    with answering() as started:
        started.answers = answer
        yield started


@pytest.fixture(scope="module")
def registry(server: AnsweringServer) -> dict[str, Any]:
    return {"url": server.uri, "request_timeout": "10s"}


@pytest.fixture(scope="module")
def bridge(registry: dict[str, Any], bridge_folder: Path) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(schema_waits, "REGISTRY_REFUSED_SECONDS", 0.5)
        changed.setattr(registry_client, "REGISTRY_AGAIN_SECONDS", 0.01)
        changed.setattr(publisher, "HELD_SECONDS", 0.1)
        with bridge_thread(test_settings(bridge_folder, topics=RULES, schema_registry=registry)) as running:
            yield running


def ids(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in rows]


def replayed(folder: Path, registry: dict[str, Any], topic: str) -> None:
    settings = test_settings(folder, topics=RULES, schema_registry=registry)
    backend = replace(open_backend(None, folder), settings=settings)
    replay_topics.replay(backend, topic, dry_run=False, say=lambda _: None)


@pytest.mark.parametrize("number", [403, 201, 202, 204])
def test_the_rows_of_a_refused_id_are_dead_letters_and_later_segments_follow(
    shim: ShimClient, catalog: Catalog, bridge: Running, number: int
) -> None:
    topic = f"orders{number}"
    segment = copied(shim, topic, [GOOD, framed(number, VALUE), GOOD])
    assert f"schema id {number}: " in (pending_of(bridge, segment) or "")
    copied(shim, topic, [GOOD], first=3)
    rows = shown(catalog, topic, 4)
    assert ids(rows) == [7, None, 7, 7]
    assert rows[1]["_kafka_error"].startswith(f"unknown_schema: schema id {number}: the registry answers ")


def test_bytes_that_look_framed_keep_no_plain_value_waiting(shim: ShimClient, catalog: Catalog) -> None:
    with capture_logs() as logs:
        copied(shim, "auto_binary", [framed(403, b"no schema at all"), b"plain"])
        rows = shown(catalog, "auto_binary", 2)
    said = [
        (line["event"], line["schema_id"]) for line in logs if line.get("topic") == "auto_binary" and "error" in line
    ]
    assert said == [("rows wait for a schema", 403), ("rows of a schema are dead letters", 403)]
    assert [row["_kafka_value"] for row in rows] == [framed(403, b"no schema at all"), b"plain"]


def test_they_are_mended_once_the_registry_answers(
    shim: ShimClient,
    catalog: Catalog,
    registry: dict[str, Any],
    bridge_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied(shim, "mended", [framed(403, VALUE), framed(500, VALUE), GOOD])
    assert ids(shown(catalog, "mended", 3)) == [None, None, 7]
    monkeypatch.setitem(REFUSED, 403, (200, {"schema": json.dumps(ORDER)}))
    # What is refused still keeps the other from nothing, however short the command is there.
    monkeypatch.setattr(schema_waits, "REGISTRY_REFUSED_SECONDS", 600.0)
    replayed(bridge_folder, registry, "mended")
    rows = shown(catalog, "mended", 3)
    assert ids(rows) == [7, None, 7]
    assert rows[1]["_kafka_error"].startswith("unknown_schema: schema id 500: the registry answers 500, Error while")


def test_a_registry_that_is_away_is_waited_for(
    shim: ShimClient, catalog: Catalog, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REFUSED, 9, (503, {}))
    asked = len(server.seen)
    copied(shim, "away", [framed(9, VALUE), GOOD])
    eventually(lambda: len(server.seen) > asked + 12)  # a tenth of a second lies between two
    monkeypatch.delitem(REFUSED, 9)
    assert ids(shown(catalog, "away", 2)) == [7, 7]
