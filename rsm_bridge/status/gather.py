"""Gathers the facts of one report: store and catalog, then Kafka, then the bridge, each within a deadline of its own.

Every source is asked on a daemon thread: one that hangs is reported as not answering and does not keep the command from
ending. The store is read before Kafka is asked, so that Kafka's end is never the older figure.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyiceberg.catalog import Catalog

from iceberg_catalog.commit.head import Head
from iceberg_catalog.connect.open import embedded_catalog, open_catalog
from rsm_bridge.config.settings import Settings, parse_listen
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import (
    STATUS_BRIDGE_SECONDS,
    STATUS_CATALOG_SECONDS,
    STATUS_FAILURES_MAX,
    STATUS_FETCH_SECONDS,
    STATUS_KAFKA_SECONDS,
)
from rsm_bridge.metrics.progress.facts import Facts, KafkaFacts, Problem, StoredTopic, Unread
from rsm_bridge.metrics.progress.kafka import KafkaClientMissingError, KafkaSource, Where
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.lost import lost_objects
from rsm_bridge.status.partition import published_reach
from rsm_bridge.status.store_facts import head_of, problem_of, read_topic, readers, stored_topic
from rsm_bridge.status.tables import FoundTables, look_at_tables
from rsm_bridge.storage.backend import catalog_properties
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store, store_missing
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.topic_segments import indexed_topic_ids, stored_clusters, topic_ids
from rsm_bridge.storage.writes import HEALTH_SERVICE, WHY_TRAILER

T = TypeVar("T")
FindHead = Callable[[KnownSegment], Head | None]


@dataclass(slots=True)
class _Answer(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to report on. `bridge` is a gRPC address; None: none is asked. `deadline` is in seconds, for the store."""

    topic: str | None
    bridge: str | None
    deadline: float


def within(seconds: float, what: str, work: Callable[[], T]) -> T:
    """Runs `work` on a daemon thread and returns what it returns.

    Raises:
        TimeoutError: it did not end in time; it is left behind. What it raises itself passes through.
    """
    answer: _Answer[T] = _Answer()
    done = threading.Event()

    def run() -> None:
        try:
            answer.value = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            answer.error = error
        finally:
            done.set()

    threading.Thread(target=run, name=f"status-{what}", daemon=True).start()
    if not done.wait(seconds):
        raise TimeoutError(f"the {what} did not answer within {seconds:g} s")
    if answer.error is not None:
        raise answer.error
    return answer.value  # type: ignore[return-value]  # T may itself be optional


def gather(settings: Settings, wanted: Wanted) -> Facts:
    """All facts; a source that does not answer becomes a problem in them, never an exception.

    Raises:
        SettingsError: the settings name something that cannot be opened.
    """
    facts = Facts(
        now_ms=int(time.time() * 1000),
        freshness_target=settings.freshness_target,
        publish_interval=settings.publish_interval,
        wanted=wanted.topic,
    )
    catalog: Catalog | None = None
    find: FindHead | None = None
    try:
        catalog = within(STATUS_CATALOG_SECONDS, "catalog", lambda: _catalog(settings))
        find = _no_table if catalog is None else head_of(catalog, settings.catalog.namespace, settings.table_of)
    except Exception as error:  # noqa: BLE001 - whatever a catalog's client raises
        facts = replace(facts, catalog_problem=problem_of(error))
    facts, stored = _store(settings, find, wanted, facts)
    facts = replace(facts, stored=stored)
    facts = _kafka(settings, facts)
    if facts.kafka is not None:
        facts = _named(facts, {topic.topic_id: topic.topic for topic in facts.kafka.topics.values()})
    facts = replace(facts, kafka_clusters=_beside(settings, facts))
    facts = _tables(catalog, settings, facts)
    bridge_problem, store_refusal = _bridge(wanted.bridge, settings)
    facts = replace(facts, bridge_problem=bridge_problem, store_refusal=store_refusal)
    names = {topic.topic for topic in facts.stored.values()} | {topic.topic for topic in facts.lost.values()}
    names |= set(facts.kafka.topics) if facts.kafka is not None else set()
    verbatim = frozenset(name for name in names if settings.rule(name).mode == "verbatim")
    values = {name: settings.values_of(name) for name in names}
    return replace(facts, verbatim_topics=verbatim, values=values, now_ms=int(time.time() * 1000))


