"""Where the rule leaves it open, the table says whether values and keys have columns, not what one bridge remembers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from tests.bridge.values.test_bridge_typed import ORDER, avro, framed, shown
from tests.support.answering_server import answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder, encode_batch
from tests.support.registry_answers import Schemas
from tests.support.shim_client import ShimClient, segment_of

GOOD = framed(1, avro(ORDER, {"id": 3, "who": "q"}))
BAD = {"not_wire_format": b"text", "unknown_schema": framed(77, b"x"), "unusable_schema": framed(2, b"x")}


@pytest.fixture
def registry() -> Iterator[dict[str, Any]]:
    schemas = Schemas()
    schemas.add(1, "s-value", {"schema": json.dumps(ORDER)}, version=1)
    schemas.add(2, "s-value", {"schema": json.dumps({"type": "record", "name": "broken"})}, version=2)
    with answering() as server:
        server.answers = schemas.answer
        yield {"url": server.uri, "request_timeout": "1s"}


def copy(shim: ShimClient, topic: str, start: int, records: Sequence[bytes], *, keys: bool) -> None:
    log = LogBuilder(next_offset=start)
    made = [replace(record, key=record.value if keys else None) for record in log.records(records)]
    log._append(encode_batch(made), start)
    log.next_offset = start + len(made)
    segment = segment_of(log, topic=topic, topic_id=topic.encode().ljust(16, b"."))
    shim.copied(segment)
    assert shim.fetch(segment) == log.data


@pytest.mark.parametrize("keys", [False, True])
def test_a_bridge_that_has_seen_nothing_of_the_topic_says_what_does_not_decode(
    tmp_path: Path, registry: dict[str, Any], keys: bool
) -> None:
    topics = [{"pattern": "t", "value_format": "raw", "key_format": "auto"}] if keys else []
    settings = test_settings(tmp_path, topics=topics, schema_registry=registry)
    catalog = open_catalog(embedded_settings(tmp_path))
    with bridge_thread(settings) as running, ShimClient(running.address) as shim:
        copy(shim, "t", 0, [GOOD], keys=keys)
        assert len(shown(catalog, "t", 1)) == 1
    with bridge_thread(settings) as running, ShimClient(running.address) as shim:
        copy(shim, "t", 1, list(BAD.values()), keys=keys)
        rows = shown(catalog, "t", 1 + len(BAD))
    said = [(row["_kafka_error"] or "").split(":")[0].removeprefix("key_") for row in rows]
    assert said == ["", *BAD]
