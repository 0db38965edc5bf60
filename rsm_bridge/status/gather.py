"""Gathers the facts of one report: store and catalog, then Kafka, then the bridge, each within a deadline of its own.

Every source is asked on a daemon thread: one that hangs is reported as not answering and does not keep the command from
ending. The store is read before Kafka is asked, so that Kafka's end is never the older figure.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyiceberg.catalog import Catalog

from iceberg_catalog.commit.head import Head
from iceberg_catalog.connect.open import embedded_catalog, open_catalog
from rsm_bridge.config.settings import Settings, parse_listen
from rsm_bridge.limits import (
    STATUS_BRIDGE_SECONDS,
    STATUS_CATALOG_SECONDS,
    STATUS_FETCH_SECONDS,
    STATUS_KAFKA_SECONDS,
)
from rsm_bridge.metrics.progress.facts import Facts, KafkaFacts, Problem, StoredTopic, Unread, problem_of
from rsm_bridge.metrics.progress.kafka import KafkaClientMissingError, KafkaSource, Where
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.partition import published_reach
from rsm_bridge.status.store.facts import head_of
from rsm_bridge.status.store.read import FindHead, existing_store, with_stored
from rsm_bridge.status.store.topic import readers
from rsm_bridge.status.tables import FoundTables, look_at_tables
from rsm_bridge.status.within import within
from rsm_bridge.storage.backend import catalog_properties
from rsm_bridge.storage.segments.known import KnownSegment
from rsm_bridge.storage.segments.topic_segments import stored_clusters, topic_ids
from rsm_bridge.storage.writes import HEALTH_SERVICE, WHY_TRAILER


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to report on. `bridge` is a gRPC address; None: none is asked. `deadline` is in seconds, for the store."""

    topic: str | None
    bridge: str | None
    deadline: float


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
    facts = with_stored(facts, settings, find, wanted.deadline)
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


def _no_table(_: KnownSegment) -> Head | None:
    return None


def _catalog(settings: Settings) -> Catalog | None:
    """The catalog, asked once, so that one that is away is known at once; None: the bridge makes it with a table."""
    if not settings.catalog.properties and not embedded_catalog(settings.data_dir).exists():
        return None
    given = catalog_properties(settings)
    times = dict.fromkeys(("s3.connect-timeout", "s3.request-timeout"), f"{STATUS_FETCH_SECONDS:g}")
    catalog = open_catalog(replace(given, properties={**times, **given.properties}))
    catalog.namespace_exists(tuple(settings.catalog.namespace.split(".")))
    return catalog


def _tables(catalog: Catalog | None, settings: Settings, facts: Facts) -> Facts:
    """With what tables tell, where store and catalog answered: topics that are lost, and names of those without one."""
    if facts.store_problem is not None or catalog is None:
        return facts
    ends_at = time.monotonic() + STATUS_CATALOG_SECONDS

    def look() -> FoundTables:
        """On one thread with its requests to the store."""
        return look_at_tables(catalog, existing_store(settings), settings, facts, ends_at)

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
        store, there = existing_store(settings), {topic.topic_id for topic in source.describe().topics.values()}
        both = (topic_id for topic_id in topic_ids(store) if topic_id.hex() in there)
        with readers() as pool:
            return frozenset().union(*pool.map(lambda topic_id: stored_clusters(store, topic_id), both))

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


def _handshake(plain: socket.socket) -> None:
    """Raises OSError where the other side does not begin to speak TLS in time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is said to it
    try:
        context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):  # one is an answer: it wants a certificate
            raise


def _bridge(address: str | None, settings: Settings) -> tuple[Problem | None, str | None]:
    """What is wrong with the bridge, and why the store takes no copies of it, as its health service says.

    With TLS, for which a person has no certificate, it is only asked to begin: a process that stands still does not.
    """
    if address is None:
        return None, None
    try:
        if settings.tls is not None:
            host, _, port = address.rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), STATUS_BRIDGE_SECONDS) as plain:
                _handshake(plain)
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