def patient(settings: Settings) -> Settings:
    """The settings with time-outs for a person who waits, not for a broker."""
    if settings.store is None:
        return settings
    times = {"fetch_timeout": STATUS_FETCH_SECONDS, "upload_timeout": STATUS_FETCH_SECONDS}
    return settings.model_copy(update={"store": settings.store.model_copy(update=times)})


@dataclass(slots=True, kw_only=True)
class _ReadSoFar:
    """What a thread has read of the store, which may be left behind.

    Attributes:
        ids: of topics that have anything there, in the order in which they are read.
        free_bytes: what the store still takes; None: it does not say.
        found: topics with their tables, by id.
        failed: why the store did not give what it has of others.
        moved: when a topic was done last, in monotonic seconds.
    """

    ids: list[bytes] = field(default_factory=list)
    free_bytes: int | None = None
    found: dict[str, StoredTopic] = field(default_factory=dict)
    failed: dict[str, Problem] = field(default_factory=dict)
    moved: float = field(default_factory=time.monotonic)

    def read(self, settings: Settings, find: FindHead | None, wanted: Wanted, ends_at: float) -> None:
        """Every topic with its table, and what the store still takes.

        Raises:
            StoreError: the store does not answer, or not for several topics one after the other.
        """
        store = _existing_store(settings)
        self.free_bytes = store.free_bytes()
        self.ids = list(indexed_topic_ids(store))
        in_a_row = 0
        with readers() as pool:
            for topic_id in self.ids:
                try:
                    topic = read_topic(store, topic_id, wanted.topic, ends_at, pool)
                    if topic is not None:
                        stored = stored_topic(topic, find, store, settings)
                        lost = lost_objects(store, topic_id, topic.segments) if topic.complete else ()
                        self.found[topic_id.hex()] = replace(stored, lost=lost)
                except StoreError as error:
                    self.failed[topic_id.hex()], in_a_row = problem_of(error), in_a_row + 1
                    if in_a_row >= STATUS_FAILURES_MAX or len(self.ids) == 1:
                        raise
                else:
                    self.moved, in_a_row = time.monotonic(), 0

    def unread(self, topics: Mapping[str, StoredTopic]) -> frozenset[str]:
        """Ids of the others: of `found`, or of a copy while the thread may read on."""
        return frozenset(topic_id.hex() for topic_id in self.ids) - topics.keys()


def _store(
    settings: Settings, find: FindHead | None, wanted: Wanted, facts: Facts
) -> tuple[Facts, dict[str, StoredTopic]]:
    so_far = _ReadSoFar()
    # Twice: what is under way when time runs out still ends, and tables are read after their segments.
    ends_at, seconds = time.monotonic() + wanted.deadline, 2 * wanted.deadline
    try:
        within(seconds, "store", lambda: so_far.read(settings, find, wanted, ends_at))
    except TimeoutError as error:
        return _out_of_time(so_far, wanted, seconds, facts, error)
    except Exception as error:  # noqa: BLE001 - whatever a store's client raises
        unread = so_far.unread(so_far.found) if so_far.found else frozenset()
        return replace(facts, store_problem=problem_of(error), topics_unread=unread), so_far.found
    # The topic that was asked for is there: what others lack is not asked.
    failed = {} if wanted.topic is not None and so_far.found else so_far.failed
    facts = replace(facts, store_failed=failed, topics_unread=frozenset(failed))
    return replace(facts, store_free_bytes=so_far.free_bytes), so_far.found


def _out_of_time(
    so_far: _ReadSoFar, wanted: Wanted, seconds: float, facts: Facts, error: TimeoutError
) -> tuple[Facts, dict[str, StoredTopic]]:
    """What was read, while the thread may read on."""
    topics, there = dict(so_far.found), len(so_far.ids)
    if not topics:
        said = f"none of {there:,} topics could be read, with its table, in {seconds:g} s"
        return replace(facts, store_problem=Problem(CauseCode.STORE_SLOW, said) if there else problem_of(error)), {}
    said = f"{len(topics):,} of {there:,} topics were read, with their tables, in {seconds:g} s"
    quiet = time.monotonic() - so_far.moved
    facts = replace(
        facts,
        store_free_bytes=so_far.free_bytes,
        topics_unread=frozenset() if wanted.topic is not None else so_far.unread(topics),
        store_unread=said,
        store_stalled=f"{said}, none in the last {quiet:.0f} s" if quiet > wanted.deadline else None,
        store_failed=dict(so_far.failed),
    )
    return facts, topics


