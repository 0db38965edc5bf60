"""Every key that is written fits every store, whatever the topic lived through (C19)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from converter.types import LeaderEpoch, SegmentMetadata
from iceberg_catalog.commit.head import parse_file_name
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import KEY_BYTES_MAX, KEY_PART_BYTES_MAX
from rsm_bridge.storage import keys
from rsm_bridge.storage.lease import lease_key
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.projections.progress import progress_key
from rsm_bridge.storage.read_clients import ReadClients
from rsm_bridge.storage.segments.undelete_record import UndeleteRecord
from rsm_bridge.tables.maintain.drop_table import DropRecord

TOPIC = b"\xff" * 16
TABLE = uuid.uuid4()
FAR = 2**63 - 1
HEADS = (None, 0, 2**63 - 1, -(2**63))
OLD = SegmentMetadata(
    cluster_name="c" * 1024,
    topic="t" * 249,
    topic_id=TOPIC,
    partition=2**31 - 1,
    segment_id=b"\xff" * 16,
    start_offset=FAR - 10**6,
    end_offset=FAR,
    max_timestamp_ms=FAR,
    broker_id=2**31 - 1,
    event_timestamp_ms=FAR,
    segment_size_bytes=2**31 - 1,
    leader_epochs=tuple(LeaderEpoch(2**31 - 100_000 + n, FAR - 10**6 + n) for n in range(100_000)),
)


def all_keys() -> dict[str, str]:
    attempt = keys.new_attempt_id()
    return {
        "index": str(keys.index_key(OLD)),
        "data": keys.data_key(OLD, attempt),
        "tail": keys.tail_key(OLD, attempt),
        "kept": keys.kept_key(OLD, attempt),
        **{f"derived on {head}": keys.derived_key(TOPIC, 2**31 - 1, 0, FAR, TABLE, head) for head in HEADS},
        "rewritten": keys.rewritten_key(TOPIC, 2**31 - 1, 0, FAR),
        "state": keys.state_key(uuid.uuid4(), "f" * 64, uuid.uuid4().hex),
        "lease": lease_key(TOPIC.hex()),
        "undelete": UndeleteRecord(None, TOPIC).key,  # type: ignore[arg-type]
        "drop": DropRecord(table="t" * 249, table_uuid="u" * 36, topic_id=TOPIC.hex(), states={}, metadata={}).key,
        "table": keys.table_record_key(TOPIC, TABLE),
        "projection": progress_key(TOPIC, "catalog" * 1000, "projection" * 1000),
    }


@pytest.mark.parametrize("kind", all_keys())
def test_a_key_fits_every_store(kind: str) -> None:
    key = all_keys()[kind]
    assert max(len(part.encode()) for part in key.split("/")) <= KEY_PART_BYTES_MAX
    assert len(key.encode()) <= KEY_BYTES_MAX // 2  # the rest is the root's prefix


@pytest.mark.parametrize("kind", [kind for kind, key in all_keys().items() if key.endswith(".parquet")])
def test_data_files_are_known_by_their_names(kind: str) -> None:
    key = all_keys()[kind]
    assert parse_file_name(key.rpartition("/")[2]) is not None
    assert keys.is_stored_object(key)
    assert (keys.derived_head(key) is not None) == kind.startswith("derived")
    assert keys.derived_table(key) == (TABLE if kind.startswith("derived") else None)


def stores(folder: Path) -> list[ObjectStore]:
    client = MemoryStore()
    return [LocalObjectStore(folder), ObjectStore(client, ReadClients(client), "s3://bucket/" + "p" * 100)]


def test_a_longer_key_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for store in stores(tmp_path):
        for key in ("data/" + "x" * (KEY_PART_BYTES_MAX + 1), "data/" + "é" * KEY_PART_BYTES_MAX):
            writes: list[Callable[[], object]] = [
                partial(store.put_if_absent, key, b""),
                partial(store.replace, key, b"", "v"),
                partial(store.open_upload, key),
            ]
            for write in writes:
                with pytest.raises(BridgeError, match="longer than") as refused:
                    write()
                assert refused.value.kind == "internal"
        longest = "data/" + "x" * KEY_PART_BYTES_MAX
        assert store.put_if_absent(longest, b"1")
        with store.open_upload(longest + "/" + "y" * KEY_PART_BYTES_MAX if not store.single_process else "z") as upload:
            upload.write(b"1")
            upload.commit()


def test_the_prefix_of_the_root_counts(tmp_path: Path) -> None:
    _, bucket = stores(tmp_path)
    with pytest.raises(BridgeError, match="1024"):
        bucket.put_if_absent("/".join(["k" * 200] * 5), b"")
