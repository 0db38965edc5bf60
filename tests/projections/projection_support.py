"""A topic with a real bridge, and projections of it by Spark: the world of these tests."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.catalog import Catalog

from converter.types import IndexType
from iceberg_catalog import failpoints
from iceberg_catalog.connect.open import open_catalog
from iceberg_catalog.plan.types import PartState
from repartition.run.run import ProjectionJob, Ran
from repartition.run.source import Source, find_source, find_sources
from repartition.spark.catalog import spark_catalog
from repartition.spark.targets import Target
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.settings import MergeSettings, Settings
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.backend import Backend, catalog_properties
from rsm_bridge.storage.lease import leased
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.projections.hold import declared_projections
from rsm_bridge.tables.context import table_context
from rsm_bridge.tables.maintain.maintain import open_maintenance
from tests.support.answering_server import answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, Record, checkpoint, encode_batch
from tests.support.registry_answers import Schemas
from tests.support.shim_client import Segment, ShimClient, segment_of

TOPIC = "orders"
TOPIC_ID = b"orders".ljust(16, b".")
PROJECTION = ("kafka", "orders_projection")
#: Its dead letters.
LETTERS = ("kafka", "orders_projection__dead_letters")
#: When the records of a partition begin, if nothing else is said.
START_MS = 1_700_000_000_000
#: Any three files beside each other are worth to be one.
MERGED = MergeSettings.model_validate({"files_min": 3, "age": "0s", "span": "10000d"})
#: Key and value; None is a tombstone.
Sent = tuple[bytes | None, bytes | None]


def sent(key: object, value: object) -> Sent:
    """JSON of both; None stays None."""
    return tuple(None if item is None else json.dumps(item).encode() for item in (key, value))  # type: ignore[return-value]


def some(world: ProjectionWorld, first: int, count: int, **where: Any) -> Segment:
    """A segment of rows `id`, `who`; `where`: as ProjectionWorld.send."""
    return world.send([sent(n, {"id": n, "who": f"w{n}"}) for n in range(first, first + count)], **where)


@dataclass
class ProjectionWorld:
    """One topic `orders`, tiered through a real bridge, in a catalog of its own name.

    Attributes:
        spark: a session, shared by the tests of a process.
        settings: of bridge and projections.
        catalog: PyIceberg's, for looking.
        shim: what a broker would be.
    """

    spark: Any
    settings: Settings
    catalog: Catalog
    shim: ShimClient
    ends: dict[int, int] = field(default_factory=dict)
    lineage: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    topic_id: bytes = TOPIC_ID

    def send(
        self,
        records: Sequence[Sent],
        partition: int = 0,
        *,
        at: int | None = None,
        epoch: int = 0,
        shown: bool = True,
        times: Sequence[int] = (),
    ) -> Segment:
        """One segment with these records, in the table when this returns.

        Args:
            records: keys and values.
            partition: Kafka's.
            at: offset of the first one, by a new leader that has cut off what was there; None: the next.
            epoch: of the leader, above the last one's if it is new; 0: the last one still.
            shown: whether they become rows; False: the bridge is made to fail, and stores the segment as it is.
            times: of the records, milliseconds since the epoch; without, they go with the offsets.
        """
        first = self.ends.get(partition, 0) if at is None else at
        told = [entry for entry in self.lineage.get(partition, [(0, 0)]) if at is None or entry[1] < at or not entry[0]]
        told += [(epoch, first)] if epoch else []
        self.lineage[partition] = told
        log = LogBuilder(next_offset=first, epoch=told[-1][0])
        stamps = [*times, *(START_MS + first + n for n in range(len(times), len(records)))]
        made = [Record(first + n, stamps[n], key, value) for n, (key, value) in enumerate(records)]
        log._append(encode_batch(made, epoch=log.epoch), first)
        log.next_offset = self.ends[partition] = first + len(made)
        changed = {"epochs": (told[-1],), "files": {IndexType.LEADER_EPOCH: checkpoint(told)}}
        given = segment_of(log, topic=TOPIC, topic_id=self.topic_id, partition=partition, **changed)
        failpoints._faults.update({} if shown else failpoints.parse("convert=raise"))
        try:
            segment = self.shim.copied(given)
        finally:
            failpoints._faults.clear()
        eventually(lambda: self.published(partition))
        return segment

    def published(self, partition: int) -> bool:
        """Whether the table is as far as the log, and has heard of its leader."""
        found = [source for source in find_sources(self.backend) if source.owner.topic_id == self.topic_id]
        if not found:
            return False
        state = found[0].pin().states.get(partition, PartState())
        epoch = self.lineage[partition][-1][0]
        return state.frontier == self.ends[partition] and (not epoch or any(epoch == e for e, _ in state.lineage))

    def state(self, partition: int) -> PartState:
        """As recorded with the table's head."""
        return self.source.pin().states.get(partition, PartState())

    @property
    def source(self) -> Source:
        """The topic's table."""
        return find_source(self.backend, TOPIC, self.topic_id.hex())

    def merge(self) -> int:
        """Joins small data files of the table, as maintenance would in time; how many."""
        tally = Tally()
        with leased(self.backend.store, TOPIC_ID):
            settings = self.settings.model_copy(update={"merge": MERGED})
            context = table_context(settings, self.backend.store)
            open_maintenance(settings, self.backend.store, self.catalog, TOPIC_ID, context).run(tally)
        return tally.merged

    def count(self, name: tuple[str, ...]) -> int:
        if not self.catalog.table_exists(name):
            return 0
        return int(self.catalog.load_table(name).scan(selected_fields=("_kafka_offset",)).to_arrow().num_rows)

    def rows(self, name: tuple[str, ...] = PROJECTION) -> list[dict[str, Any]]:
        """Of a projection, by partition and offset, without the record's own bytes."""
        if not self.catalog.table_exists(name):
            return []
        found: list[dict[str, Any]] = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"], row["_kafka_offset"]))

    @property
    def backend(self) -> Backend:
        """As commands open it."""
        return Backend(self.settings, open_store(self.settings), self.catalog)

    def job(
        self, number: int = 0, *, max_bytes: int | None = None, repair: bool = False, replay: bool = False
    ) -> ProjectionJob:
        """The projection of the rule's `copies[number]`, as a new process would begin it."""
        name = self.settings.catalog.name
        projection = declared_projections(self.settings, TOPIC, TOPIC)[number]
        return ProjectionJob(
            session=self.spark,
            source=self.source,
            source_catalog=name,
            projection=projection,
            target=Target(self.catalog, name),
            max_bytes=max_bytes,
            repair=repair,
            replay=replay,
        )

    def change(self, rule: dict[str, Any]) -> None:
        """Another rule for the projection, as in a settings file that was edited."""
        topic = self.settings.rule(TOPIC)
        projections = (ProjectionRule(table=PROJECTION[1], **rule),)
        self.settings = self.settings.model_copy(update={"topics": (topic.model_copy(update={"copies": projections}),)})

    def run(self, number: int = 0) -> Ran:
        return self.job(number).run()