def _no_table(_: KnownSegment) -> Head | None:
    return None


def _catalog(settings: Settings) -> Catalog | None:
    """The catalog, asked once, so that one that is away is known at once; None: the bridge makes it with a table."""
    if not settings.catalog.properties and not embedded_catalog(settings.data_dir).exists():
        return None
    catalog = open_catalog(catalog_properties(settings))
    catalog.namespace_exists(tuple(settings.catalog.namespace.split(".")))
    return catalog


def _tables(catalog: Catalog | None, settings: Settings, facts: Facts) -> Facts:
    """With what tables tell, where store and catalog answered: topics that are lost, and names of those without one."""
    if facts.store_problem is not None or catalog is None:
        return facts
    ends_at = time.monotonic() + STATUS_CATALOG_SECONDS

    def look() -> FoundTables:
        """On one thread with its requests to the store."""
        return look_at_tables(catalog, _existing_store(settings), settings, facts, ends_at)

    try:
        found = within(STATUS_CATALOG_SECONDS + 1, "catalog", look)
    except Exception as error:  # noqa: BLE001 - both answered a moment ago
        return replace(facts, tables_unread=problem_of(error).message)
    return replace(_named(facts, found.names), lost=found.lost, tables_unread=found.unread)


def _named(facts: Facts, names: Mapping[str, str]) -> Facts:
    """With names for topics of which no index could be read: until then their ids stand for them."""
    stored = {
        topic_id: replace(topic, topic=names.get(topic_id, topic.topic)) if topic.topic == topic_id else topic
        for topic_id, topic in facts.stored.items()
    }
    return replace(facts, stored=stored)


def _existing_store(settings: Settings) -> ObjectStore:
    """The store, without making a folder for one that is not there."""
    if (missing := store_missing(settings)) is not None:
        raise StoreError(missing)
    return open_store(patient(settings))


def _source(settings: Settings) -> KafkaSource | None:
    servers = settings.kafka.bootstrap_servers
    if servers is None:
        return None
    properties = {name: secret.get_secret_value() for name, secret in settings.kafka.properties.items()}
    return KafkaSource({**properties, "bootstrap.servers": servers}, time.monotonic() + STATUS_KAFKA_SECONDS)


def _beside(settings: Settings, facts: Facts) -> frozenset[str]:
    """`Facts.kafka_clusters`, where one topic was asked for and Kafka has no such id; none where nobody can know."""
    if facts.wanted is None or facts.kafka is None:
        return frozenset()
    named = {topic.topic_id for topic in facts.kafka.topics.values()}
    source = _source(settings)
    if source is None or facts.stored.keys() <= named:
        return frozenset()

    def read() -> frozenset[str]:
        """Of every topic that both have."""
        store, there = _existing_store(settings), {topic.topic_id for topic in source.describe().topics.values()}
        both = (topic_id for topic_id in topic_ids(store) if topic_id.hex() in there)
        return frozenset().union(*(stored_clusters(store, topic_id) for topic_id in both))

    try:
        return within(STATUS_KAFKA_SECONDS, "brokers or store", read)
    except Exception:  # noqa: BLE001 - both answered a moment ago; without it the topic is not judged
        return frozenset()


def _kafka(settings: Settings, facts: Facts) -> Facts:
    source = _source(settings)
    if source is None:
        return facts

    def ask() -> KafkaFacts:
        """All of Kafka, in one go on one thread."""
        found = source.ask(facts.wanted, facts.stored.keys())
        missing = {topic.topic for topic in facts.stored.values()} - set(found.topics)
        found = replace(found, hidden=source.hidden(missing))
        found = source.with_timestamps(found, beyond_tiered(found, facts.stored))
        return with_unread(found, source.unread(history_starts(found, facts.stored, facts.wanted)))

    try:
        return replace(facts, kafka=within(STATUS_KAFKA_SECONDS + 1, "brokers", ask))
    except KafkaClientMissingError as error:
        return replace(facts, kafka_problem=Problem(CauseCode.KAFKA_CLIENT_MISSING, str(error)))
    except Exception as error:  # noqa: BLE001 - whatever the client raises
        return replace(facts, kafka_problem=problem_of(error))


