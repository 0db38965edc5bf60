"""Three brokers, three bridges, one S3 server and one REST catalog: making topics, waiting, comparing, healing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.plan.summary import REWIND
from tests.e2e.e2e_batches import consume
from tests.support.ledger import NOTHING, compare, from_lake
from tests.support.slow_server import SlowServer
from tierberg.stack.admin import TIERED, Admin
from tierberg.stack.cluster import KafkaCluster
from tierberg.stack.cluster_admin import ClusterAdmin
from tierberg.stack.errors import StackError
from tierberg.stack.lake import Lake
from tierberg.stack.servers.bridge import Bridge
from tierberg.stack.servers.kafka import KafkaBroker
from tierberg.stack.tiering import tierberg
from tierberg.stack.waiting import wait_for

BRIDGES = 3
LEADER_S = 60
TIER_S = 150
PUBLISH_S = 120
HEAL_S = 150

BROKER_PROPERTIES = {
    # A coordinator ends transactions that are out of time.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # Tests that wait for a leader say so; nobody moves one behind their back.
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "10000",
}


@dataclass(slots=True)
class ThreeBrokers:
    """The whole topology, running. Broker ids are 1, 2 and 3."""

    lake: Lake
    store: SlowServer
    bridges: list[Bridge]
    kafka: KafkaCluster
    admin: Admin
    java: ClusterAdmin
    catalog: Catalog

    @classmethod
    def start(cls, folder: Path, version: str) -> ThreeBrokers:
        """Starts everything, with transaction.version 1; nothing is left running when that fails."""
        lake = Lake(folder / "lake")
        lake.start()
        store = SlowServer(folder / "store", lake.s3.port)
        settings = lake.bridge_settings()
        settings["store"]["options"]["endpoint"] = store.endpoint
        settings["catalog"]["properties"]["s3.endpoint"] = store.endpoint
        settings["publish_interval"] = "1s"
        bridges = [Bridge(folder / f"bridge-{number}", settings) for number in range(BRIDGES)]
        plugin = tierberg(",".join(bridge.target for bridge in bridges), cluster_name="three")
        kafka = KafkaCluster(
            folder / "kafka",
            plugin,
            version=version,
            properties=BROKER_PROPERTIES,
            features={"transaction.version": 1},
        )
        catalog = open_catalog(CatalogSettings("reader", lake.catalog.client_properties()))
        java = ClusterAdmin(kafka.bootstrap, version)
        started = cls(lake, store, bridges, kafka, Admin(kafka.bootstrap), java, catalog)
        try:
            store.start()
            for bridge in bridges:
                bridge.start()
            kafka.start()
        except BaseException:
            started.stop()
            raise
        return started

    def stop(self) -> None:
        self.java.close()
        self.catalog.close()
        self.kafka.stop()
        for bridge in self.bridges:
            bridge.stop()
        self.store.stop()
        self.lake.stop()

    def heal(self) -> None:
        """Everything runs, nothing is slow, every replica is in sync."""
        self.store.set_delay(0)
        for bridge in self.bridges:
            if not bridge.process.alive:
                bridge.start()
        for broker in self.kafka.brokers.values():
            if not broker.process.alive:
                broker.start()
        wait_for("all replicas to be in sync", lambda: not self.admin.under_replicated(), HEAL_S, 1.0)

    def create(self, topic: str, replicas: Sequence[Sequence[int]], **config: str) -> None:
        """Make a tiered topic with one partition for each row of `replicas`; dots of settings are underscores."""
        given = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topic(topic, len(replicas), {**TIERED, **given}, replicas=replicas)

    def leader(self, topic: str, partition: int = 0) -> KafkaBroker:
        """The broker that leads it, as soon as there is one."""
        number = wait_for(
            f"a leader of {topic}-{partition}", lambda: self.admin.leader(topic, partition), LEADER_S, 0.5
        )
        return self.kafka.brokers[number]

    def wait_leader(self, topic: str, partition: int, *brokers: int) -> None:
        """Until one of these brokers leads it."""
        wait_for(
            f"one of {brokers} to lead {topic}-{partition}",
            lambda: self.admin.leader(topic, partition) in brokers,
            LEADER_S,
            0.5,
        )

    def wait_in_sync(self, topic: str, partition: int, *brokers: int) -> None:
        """Until exactly these brokers have a replica in sync."""
        wait_for(
            f"replicas of {topic}-{partition} in sync on {brokers}",
            lambda: self.admin.in_sync(topic, partition) == set(brokers),
            HEAL_S,
            0.5,
        )

    def spans(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """First offset and end, exclusive, of each partition."""
        starts, ends = self.admin.start_offsets(topic, partitions), self.admin.end_offsets(topic, partitions)
        return {partition: (starts[partition], ends[partition]) for partition in partitions}

    def wait_tiered(self, topic: str, partitions: Sequence[int] = (0,), timeout_s: float = TIER_S) -> None:
        """Until no record is on the disk of its partition's leader any more."""

        def left() -> dict[int, tuple[int, int]]:
            ends = self.admin.end_offsets(topic, partitions)
            local = {
                number: min(self.leader(topic, number).local_segments(topic, number), default=0) for number in ends
            }
            return {number: (local[number], end) for number, end in ends.items() if local[number] != end}

        try:
            wait_for(f"{topic} to leave the disks", lambda: not left(), timeout_s, 0.5)
        except StackError as error:
            raise AssertionError(f"{error}; on disk from, end: {left()}") from error

    def table(self, topic: str) -> Table | None:
        """The topic's Iceberg table, if there is one."""
        return self.catalog.load_table(f"kafka.{topic}") if self.catalog.table_exists(f"kafka.{topic}") else None

    def row_count(self, topic: str) -> int:
        """Rows of the current snapshot, from its summary."""
        table = self.table(topic)
        snapshot = None if table is None else table.current_snapshot()
        return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)

    def rows(self, topic: str) -> pa.Table:
        """All rows of the current snapshot, in the columns of a ledger."""
        table = self.table(topic)
        assert table is not None
        return from_lake(table.scan().to_arrow())

    def rewinds(self, topic: str) -> dict[int, set[int]]:
        """Of each partition, from which offsets on kept snapshots say that rows were taken back."""
        table = self.table(topic)
        found: dict[int, set[int]] = {}
        for snapshot in table.metadata.snapshots if table else ():
            for key, value in (snapshot.summary.additional_properties if snapshot.summary else {}).items():
                if key.startswith(REWIND):
                    found.setdefault(int(key.removeprefix(REWIND)), set()).add(int(value))
        return found

    def agree(self, topic: str, expected: pa.Table, partitions: Sequence[int] = (0,)) -> None:
        """Producers, a read_committed consumer and the table agree on every record.

        Waits until everything is tiered and published. `expected`: what producers were told is committed.
        """
        self.wait_tiered(topic, partitions)
        consumed = consume(self.kafka.bootstrap, topic, self.spans(topic, partitions))
        assert compare(expected, consumed) == NOTHING, "the consumer's records differ from the producers'"
        # A table that stays behind is described by the difference.
        with suppress(StackError):
            wait_for("the table", lambda: self.row_count(topic) == consumed.num_rows, PUBLISH_S, 0.5)
        found = self.rows(topic)
        difference = compare(consumed, found)
        print(f"{topic}: {found.num_rows} rows of {consumed.num_rows} records: {difference}")
        assert difference == NOTHING, "the table's rows differ from the consumer's records"
