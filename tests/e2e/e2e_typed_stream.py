"""A topic that is produced to all the time, and how far its copies and its table have come meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from iceberg_catalog.tables.names import table_name
from rsm_bridge.config.settings import load_settings
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.segments.known import KnownSegment, read_segments
from tests.e2e.e2e_support import Pair, Rec, Sender, read, same
from tests.e2e.e2e_typed import records
from tierberg.stack.jmx import JmxReader
from tierberg.stack.waiting import wait_for

HEADER = 5
AT_REST_S = 60


#: Nothing is sent of it.
QUIET: Sequence[bytes] = ()


class Stream:
    """A producer that sends from a thread until it is stopped, a batch and then a pause."""

    def __init__(self, pair: Pair, topic: str, batches: Iterator[Iterable[bytes]], pause_s: float = 1.0) -> None:
        """The topic is made; nothing is sent yet."""
        pair.admin.create_topic(topic)
        self.pair, self.topic = pair, topic
        self._batches, self._pause_s = batches, pause_s
        self._sender = Sender(pair.broker, topic)
        self._end = 0
        self._failure: BaseException | None = None
        self._lock = threading.Lock()  # held while a batch is sent
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def sent(self) -> dict[int, Rec]:
        """Offset → record of all that the broker has; once it is stopped."""
        assert not self._thread.is_alive()
        return self._sender.log.committed

    def start(self) -> None:
        self._thread.start()

    def exchange(self, batches: Iterator[Iterable[bytes]]) -> None:
        """Goes on with these; the batch that is under way is sent first."""
        with self._lock:
            self._batches = batches
        self.end()

    def stop(self) -> None:
        """Ends after the batch that is under way; raises what went wrong."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(180)
        self.end()

    def end(self) -> int:
        """One past the last offset that the broker has."""
        if self._failure is not None:
            raise self._failure
        return self._end

    def copied(self, end: int) -> bool:
        """Whether nothing below `end` is on the broker's disk any more: the broker was told that it is copied."""
        return min(self.pair.broker.local_segments(self.topic, 0), default=0) >= end

    def served(self) -> None:
        """What was sent before the call, and nothing else up to there, is what consumers get."""
        with self._lock:
            known = dict(sorted(self._sender.log.committed.items()))
        last, found = max(known), read(self.pair.broker, self.topic)
        same({offset: record for offset, record in found.items() if offset <= last}, known)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                with self._lock:
                    self._sender.send(records(next(self._batches)))
                    self._end = max(self._sender.log.committed, default=-1) + 1
                self._stopped.wait(self._pause_s)
        except BaseException as failure:  # noqa: BLE001 the test's thread raises it
            self._failure = failure


def turns(*batches: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """These batches over and over."""
    return cycle(batches)


def wait_copied(streams: Iterable[Stream], timeout_s: float) -> None:
    """Until all that was sent before the call has left the broker's disk; it fails for a copy that waited longer."""
    ends = [(stream, stream.end()) for stream in streams]
    names = ", ".join(stream.topic for stream, _ in ends)
    wait_for(f"{names} to be copied", lambda: all(stream.copied(end) for stream, end in ends), timeout_s)


def wait_frontier(pair: Pair, topic: str, end: int, timeout_s: float) -> None:
    """Until the table has everything below offset `end`, by the bridge's own page."""
    name = "tierberg_partition_frontier_offset"
    wait_for(f"{topic} up to {end}", lambda: pair.bridge.metric(name, topic=topic) >= end, timeout_s, 0.5)


def no_copy_failed(pair: Pair, topics: Iterable[str]) -> None:
    """Neither the bridge since its start nor the broker counts a copy that failed."""
    name, seen = "tierberg_requests_total", [0.0, 0.0, 0.0]

    def at_rest() -> bool:
        """Whether no copy ended between the looks."""
        seen[0] = pair.bridge.metric(name, method="copy", kind="ok")
        seen[1] = pair.bridge.metric(name, method="copy")
        seen[2] = pair.bridge.metric(name, method="copy", kind="ok")
        return seen[0] == seen[2]

    wait_for("a moment without a copy", at_rest, AT_REST_S)
    assert seen[1] == seen[0] > 0
    with JmxReader(pair.broker.jmx_port) as jmx:
        assert {topic: jmx.topic_total("RemoteCopyErrorsPerSec", topic) for topic in topics} == dict.fromkeys(topics, 0)


def stored(pair: Pair, topic: str) -> list[KnownSegment]:
    """What the bridge's store has of a topic, wherever it is."""
    store = open_store(load_settings(pair.bridge.folder / "tierberg.yaml", {}))
    return read_segments(store, bytes.fromhex(pair.admin.topic_id(topic)))


def columns_equal(table: pa.Table, sent: Mapping[int, Rec], columns: Callable[[bytes], Mapping[str, Any]]) -> None:
    """Each record is there once, with the columns of its value; of types that Python compares rightly.

    Args:
        table: rows by offset.
        sent: what was produced.
        columns: a value, header and all → its columns, every one of the table's; those it lacks are to be null.
    """
    assert table.column("_kafka_offset").to_pylist() == sorted(sent)
    values = [sent[offset].value for offset in sorted(sent)]
    assert table.column("_kafka_value").to_pylist() == values
    assert table.column("_kafka_error").null_count == table.num_rows
    known: dict[bytes, Mapping[str, Any]] = {value: columns(value) for value in set(values) if value is not None}
    names = {name for name in table.column_names if not name.startswith("_kafka_")}
    expected = set[str]().union(*known.values())
    assert names <= expected
    for name in expected:
        wanted = [None if value is None else known[value][name] for value in values]
        found = table.column(name).to_pylist() if name in names else [None] * len(values)
        assert found == wanted, name


def frontier_rows(catalog: Catalog, topic: str) -> int:
    """How many rows the table has, by its manifests; 0 while there is no table."""
    name = f"kafka.{table_name(topic)}"
    return catalog.load_table(name).scan().count() if catalog.table_exists(name) else 0
