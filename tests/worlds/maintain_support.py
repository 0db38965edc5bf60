"""A store, a catalog and one topic, as bridges leave them, for the tests of reclaiming and maintenance."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import read_manifest_list
from pyiceberg.table import Table

from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.index.codec import decode_directory
from converter.index.model import StoredObjects
from converter.parquet.columns import row_schema
from converter.segment.writer import SegmentWriter
from converter.types import ConvertOptions, IndexType, LeaderEpoch, Mode, SegmentMetadata
from iceberg_catalog.commit.head import parse_file_name, recorded_states
from iceberg_catalog.commit.state import decode_state
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import Follow, Policy
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.schema import expected_field_ids
from iceberg_catalog.tables.tables import find_table
from rsm_bridge.config.settings import load_settings
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.serving.copy.attempt import custom_metadata
from rsm_bridge.storage.keys import (
    data_key,
    index_key,
    index_prefix,
    kept_key,
    new_attempt_id,
    parse_index_key,
    stored_key,
)
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.segments.deleter import Deleter
from rsm_bridge.storage.segments.known import read_known
from rsm_bridge.storage.segments.reader import SegmentReader
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.storage.tombstone import decode_tombstone
from rsm_bridge.tables.context import TableContext
from rsm_bridge.tables.maintain.maintain import TableMaintenance, observe
from rsm_bridge.tables.maintain.merge import Merger
from rsm_bridge.tables.publish.table_run import RunResult, TableRun
from rsm_bridge.tables.reclaim.reclaimer import Graces, Reclaimer
from tests.support.kafka_log import Record, checkpoint, control_batch, encode_batch

NAMESPACE = "kafka"
DAY = 24 * 3600


@dataclass(frozen=True)
class Batch:
    """One batch of the partition's log."""

    base: int
    last: int
    data: bytes
    producer_id: int = -1
    commit: bool | None = None  # of a marker


@dataclass
class Log:
    """One partition's log; values follow from offsets, so that every copy of an offset is the same."""

    batches: list[Batch] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def write(self, count: int, producer_id: int = -1) -> None:
        """Records; of a transaction when a producer is given."""
        base = self.end
        records = [Record(base + n, 1_700_000_000_000 + base + n, b"k", b"value %d" % (base + n)) for n in range(count)]
        options: dict[str, Any] = {}
        if producer_id >= 0:
            options = {"producer_id": producer_id, "producer_epoch": 0, "attributes": 0x10}
        self.batches.append(Batch(base, base + count - 1, encode_batch(records, **options), producer_id))

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        data = control_batch(self.end, producer_id, commit=commit)
        self.batches.append(Batch(self.end, self.end, data, producer_id, commit))

    def outcome(self) -> tuple[set[int], set[int]]:
        """Offsets of plain records, and of committed transactions: the first marker above of the same producer says."""
        plain: set[int] = set()
        committed: set[int] = set()
        waiting: dict[int, set[int]] = {}
        for batch in self.batches:
            offsets = set(range(batch.base, batch.last + 1))
            if batch.producer_id < 0:
                plain |= offsets
            elif batch.commit is None:
                waiting.setdefault(batch.producer_id, set()).update(offsets)
            else:
                done = waiting.pop(batch.producer_id, set())
                committed |= done if batch.commit else set()
        return plain, committed

    def between(self, first: int, last: int) -> list[Batch]:
        return [batch for batch in self.batches if first <= batch.base and batch.last <= last]


