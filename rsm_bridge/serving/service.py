"""The bridge as a whole: opens what the settings name, runs until told to stop.

Pools, each bounded, so that no kind of call starves another: copies (at lower priority of the operating system),
fetches, control calls, look-ups of topics' owners. The publisher has threads of its own; an outage of the catalog never
touches a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog

from converter.index.model import Directory
from converter.types import Cause, SegmentMetadata
from rsm_bridge.config.secrets import revealed
from rsm_bridge.config.settings import Settings, convert_options
from rsm_bridge.limits import AHEAD_PAUSE_SECONDS_MAX, LATE_COPY_SECONDS, MIB, OWNER_WORKERS
from rsm_bridge.logs import logger
from rsm_bridge.metrics.http_pages import MetricsPage
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.serving.copy.call import Copier
from rsm_bridge.serving.fetch.fetcher import Fetcher, FetchPools
from rsm_bridge.serving.grpc_server import Server
from rsm_bridge.serving.handlers import Handlers
from rsm_bridge.serving.maintainer import Maintainer
from rsm_bridge.serving.owner_lookups import OwnerLookups
from rsm_bridge.serving.probes import Probes
from rsm_bridge.serving.publisher import Publisher
from rsm_bridge.serving.reachability import Dependency, Reachability
from rsm_bridge.serving.scheduling.call_pool import CallPool
from rsm_bridge.serving.scheduling.copy_memory import CopyMemory
from rsm_bridge.serving.scheduling.copy_places import CopyPlaces
from rsm_bridge.serving.scheduling.fetch_priority import FetchPriority, lower_priority
from rsm_bridge.serving.scheduling.worker_pool import WorkerPool
from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.local import own_folders
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.segments.deleter import Deleter, Outcome
from rsm_bridge.storage.segments.reader import SegmentReader
from rsm_bridge.storage.segments.running_copies import RunningCopies
from rsm_bridge.storage.segments.topic_owners import TopicOwners
from rsm_bridge.storage.writes import StoreWrites
from rsm_bridge.values.typed.topics import TypedTopics, opened_typed_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A bridge that answers. `metrics_address` is None without a metrics page; `reach` knows what is away."""

    address: str
    metrics_address: str | None
    store: ObjectStore
    metrics: Metrics
    publisher: Publisher
    reach: Reachability


def copy_memory(settings: Settings) -> CopyMemory:
    """The account of all copies."""
    return CopyMemory(settings.limits.copy_memory_mib * MIB, settings.limits.copy_workers)


@contextlib.asynccontextmanager
async def running_bridge(
    settings: Settings, warm: Callable[[threading.Event], None] = lambda _: None
) -> AsyncIterator[Running]:
    """Starts a bridge and, at the end of the block, stops it: calls first, then the publisher.

    Args:
        settings: of this bridge.
        warm: run before calls are answered, while the probes' page already is: alive, and not ready. It sets its event
            when it compiles.

    Raises:
        SettingsError: something the settings name cannot be used.
    """
    metrics, log, memory = Metrics(), logger("bridge"), copy_memory(settings)
    with contextlib.ExitStack() as stack:
        store = _locked_store(settings, stack)
        running, priority, unhurried = RunningCopies(), FetchPriority(), store.unhurried()
        publisher = _publisher(settings, unhurried, metrics, running, priority)
        reach = _watched(settings, store, publisher.open_catalog, stack)
        writes = StoreWrites()
        probes = Probes(loop=asyncio.get_running_loop(), store=store, reach=reach, writes=writes)
        metrics_address = _metrics_page(settings, metrics, probes, stack)
        await probes.warmed(warm)
        pools, fetch_pools = _pools(settings, memory.copies, stack), _fetch_pools(settings, priority, stack)
        publisher.typed = typed = _typed_topics(settings, unhurried, publisher, memory, stack)
        maintainer = _maintainer(settings, unhurried, metrics, publisher, typed)
        handlers = Handlers(
            copier=Copier(
                store=store,
                priority=fetch_pools.priority,
                running=running,
                executor=pools["copy"],
                places=CopyPlaces(memory.copies),
                memory=memory,
                metrics=metrics,
                options=lambda topic: convert_options(settings, topic),
                columns=typed.copy,
                finished=_finished(metrics, publisher),
                log=logger("copy"),
            ),
            fetcher=Fetcher(SegmentReader(store, pools["fetch-helper"]), fetch_pools, settings.limits, metrics),
            deleter=Deleter(store),
            control=stack.enter_context(CallPool(settings.limits.control_workers, "control")),
            limits=settings.limits,
            metrics=metrics,
            log=logger("request"),
            deleted=_deleted(publisher),
            clients=None if settings.tls is None else settings.tls.clients,
            owners=OwnerLookups(TopicOwners(store), stack.enter_context(CallPool(OWNER_WORKERS, "owner"))),
            writes=writes,
        )
        server = Server(settings, handlers, log)
        address = await server.start()
        publisher.start()
        maintainer.start()
        try:
            yield Running(
                address=address,
                metrics_address=metrics_address,
                store=store,
                metrics=metrics,
                publisher=publisher,
                reach=reach,
            )
        finally:
            await server.stop()
            await asyncio.to_thread(maintainer.stop)
            await asyncio.to_thread(publisher.stop)


def _publisher(
    settings: Settings, store: ObjectStore, metrics: Metrics, running: RunningCopies, priority: FetchPriority
) -> Publisher:
    return Publisher(
        settings=settings,
        store=store,
        metrics=metrics,
        log=logger("publisher"),
        copies=running,
        yield_to_fetches=priority.yield_to_fetches,
    )


