"""A schema that grows from 16 to 400 fields in the middle of a stream: copies keep their pace, the table follows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyiceberg.catalog import Catalog

from tests.e2e.conftest import start_pair
from tests.e2e.e2e_status import causes, only_partition, status
from tests.e2e.e2e_support import Pair, wait_tiered
from tests.e2e.e2e_typed import published, register
from tests.e2e.e2e_typed_stream import (
    HEADER,
    Stream,
    columns_equal,
    no_copy_failed,
    stored,
    turns,
    wait_copied,
    wait_frontier,
)
from tests.support.typed_wide import wide
from tierberg.stack.lake import Lake
from tierberg.stack.servers.registry import RegistryServer
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use fetches servers and builds one

TOPIC = "avro-growing"
#: Rows of about 3 KB in either schema: only the columns differ.
NARROW, WIDE = wide(16, 400, 0, 100, 1300), wide(400, 400, 1000, 100)
BATCH_BYTES = 300_000
WATCHED_S = 40
LOOKS_MIN = 8
COPIED_S = 120
CAUGHT_UP_S = 300
#: What a copy may take longer on a machine that has other things to do.
NOISE_S = 2.0


@pytest.fixture
def pair(lake: Lake, registry: RegistryServer, tmp_path: Path) -> Iterator[Pair]:
    settings = lake.bridge_settings()
    settings["store"]["fetch_timeout"] = "10s"  # two cores for six servers
    asked = {"url": registry.url, "request_timeout": "10s"}
    rules = [NARROW.rule("avro-.*", "wire")]
    settings |= {"topics": rules, "schema_registry": asked}
    started = start_pair(tmp_path / "pair", bridge_settings=settings)
    yield started
    started.broker.stop()
    started.bridge.stop()


@dataclass
class Watched:
    """What was seen of the copies and the table for a while.

    Attributes:
        waits: seconds from when something was sent until it was off the broker's disk, once for each round.
        copy_s: mean time of a copy, by the bridge's own page.
        copies, bytes, seconds: how many copies ended, their log bytes, how long it was watched.
        behind: what `tierberg status` said when the table was behind the copies.
    """

    waits: list[float] = field(default_factory=list)
    copy_s: float = 0.0
    copies: int = 0
    bytes: int = 0
    seconds: float = 0.0
    behind: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.copies} copies, {self.copy_s:.2f} s each, {self.bytes / self.seconds / 1e6:.2f} MB/s, acknowledged "
            f"after {median(self.waits):.1f} s (median of {len(self.waits)}), behind in {len(self.behind)} looks"
        )


def watched(pair: Pair, stream: Stream) -> Watched:
    """For WATCHED_S of steady producing, or longer where a look takes long."""
    found, before, began = Watched(), pair.bridge.metrics(), time.monotonic()
    while time.monotonic() < began + WATCHED_S or len(found.waits) < LOOKS_MIN:
        looked = time.monotonic()
        wait_copied([stream], COPIED_S)
        found.waits.append(time.monotonic() - looked)
        document = status(pair, TOPIC)
        found.behind += _explained(document)
        assert not document["needs_person"], document
    after, found.seconds = pair.bridge.metrics(), time.monotonic() - began
    name = "tierberg_copy_seconds"
    found.copies = int(after[f"{name}_count"] - before.get(f"{name}_count", 0))
    found.copy_s = (after[f"{name}_sum"] - before.get(f"{name}_sum", 0)) / found.copies
    found.bytes = int(after["tierberg_copied_bytes_total"] - before.get("tierberg_copied_bytes_total", 0))
    return found


def _explained(document: dict[str, Any]) -> list[str]:
    """Why the table is behind the copies, if it is."""
    partition = only_partition(document)
    if (partition["published_end"] or 0) >= (partition["tiered_end"] or 0):
        return []
    said = [item["said"] for item in partition["findings"] if item["code"] in {"columns_wait", "publishing"}]
    assert said, f"the table is behind and nobody says why: {document}"
    return said


def batch(number: int, kind: Any) -> list[bytes]:
    """Framed values of about BATCH_BYTES."""
    values = [kind.framed(number, value) for value in kind.values]
    return values * (1 + BATCH_BYTES // sum(map(len, values)))


def test_from_16_to_400_fields_under_load(pair: Pair, registry: RegistryServer, catalog: Catalog) -> None:
    with closing(SchemaRegistryClient({"url": registry.url, "timeout": 30})) as client:
        first = register(client, "growing-value", NARROW)
        stream = Stream(pair, TOPIC, turns(batch(first, NARROW)), 0.5)
        stream.start()
        try:
            wait_for("records", stream.end, COPIED_S)
            wait_frontier(pair, TOPIC, stream.end(), COPIED_S)
            status(pair, TOPIC)  # what it needs is loaded once
            before = watched(pair, stream)
            second = register(client, "growing-value", WIDE)
            stream.exchange(turns(batch(second, WIDE)))
            changed = stream.end()
            after = watched(pair, stream)
        finally:
            stream.stop()
    stopped = time.monotonic()
    wait_tiered(pair, TOPIC, timeout_s=COPIED_S)
    wait_frontier(pair, TOPIC, stream.end(), CAUGHT_UP_S)
    print(f"before: {before}; after: {after}; all published {time.monotonic() - stopped:.0f} s after the last record")
    reasons = {item.pending for item in stored(pair, TOPIC)} - {None}
    print(f"pending: {reasons}; said: {set(after.behind)}")

    assert after.copy_s <= 2 * before.copy_s + NOISE_S
    assert median(after.waits) <= 2 * median(before.waits) + NOISE_S
    assert after.bytes / after.seconds >= before.bytes / before.seconds / 2
    no_copy_failed(pair, [TOPIC])

    kinds = {first: NARROW, second: WIDE}
    assert 0 < changed < stream.end()
    table = published(catalog, TOPIC, len(stream.sent))
    assert len(table.column_names) - sum(name.startswith("_kafka_") for name in table.column_names) == 400
    columns_equal(
        table, stream.sent, lambda value: kinds[int.from_bytes(value[1:HEADER], "big")].columns(value[HEADER:])
    )
    stream.served()
    assert causes(only_partition(status(pair, TOPIC))) == {"published"}