@dataclass
class World:
    """One topic. `ahead_ms`: how far the reclaimers' clock is ahead of the real one."""

    store: ObjectStore
    catalog: Catalog
    topic: str = "orders"
    topic_id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    logs: dict[int, Log] = field(default_factory=dict)
    graces: Graces = field(default_factory=lambda: Graces(600.0, 0.0))
    ahead_ms: int = 0
    single_process: bool = True
    merging: MergeLimits | None = None
    policy: Policy = field(default_factory=Follow)
    namespace: str = NAMESPACE
    cluster: str = "test"

    def __post_init__(self) -> None:
        self.owner = Owner(
            self.cluster, self.topic, self.topic_id
        )  # of the table, whatever the cluster is called later
        self.context = TableContext(namespace=self.namespace, clock_ms=self.now_ms)
        self.publisher = self.new_publisher()
        self.reclaimer = self.new_reclaimer()
        self.maintenance = TableMaintenance(
            store=self.store,
            catalog=self.catalog,
            topic_id=self.topic_id,
            context=self.context,
            grace=self.graces.reclaim,
            merger=None if self.merging is None else self.new_merger(self.merging),
        )

    def new_publisher(self, **rules: Any) -> TableRun:
        """One that has just started, by other rules than the world's."""
        return TableRun(
            store=self.store,
            catalog=self.catalog,
            topic_id=self.topic_id,
            context=replace(self.context, **rules),
        )

    def rule(self, **rules: Any) -> None:
        """From now on the publisher goes by these rules too: fields of `TableContext`."""
        self.publisher.context = replace(self.publisher.context, **rules)

    def new_merger(self, limits: MergeLimits) -> Merger:
        return Merger(
            store=self.store,
            catalog=self.catalog,
            topic_id=self.topic_id,
            limits=limits,
            policy=lambda _topic, _now_ms: self.policy,
        )

    def now_ms(self) -> int:
        return int(time.time() * 1000) + self.ahead_ms

    def later(self, seconds: float) -> None:
        self.ahead_ms += int(seconds * 1000)

    def rows_deleted(self, topic: str, now_ms: int) -> Policy:
        """What becomes of them by the rules that the publisher has now."""
        return self.publisher.context.policy(topic, now_ms)

    def new_reclaimer(self, *, dry_run: bool = False) -> Reclaimer:
        return Reclaimer(
            store=self.store,
            catalog=self.catalog,
            graces=self.graces,
            copies=RunningCopies(),
            policy=self.rows_deleted,
            dry_run=dry_run,
            clock_ms=self.now_ms,
        )

    def log(self, partition: int = 0) -> Log:
        return self.logs.setdefault(partition, Log())

    def copy(self, count: int = 3, partition: int = 0) -> SegmentMetadata:
        """Writes records and tiers them as a segment of their own."""
        log = self.log(partition)
        first = log.end
        log.write(count)
        return self.copy_range(first, log.end - 1, partition)

    def copy_range(
        self, first: int, last: int, partition: int = 0, *, indexed: bool = True, mode: Mode = "table"
    ) -> SegmentMetadata:
        """Tiers [first, last] of the log; without `indexed`, the bridge dies before its index is put."""
        data = b"".join(batch.data for batch in self.log(partition).between(first, last))
        metadata = SegmentMetadata(
            cluster_name=self.cluster,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=partition,
            segment_id=uuid.uuid4().bytes,
            start_offset=first,
            end_offset=last,
            max_timestamp_ms=1_700_000_000_000,
            broker_id=1,
            event_timestamp_ms=1_700_000_000_000,
            segment_size_bytes=len(data),
            leader_epochs=(LeaderEpoch(0, 0),),
            custom_metadata=b"",
        )
        index = write_objects(self.store, metadata, data, {IndexType.LEADER_EPOCH: checkpoint([(0, 0)])}, mode)
        if not indexed:
            return metadata
        assert self.store.put_if_absent(str(index_key(metadata)), index)
        return replace(metadata, custom_metadata=custom_metadata(decode_directory(index)))

    def delete(self, *segments: SegmentMetadata) -> None:
        """What Kafka's retention does; the tombstone has the time of our clock."""
        for segment in segments:
            Deleter(self.store).delete(segment)
            key = str(index_key(segment))
            current = self.store.read(key)
            stone = replace(decode_tombstone(current.data), time_ms=self.now_ms())
            assert self.store.replace(key, stone.encode(), current.version)
            uri = self.store.uri(key)
            if self.ahead_ms and uri.startswith("file://"):  # then by the store's clock, too
                os.utime(uri.removeprefix("file://"), (stone.time_ms / 1000, stone.time_ms / 1000))

    def withdraw(self, segment: SegmentMetadata) -> None:
        self.delete(replace(segment, custom_metadata=b""))

    def publish(self) -> RunResult:
        return self.publisher.run()

    def reclaim(self, result: RunResult | None = None) -> Tally:
        """A reclaimer's pass over the last run, or over what the store says now."""
        tally = Tally()
        self.reclaimer.reclaim(result or self.observe(), tally)
        return tally

    def observe(self) -> RunResult:
        return observe(self.store, self.catalog, self.topic_id, self.context)

    def maintain(self, *, dry_run: bool = False) -> Tally:
        tally = Tally()
        self.maintenance.run(tally, dry_run=dry_run)
        return tally

    def served(self, key: str) -> bytes:
        """A live segment as Kafka would get it."""
        with ThreadPoolExecutor(1) as helpers:
            reader = SegmentReader(self.store, helpers)
            directory = reader.directory_at(key, 1)
            blocks = [reader.block(directory, number) for number in range(len(directory.blocks))]
            return b"".join(
                reader.chunk(directory, block, block.first_batch, block.first_batch + len(block.batches) - 1)
                for block in blocks
            )

    def table(self) -> Table | None:
        return find_table(self.catalog, self.owner, namespace=self.namespace)

    def loaded(self) -> Table:
        table = self.table()
        assert table is not None
        return table

    def offsets(self, partition: int = 0) -> list[int]:
        rows = self.loaded().scan(row_filter=f"_kafka_partition = {partition}").to_arrow()
        return sorted(rows["_kafka_offset"].to_pylist())

    def stored(self, *roots: str) -> list[str]:
        """Keys of the topic's objects."""
        return [
            listed.key
            for root in roots or ("data", "kept", "index")
            for listed in self.store.list_after(f"{root}/{self.topic_id.hex()}/")
        ]

    def check(self) -> None:
        """I3: everything a live segment or a kept snapshot needs is in the store."""
        stored = set(self.stored("data", "kept"))
        for listed in self.store.list_after(index_prefix(self.topic_id)):
            key = parse_index_key(listed.key)
            assert key is not None
            known = read_known(self.store, key, listed)
            if known.live:
                assert set(known.objects()) <= stored, f"live segment {listed.key} has lost {known.objects()}"
                log = self.log(known.key.partition).between(known.key.base, known.key.last)
                assert self.served(listed.key) == b"".join(batch.data for batch in log)
        table = self.table()
        if table is None:
            return
        for snapshot in table.metadata.snapshots:
            named = files_of(table, snapshot.manifest_list)
            ours = {path for path in named if parse_file_name(path.rpartition("/")[2]) is not None}
            lost = {stored_key(self.store, path) for path in ours} - stored
            assert not lost, f"snapshot {snapshot.snapshot_id} names {lost}"
        for reference in recorded_states(table):
            decode_state(self.store.read(reference.key).data, reference.sha256)