def beyond_tiered(kafka: KafkaFacts, stored: Mapping[str, StoredTopic]) -> dict[Where, int]:
    """First offset that is not tiered, of each partition that has one."""
    found: dict[Where, int] = {}
    for name, topic in kafka.topics.items():
        ours = stored.get(topic.topic_id)
        frontiers = ours.table.frontiers if ours is not None and ours.table is not None else {}
        for number, partition in topic.partitions.items():
            if partition.end is None or partition.log_start is None:
                continue
            tiered = ours.partitions.get(number) if ours is not None else None
            published = published_reach(frontiers.get(number, 0), ours.withdrawn.get(number) if ours else None) or 0
            ends = [last + 1 for _, last in ours.damaged_offsets.get(number, ())] if ours is not None else []
            reached = max(partition.log_start, tiered.tiered_end if tiered else 0, published, *ends)
            if reached < partition.end:
                found[name, number] = reached
    return found


def history_starts(kafka: KafkaFacts, stored: Mapping[str, StoredTopic], wanted: str | None) -> dict[Where, int]:
    """The lowest tiered offset that Kafka must serve, of partitions whose history may be unreadable.

    Those are the ones whose leader, or newest copy, has epochs that begin above the log start, and all of a topic that
    was asked for: each is one read of the tier.
    """
    found: dict[Where, int] = {}
    for name, topic in kafka.topics.items():
        ours = stored.get(topic.topic_id)
        for number, partition in topic.partitions.items():
            tiered = ours.partitions.get(number) if ours is not None else None
            if tiered is None or partition.log_start is None or partition.end is None:
                continue
            start = max(partition.log_start, tiered.start)
            suspected = tiered.cut_start is not None and partition.log_start < tiered.cut_start
            suspected = suspected or not partition.start_has_epoch
            if (suspected or wanted == name) and start < min(tiered.tiered_end, partition.end):
                found[name, number] = start
    return found


def with_unread(kafka: KafkaFacts, unread: Mapping[Where, Unread]) -> KafkaFacts:
    """The facts with what leaders do not serve; of two offsets of a partition the lower one."""
    topics = {
        name: replace(
            topic,
            partitions={
                number: replace(part, unread=unread.get((name, number), part.unread))
                for number, part in topic.partitions.items()
            },
        )
        for name, topic in kafka.topics.items()
    }
    return replace(kafka, topics=topics)


def bridge_address(settings: Settings) -> str | None:
    """Where the settings say that a bridge of this machine listens; None when the port is chosen at its start."""
    target = parse_listen(settings.listen)
    if isinstance(target, Path):
        return f"unix:{target.resolve()}"
    host, port = target
    if port == 0:
        return None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what listens everywhere answers here
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bridge(address: str | None, settings: Settings) -> tuple[Problem | None, str | None]:
    """What is wrong with the bridge, and why the store takes no copies of it, as its health service says.

    With TLS, for which a person has no certificate, it is only asked whether it accepts connections.
    """
    if address is None:
        return None, None
    try:
        if settings.tls is not None:
            host, _, port = address.rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), STATUS_BRIDGE_SECONDS):
                return None, None
        with grpc.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=STATUS_BRIDGE_SECONDS)
            if answer.status != health_pb2.HealthCheckResponse.SERVING:
                return Problem("unavailable", f"the bridge at {address} says that it is not serving"), None
            _, call = stub.Check.with_call(
                health_pb2.HealthCheckRequest(service=HEALTH_SERVICE), timeout=STATUS_BRIDGE_SECONDS
            )
            said = [value for key, value in call.trailing_metadata() or () if key == WHY_TRAILER]
            return None, bytes(said[0]).decode(errors="replace") if said else None
    except grpc.RpcError as error:
        return Problem("unavailable", f"no answer from {address}: {error.code().name}: {error.details()}"), None
    except OSError as error:
        return Problem("unavailable", f"no answer from {address}: {error}"), None
