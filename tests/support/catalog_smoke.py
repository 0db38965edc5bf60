"""One smoke for every catalog and store: two real bridges copy, meet in a conflict, serve, and delete.

What is asked of each: the table has every row once and nothing else, whoever published it; a commit that was refused
is planned again; what was copied comes back byte for byte from the other bridge; after the delete neither rows nor
objects are left; nothing failed on the way, and no credential is in any log.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.exceptions import NoSuchTableError

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.tables.names import table_name
from rsm_bridge.config.settings import load_settings
from rsm_bridge.storage.keys import INDEX_ROOT
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from tests.support.bridge_process import BridgeProcess
from tests.support.kafka_log import LogBuilder, Record
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of
from tierberg.stack.waiting import wait_for

PARTITIONS = (0, 1)
PUBLISHED_S = 60
#: For so long the first bridge holds every commit back: the second one's land in between.
HELD_S = 2
ROUNDS_MAX = 10


@dataclass(frozen=True)
class Deployment:
    """What a bridge is told, and what must never be logged.

    Attributes:
        store: section of `tierberg.yaml`.
        catalog: likewise.
        secrets: credentials in it, and all that were issued while it ran.
        reader: properties of a PyIceberg reader, by default the bridge's own.
    """

    store: dict[str, Any]
    catalog: dict[str, Any]
    secrets: Callable[[], set[str]]
    reader: Mapping[str, Any] | None = None


@dataclass
class _Smoke:
    given: Deployment
    topic: str = field(default_factory=lambda: f"smoke-{uuid.uuid4().hex[:8]}")
    topic_id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    copied: dict[int, list[tuple[Segment, list[Record]]]] = field(
        default_factory=lambda: {partition: [] for partition in PARTITIONS}
    )

    def copy(self, shim: ShimClient, partition: int) -> None:
        """Tiers the partition's next segment."""
        log = LogBuilder(next_offset=self.ends[partition]).fill(batches=3)
        segment = segment_of(log, topic=self.topic, topic_id=self.topic_id, partition=partition)
        self.copied[partition].append((shim.copied(segment), log.committed))
        self.ends[partition] = log.next_offset

    def expected(self) -> dict[tuple[int, int], tuple[bytes | None, bytes | None]]:
        return {
            (partition, record.offset): (record.key, record.value)
            for partition, segments in self.copied.items()
            for _, records in segments
            for record in records
        }

    def rows(self) -> dict[tuple[int, int], tuple[bytes | None, bytes | None]]:
        """What a reader of its own finds, with the reader's own credentials."""
        properties = self.given.reader if self.given.reader is not None else self.given.catalog["properties"]
        catalog = open_catalog(CatalogSettings(self.given.catalog.get("name", "tierberg"), properties))
        try:
            found = catalog.load_table(("kafka", table_name(self.topic))).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return {}
        finally:
            catalog.close()
        rows = {
            (row["_kafka_partition"], row["_kafka_offset"]): (row["_kafka_key"], row["_kafka_value"]) for row in found
        }
        assert len(rows) == len(found), "a row is there twice"
        return rows

    def wait_published(self) -> None:
        wait_for("the rows", lambda: len(self.rows()) == len(self.expected()), PUBLISHED_S, 0.5)
        assert self.rows() == self.expected()

    def objects(self, store: ObjectStore) -> list[str]:
        folders = [f"{kind}/{self.topic_id.hex()}/" for kind in (INDEX_ROOT.strip("/"), "data", "kept")]
        return [found.key for folder in folders for found in store.list_after(folder)]


@contextmanager
def _bridges(given: Deployment, folder: Path) -> Iterator[tuple[BridgeProcess, BridgeProcess]]:
    config = folder / "tierberg.yaml"
    settings = {"publish_interval": "200ms", "reclaim_grace": "0s", "store": given.store, "catalog": given.catalog}
    config.write_text(yaml.safe_dump(settings))
    with ExitStack() as stack:
        started = []
        for name, fault in (("one", f"before-commit=sleep:{HELD_S}"), ("two", "")):
            arguments = ("--config", str(config), "--data-dir", str(folder / name), "--listen", "127.0.0.1:0")
            started.append(stack.enter_context(BridgeProcess(*arguments, fault=fault)))
        try:
            yield started[0], started[1]
        except BaseException:
            for bridge in started:
                print(bridge.errors())
            raise


def smoke(given: Deployment, folder: Path, pause: Callable[[], None] = lambda: None) -> None:
    """Copy, conflict, fetch, delete through two bridges.

    Args:
        given: where.
        folder: for the bridges' own files.
        pause: called while nothing is due, between copy, conflict and delete.
    """
    work = _Smoke(given)
    store = open_store(load_settings(None, {"store": given.store}))
    with _bridges(given, folder) as (slow, quick), ShimClient(slow.address) as one, ShimClient(quick.address) as two:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(2):
                list(pool.map(work.copy, (one, two), PARTITIONS))
        work.wait_published()
        pause()

        rounds = 0
        while "planning again" not in slow.errors():
            rounds += 1
            assert rounds <= ROUNDS_MAX, f"no commit was refused:\n{slow.errors()}"
            work.copy(one, 0)
            for _ in range(3):
                time.sleep(HELD_S / 3)
                work.copy(two, 1)
        work.wait_published()
        pause()

        for partition, other in zip(PARTITIONS, (two, one), strict=True):
            for segment, _ in work.copied[partition]:
                assert other.fetch(segment) == segment.data
        _delete(work, store, two)
        for bridge in (slow, quick):
            assert bridge.stop() == 0
            said = bridge.errors()
            assert '"publishing failed"' not in said
            assert not [secret for secret in given.secrets() if secret in said]


def _delete(work: _Smoke, store: ObjectStore, shim: ShimClient) -> None:
    """First the oldest segment of each partition, as retention does, then all the others."""
    for segments in work.copied.values():
        segment, _ = segments.pop(0)
        shim.delete(segment)
        with pytest.raises(ShimError) as refused:
            shim.fetch(segment)
        assert refused.value.kind in ("segment_deleted", "not_found")
    work.wait_published()
    for segments in work.copied.values():
        while segments:
            shim.delete(segments.pop()[0])
    work.wait_published()
    wait_for("the objects to go", lambda: not work.objects(store), PUBLISHED_S, 0.5)