def files_of(table: Table, manifest_list: str) -> set[str]:
    """Live data files of one snapshot."""
    manifests = list(read_manifest_list(table.io.new_input(manifest_list)))
    return {entry.data_file.file_path for item in manifests for entry in item.fetch_manifest_entry(table.io)}


def write_objects(
    store: ObjectStore, metadata: SegmentMetadata, data: bytes, files: Mapping[IndexType, bytes], mode: Mode = "table"
) -> bytes:
    """Data file and kept bytes of one copy; returns its index."""
    attempt = new_attempt_id()
    objects = StoredObjects(attempt, data_key(metadata, attempt), kept_key(metadata, attempt))
    options, transactions = ConvertOptions(mode=mode), Transactions.parse(None, None)
    schema = row_schema(options.value_format, expected_field_ids(options.value_format))
    with store.open_upload(objects.data_key) as rows, store.open_upload(objects.kept_key) as kept:
        parser = SegmentParser(metadata, options, transactions)
        writer = SegmentWriter(metadata, options, schema, cast(BinaryIO, rows), cast(BinaryIO, kept))
        for step in (*parser.feed(data), *parser.finish()):
            writer.add(step)
        written = writer.finish(files, transactions, objects)
        for upload in (rows, kept):
            if upload.size:
                upload.commit()
    return written.index


def make_world(folder: Path, **changes: object) -> World:
    """A world on the embedded store and catalog."""
    store = open_store(load_settings(None, {"data_dir": folder}))
    return World(store, open_catalog(embedded_settings(folder)), **changes)  # type: ignore[arg-type]


def published(world: World, counts: Sequence[int] = (3, 3, 3)) -> list[SegmentMetadata]:
    """Segments of so many records, all in the table."""
    segments = [world.copy(count) for count in counts]
    world.publish()
    assert len(world.offsets()) == sum(counts)
    return segments
