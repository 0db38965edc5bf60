"""A rule changed to or from `string`: the table stays as it was made, and has every value however it was stored."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.backend import Backend, open_backend
from rsm_bridge.tables.maintain.by_name import maintain
from rsm_bridge.tables.maintain.replay_topics import replay
from tests.support.bridge_life import life_of
from tests.support.bridge_process import test_settings
from tests.support.kafka_log import LogBuilder, encode_batch
from tests.support.shim_client import segment_of

TOPIC_ID = uuid.uuid5(uuid.NAMESPACE_DNS, "turn").bytes
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
INLINE = {"from": "inline", "text": SCHEMA}
RULES: dict[str, dict[str, Any]] = {
    "raw": {"value_format": "raw"},
    "string": {"value_format": "string"},
    "json": {"value_format": "json", "value_schema": INLINE},
    "json alone": {
        "value_format": "json",
        "value_schema": {"from": "inline", "text": SCHEMA},
        "value_bytes": "proven",
    },
    "string, keys": {"value_format": "string", "key_format": "string"},
    "raw, keys": {"value_format": "raw", "key_format": "string"},
}
VALUES = (b'{"a": 1}', None, b"", b"\xff\xfe", "g\u00e4nse".encode(), b'{"a": "no number"}', b'{"a":2}')


def lived(folder: Path, rule: str, first: int, values: Sequence[bytes | None]) -> list[dict[str, Any]]:
    """One life of a bridge under a rule, in which one segment is tiered and published; the table's rows."""
    log = LogBuilder(next_offset=first)
    records = [replace(item, key=b"k%d" % number) for number, item in enumerate(log.records(list(values)))]
    log.batches.append(encode_batch(records))
    log.next_offset += len(records)
    settings = test_settings(folder, topics=[{"pattern": "turn", **RULES[rule]}])
    return life_of(settings, "turn", segment_of(log, topic="turn", topic_id=TOPIC_ID), log.next_offset)


def check(rows: Sequence[dict[str, Any]], rule: str, lives: int, *, alone: bool) -> None:
    """Every value is there, in the way of the rule that the table was made by. alone: some may be in columns alone."""
    assert len(rows) == lives * len(VALUES)
    for row, value in zip(rows, VALUES * lives, strict=True):
        assert row["_kafka_value_size"] == (None if value is None else len(value))
        assert row["_kafka_key"] == b"k%d" % (row["_kafka_offset"] % len(VALUES))
        if rule.startswith("string"):
            other = value if value == b"\xff\xfe" else None
            assert row["_kafka_error"] == (None if other is None else "invalid_utf8")
            assert row["_kafka_value"] == other
            assert row["value"] == (None if value is None or other is not None else value.decode())
        elif not alone or row["_kafka_value"] is not None or value is None:
            assert row["_kafka_value"] == value
        else:
            assert row["a"] == json.loads(value)["a"]


def configured(folder: Path, rule: str) -> Backend:
    """For commands; files are merged as soon as there are three."""
    merge = {"small_mib": 16, "files_min": 3, "age": "0s"}
    config = folder / "tierberg.yaml"
    config.write_text(json.dumps({"topics": [{"pattern": "turn", **RULES[rule]}], "merge": merge}))
    return open_backend(config, folder)


PAIRS = list(product(RULES, repeat=2))
CHANGED = [pair for pair in PAIRS if pair[0] < pair[1]]
ANEW = [pair for pair in PAIRS if pair[0] >= pair[1]]


@pytest.mark.parametrize(("before", "after"), CHANGED, ids=["_".join(pair).replace(" ", "") for pair in CHANGED])
def test_a_table_whose_rule_is_changed_and_changed_back_has_every_value(
    tmp_path: Path, before: str, after: str
) -> None:
    """It stopped at the first segment of another rule, for ever, and `replay-dead-letters` for every topic."""
    alone = "json alone" in (before, after)
    rows: list[dict[str, Any]] = []
    for number, rule in enumerate((before, after, before)):
        rows = lived(tmp_path, rule, number * len(VALUES), VALUES)
    check(rows, before, 3, alone=alone)
    if before.startswith("json"):
        as_before = [row["a"] for row in (*rows[: len(VALUES)], *rows[-len(VALUES) :])]
        assert as_before == [1, None, None, None, None, None, 2] * 2
    said: list[str] = []
    replay(configured(tmp_path, after), None, dry_run=False, say=said.append)
    assert not any("stays as it is" in line for line in said)
    assert verify_store(None, tmp_path, None).damages == []


@pytest.mark.parametrize(("before", "after"), ANEW, ids=["_".join(pair).replace(" ", "") for pair in ANEW])
def test_merged_files_and_a_table_that_is_made_anew_by_another_rule(tmp_path: Path, before: str, after: str) -> None:
    """Files of the table that was, merged or not, are no files of the one that is."""
    alone = "json alone" in (before, after)
    for number, rule in enumerate((before, before, after, after)):
        lived(tmp_path, rule, number * len(VALUES), VALUES)
    said: list[str] = []
    maintain(configured(tmp_path, after), None, dry_run=False, say=said.append)
    assert any("merged" in line for line in said), said
    assert verify_store(None, tmp_path, None).damages == []
    with closing(open_catalog(embedded_settings(tmp_path))) as catalog:
        catalog.drop_table("kafka.turn")
    rows = lived(tmp_path, after, 4 * len(VALUES), VALUES)
    check(rows, after, 5, alone=alone)
    assert verify_store(None, tmp_path, None).damages == []