def _maintainer(
    settings: Settings, store: ObjectStore, metrics: Metrics, publisher: Publisher, typed: TypedTopics
) -> Maintainer:
    return Maintainer(
        settings=settings,
        store=store,
        catalog=publisher.open_catalog,
        metrics=metrics,
        log=logger("maintain"),
        typed=typed,
    )


def _locked_store(settings: Settings, stack: contextlib.ExitStack) -> ObjectStore:
    """The object store; a folder is this bridge's alone until `stack` ends."""
    store = open_store(settings)
    own_folders(store, settings.data_dir, stack)
    return store


def _watched(
    settings: Settings, store: ObjectStore, open_catalog: Callable[[], Catalog], stack: contextlib.ExitStack
) -> Reachability:
    """The watch over what the settings name, until `stack` ends."""
    namespace, properties = settings.catalog.namespace, settings.catalog.properties
    place = revealed(properties).get("uri", settings.catalog.name) if properties else str(settings.data_dir)
    # Names alone: an address may carry a password.
    try:
        parts = urlsplit(place)
        where = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        where = settings.catalog.name
    reach = Reachability(
        (
            Dependency(
                name="store",
                where=store.root_uri,
                ask=store.check,
                without=(
                    "copies, fetches and deletes fail until it can be; Kafka repeats them and keeps its local segments"
                ),
            ),
            Dependency(
                name="catalog",
                where=where,
                ask=lambda: open_catalog().namespace_exists(namespace),
                without="copies and fetches go on, tables stay as they are and catch up by themselves",
            ),
        ),
        logger("bridge"),
    )
    reach.start()
    stack.callback(reach.stop)
    return reach


def _pools(settings: Settings, slots: int, stack: contextlib.ExitStack) -> dict[str, ThreadPoolExecutor]:
    """Threads of copies, at lower priority, and helpers of fetches, until `stack` ends."""
    return {
        name: stack.enter_context(ThreadPoolExecutor(size, thread_name_prefix=name, initializer=initializer))
        for name, size, initializer in (
            ("copy", slots, lower_priority),
            ("fetch-helper", settings.limits.fetch_workers, None),
        )
    }


def _typed_topics(
    settings: Settings, store: ObjectStore, publisher: Publisher, memory: CopyMemory, stack: contextlib.ExitStack
) -> TypedTopics:
    """Topics whose values have columns, until `stack` ends."""
    typed = stack.enter_context(opened_typed_topics(settings, store, publisher.open_catalog, log=publisher.log))
    typed.large = memory.large
    return typed


def _fetch_pools(settings: Settings, priority: FetchPriority, stack: contextlib.ExitStack) -> FetchPools:
    """Pools for reading and decoding, until `stack` ends."""
    return FetchPools(
        reading=stack.enter_context(WorkerPool(settings.limits.fetch_workers, "fetch")),
        decoding=stack.enter_context(WorkerPool(os.cpu_count() or 1, "decode", AHEAD_PAUSE_SECONDS_MAX)),
        priority=priority,
    )


def _metrics_page(settings: Settings, metrics: Metrics, probes: Probes, stack: contextlib.ExitStack) -> str | None:
    """Serves the page, if there is to be one, until `stack` ends; returns its address with the real port."""
    if settings.metrics_listen is None:
        return None
    pages = {"/healthz": probes.alive, "/readyz": probes.ready}
    page = MetricsPage(metrics.registry, pages, "metrics_listen", settings.metrics_listen)
    stack.callback(page.close)
    return page.address


def _deleted(publisher: Publisher) -> Callable[[SegmentMetadata, Outcome], None]:
    """Tells the publisher of a delete."""

    def tell(segment: SegmentMetadata, outcome: Outcome) -> None:
        # Nothing that can be published has changed; the tombstone alone is to go, when its fence is over.
        late = LATE_COPY_SECONDS if outcome == "unknown_id" else 0.0
        publisher.notify(segment.topic_id, index_key(segment), late)

    return tell


def _finished(
    metrics: Metrics, publisher: Publisher
) -> Callable[[SegmentMetadata, Directory, Mapping[str, int]], None]:
    """What follows a copy."""

    def finished(segment: SegmentMetadata, directory: Directory, failed: Mapping[str, int]) -> None:
        _count_copy(metrics, segment, directory, failed)
        metrics.progress.copied(segment)
        publisher.notify(segment.topic_id, index_key(segment))

    return finished


def _count_copy(metrics: Metrics, segment: SegmentMetadata, directory: Directory, failed: Mapping[str, int]) -> None:
    metrics.copied_bytes.inc(segment.segment_size_bytes)
    metrics.copied_rows.inc(directory.summary.rows)
    metrics.data_bytes.inc(directory.data_size)
    for count in directory.summary.kept:
        metrics.kept_bytes.labels(count.cause.name.lower()).inc(count.bytes)
    for count in directory.summary.quarantined:
        metrics.quarantined_batches.labels(count.cause.name.lower()).inc(count.batches)
    for code, rows in failed.items():
        metrics.dead_letters.labels(code).inc(rows)
    if any(count.cause is Cause.VERBATIM for count in directory.summary.kept):
        metrics.verbatim_segments.labels("asked").inc()
    if directory.summary.transaction_conflict:
        metrics.conflicting_segments.inc()
