"""What the bridge counts. Only the gauges of board.py have labels of topics and partitions, and a bound.

Sizes are bytes, times seconds. `kind` and `cause` are the stable words of docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from converter.types import Cause
from converter.values.model import ValueProblem
from rsm_bridge.errors import ErrorKind
from rsm_bridge.logs import lost_lines
from rsm_bridge.metrics.board import ProgressBoard
from rsm_bridge.metrics.tally import WITHOUT_BYTES, Tally

#: Of the service, as labels call them.
METHODS: Final = ("copy", "fetch", "fetch_index", "delete")
_FETCH_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_COPY_BUCKETS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


def _registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=True)


@dataclass(slots=True)
class Metrics:
    """One set per server, with a registry of its own."""

    registry: CollectorRegistry = field(default_factory=_registry)
    progress: ProgressBoard = field(default_factory=ProgressBoard)
    requests: Counter = field(init=False)
    request_seconds: Histogram = field(init=False)
    copy_seconds: Histogram = field(init=False)
    copied_bytes: Counter = field(init=False)
    copied_rows: Counter = field(init=False)
    data_bytes: Counter = field(init=False)
    kept_bytes: Counter = field(init=False)
    quarantined_batches: Counter = field(init=False)
    verbatim_segments: Counter = field(init=False)
    conflicting_segments: Counter = field(init=False)
    dead_letters: Counter = field(init=False)
    served_bytes: Counter = field(init=False)
    served_batches: Counter = field(init=False)
    cache_lookups: Counter = field(init=False)
    foreign_segments: Counter = field(init=False)
    copies_running: Gauge = field(init=False)
    copies_waiting: Gauge = field(init=False)
    publishes: Counter = field(init=False)
    published_files: Counter = field(init=False)
    publish_lag: Gauge = field(init=False)
    rewinds: Counter = field(init=False)
    gaps: Counter = field(init=False)
    lost_batches: Counter = field(init=False)
    reclaimed_objects: Counter = field(init=False)
    reclaimed_bytes: Counter = field(init=False)
    held_segments: Gauge = field(init=False)
    held_rows: Gauge = field(init=False)

    def __post_init__(self) -> None:
        r = self.registry
        r.register(self.progress)
        self.requests = Counter(
            "tierberg_requests",
            "Calls by method and outcome (`ok` or the error's kind)",
            ("method", "kind"),
            registry=r,
        )
        self.request_seconds = Histogram(
            "tierberg_request_seconds",
            "Time of calls other than copies",
            ("method",),
            buckets=_FETCH_BUCKETS,
            registry=r,
        )
        self.copy_seconds = Histogram(
            "tierberg_copy_seconds", "Time of finished copies", buckets=_COPY_BUCKETS, registry=r
        )
        self.copied_bytes = Counter("tierberg_copied_bytes", "Log bytes of finished copies", registry=r)
        self.copied_rows = Counter("tierberg_copied_rows", "Rows written by finished copies", registry=r)
        self.data_bytes = Counter("tierberg_data_bytes", "Bytes of data files written", registry=r)
        self.kept_bytes = Counter("tierberg_kept_bytes", "Bytes kept as they came, by cause", ("cause",), registry=r)
        self.quarantined_batches = Counter(
            "tierberg_quarantined_batches", "Batches whose records cannot become rows, by cause", ("cause",), registry=r
        )
        self.verbatim_segments = Counter(
            "tierberg_verbatim_segments", "Segments stored as they are, by reason", ("reason",), registry=r
        )
        self.conflicting_segments = Counter(
            "tierberg_conflicting_segments",
            "Segments whose markers contradict the broker's transaction files; the table waits before each",
            registry=r,
        )
        self.dead_letters = Counter(
            "tierberg_dead_letters",
            "Rows of finished copies whose value or key did not become columns, by the code in `_kafka_error`",
            ("code",),
            registry=r,
        )
        self.served_bytes = Counter(
            "tierberg_served_bytes", "Payload bytes handed to brokers, by method", ("method",), registry=r
        )
        self.served_batches = Counter("tierberg_served_batches", "Record batches decoded for brokers", registry=r)
        self.cache_lookups = Counter(
            "tierberg_cache_lookups", "Look-ups by cache and result", ("cache", "result"), registry=r
        )
        self.foreign_segments = Counter(
            "tierberg_foreign_segments", "Calls for segments another plugin wrote", ("method",), registry=r
        )
        self.copies_running = Gauge("tierberg_copies_running", "Copies being converted", registry=r)
        self.copies_waiting = Gauge("tierberg_copies_waiting", "Copies waiting for memory or a worker", registry=r)
        lost = Gauge("tierberg_log_lines_lost", "Lines of the log that nobody got, since the start", registry=r)
        lost.set_function(lost_lines)
        self._of_tables(r)
        self._begin()

    def _begin(self) -> None:
        """Counts 0 of what is watched for: a rate does not see the first event of a series that begins with it."""
        for method in METHODS:
            for kind in ("ok", *get_args(ErrorKind)):
                self.requests.labels(method, kind)
        for cause in Cause:
            if cause is not Cause.NONE:
                self.quarantined_batches.labels(cause.name.lower())
        for reason in ("internal", "asked"):
            self.verbatim_segments.labels(reason)
        for code in ValueProblem:
            self.dead_letters.labels(str(code))
        for outcome in ("committed", "unchanged", "raced", "failed"):
            self.publishes.labels(outcome)

    def _of_tables(self, r: CollectorRegistry) -> None:
        """What publishers, reclaimers and maintenance count."""
        self.publishes = Counter("tierberg_publishes", "Publisher runs by outcome", ("outcome",), registry=r)
        self.published_files = Counter("tierberg_published_files", "Data files by change", ("change",), registry=r)
        self.publish_lag = Gauge(
            "tierberg_publish_lag_seconds", "Age of the oldest segment that waits for a commit", registry=r
        )
        self.rewinds = Counter("tierberg_rewinds", "Partitions rewound after an unclean election", registry=r)
        self.gaps = Counter("tierberg_gaps", "Stretches of offsets that Kafka never uploaded", registry=r)
        self.lost_batches = Counter(
            "tierberg_lost_batches", "Batches of transactions whose marker was never uploaded", registry=r
        )
        self.reclaimed_objects = Counter("tierberg_reclaimed_objects", "Objects deleted from the store", registry=r)
        self.reclaimed_bytes = Counter(
            "tierberg_reclaimed_bytes", "Bytes of objects deleted, by kind", ("kind",), registry=r
        )
        self.held_segments = Gauge(
            "tierberg_mass_delete_segments",
            "Segments of mass deletes that `tierberg undelete` can bring back",
            registry=r,
        )
        self.held_rows = Gauge("tierberg_mass_delete_rows", "Rows of those segments", registry=r)

    def reclaimed(self, tally: Tally) -> None:
        """Counts what a pass removed from the store."""
        for kind, count in tally.objects.items():
            if kind not in WITHOUT_BYTES:
                self.reclaimed_objects.inc(count)
                self.reclaimed_bytes.labels(kind).inc(tally.bytes[kind])