def framed(number: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """Avro in the registry's wire format."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return b"\0" + struct.pack(">I", number) + out.getvalue()


@contextmanager
def projection_world(
    spark: Any, folder: Path, *projections: dict[str, Any], schemas: Sequence[dict[str, Any]] = (), **topic: Any
) -> Iterator[ProjectionWorld]:
    """A bridge on an empty folder.

    Args:
        spark: a session.
        folder: of bridge and catalog.
        projections: rules of the topic's projections.
        schemas: Avro schemas that a registry knows, as versions 1, 2, …; without any, values are JSON.
        topic: more keys of the topic's rule.
    """
    rule: dict[str, Any] = {
        "pattern": TOPIC,
        "value_format": "avro" if schemas else "json",
        "copies": [{"table": PROJECTION[1], **item} for item in projections],
        **topic,
    }
    name = f"w{abs(hash(str(folder)))}"
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    known = Schemas()
    for number, schema in enumerate(schemas, start=1):
        known.add(number, f"{TOPIC}-value", {"schema": json.dumps(schema)}, version=number)
    for key, value in spark_catalog(name, properties).items():
        spark.conf.set(key, value)
    with ExitStack() as stack:
        server = stack.enter_context(answering())
        server.answers = known.answer
        given: dict[str, Any] = {"topics": [rule], "catalog": {"name": name, "properties": properties}}
        if schemas:
            given["schema_registry"] = {"url": server.uri}
        settings = test_settings(folder, **given)
        running = stack.enter_context(bridge_thread(settings))
        shim = stack.enter_context(ShimClient(running.address))
        yield ProjectionWorld(spark, settings, open_catalog(catalog_properties(settings)), shim)
