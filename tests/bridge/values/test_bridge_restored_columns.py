"""A catalog restored from a backup forgets columns; data files that were written since have their field ids."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.errors import BridgeError
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.storage.keys import column_ids_key
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.values.typed.column_ids import StoredFieldIds
from tests.support.bridge_life import life_of
from tests.support.bridge_process import test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import segment_of

TOPIC_ID = uuid.uuid5(uuid.NAMESPACE_DNS, "back").bytes


def lived(
    folder: Path, generation: int, members: Mapping[str, str], first: int, value: Mapping[str, Any] | None, **rule: Any
) -> list[dict[str, Any]]:
    """One life of a bridge, in which five records of a value are tiered, or none; the table's rows."""
    schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in members.items()}}
    rules = {"value_format": "json", "value_schema": {"from": "inline", "text": json.dumps(schema)}, **rule}
    settings = test_settings(folder, topics=[{"pattern": "back", **rules}], generation=generation)
    log = LogBuilder(next_offset=first)
    if value is not None:
        log.batch([json.dumps(value).encode()] * 5)
    segment = None if value is None else segment_of(log, topic="back", topic_id=TOPIC_ID)
    return life_of(settings, "back", segment, log.next_offset)


@pytest.mark.parametrize("proven", [False, True])
@pytest.mark.parametrize("kind", ["integer", "string", None])
def test_a_column_that_a_restored_catalog_forgot_is_no_other_ones(
    tmp_path: Path, kind: str | None, proven: bool
) -> None:
    """Its values came under the name of the next new column, or publishing stopped. None: nothing is new."""
    rule = {"value_bytes": "proven"} if proven else {}
    lived(tmp_path, 0, {"id": "integer"}, 0, {"id": 1}, **rule)
    backup = tmp_path / "backup"
    backup.mkdir()
    for file in tmp_path.glob("catalog.db*"):
        shutil.copy(file, backup)
    lived(tmp_path, 1, {"id": "integer", "amount": "integer"}, 5, {"id": 2, "amount": 700}, **rule)
    for file in tmp_path.glob("catalog.db*"):
        file.unlink()
    for file in backup.iterdir():
        shutil.copy(file, tmp_path)
    if kind is None:
        rows = lived(tmp_path, 1, {"id": "integer", "amount": "integer"}, 10, None, **rule)
        assert [(row["id"], row.get("amount")) for row in rows] == [(1, None)] * 5 + [(2, 700)] * 5
    else:
        city = {"integer": 9, "string": "Trier"}[kind]
        rows = lived(tmp_path, 2, {"id": "integer", "city": kind}, 10, {"id": 3, "city": city}, **rule)
        assert [row["id"] for row in rows] == [1] * 5 + [2] * 5 + [3] * 5
        assert [row["city"] for row in rows] == [None] * 10 + [city] * 5
        if not proven:
            assert json.loads(rows[5]["_kafka_value"]) == {"id": 2, "amount": 700}
    assert verify_store(None, tmp_path, None).damages == []


def test_ids_that_were_given_never_sink_and_damage_is_named(tmp_path: Path) -> None:
    store, table = LocalObjectStore(tmp_path / "store"), uuid.uuid4()
    ids = StoredFieldIds(store, TOPIC_ID, table)
    assert ids.given() == 0
    for last, known in ((14, 14), (12, 14), (20, 20)):
        ids.give(last)
        assert ids.given() == known
    path = tmp_path / "store" / column_ids_key(TOPIC_ID, table)
    for damage in (b"", b"{}", b'{"last_id": -1}', b'{"last_id": "x"}', b"[1]"):
        path.write_bytes(damage)
        with pytest.raises(BridgeError, match="is damaged") as caught:
            ids.given()
        assert caught.value.kind == "corrupt_object"
