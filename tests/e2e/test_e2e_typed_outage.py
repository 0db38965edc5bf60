"""A registry that is away: copies go on, the table shows no row without its columns, and catches up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_lake import count
from tests.e2e.e2e_status import causes, only_partition, status
from tests.e2e.e2e_support import Pair, Rec, Sender, read, same, wait_tiered
from tests.e2e.e2e_typed import columns_are, published, records
from tests.support.answering_server import answering
from tests.support.registry_answers import Schemas
from tests.support.typed_avro import AVRO
from tests.support.typed_case import Kind
from tests.support.typed_json import JSON

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

HEADER = 5
#: Local segments go after a second; a copy that waited for the registry would take longer than this.
COPIED_S = 60


def pair_with(folder: Path, url: str) -> Pair:
    rules = [kind.rule(f"{kind.format}-.*", "wire") for kind in (AVRO, JSON)]
    registry = {"url": url, "request_timeout": "2s"}
    return start_pair(folder, bridge_settings={"topics": rules, "schema_registry": registry})


@pytest.fixture
def started() -> Iterator[Callable[[Path, str], Pair]]:
    """Starts a pair that is stopped at the end."""
    pairs: list[Pair] = []

    def start(folder: Path, url: str) -> Pair:
        pairs.append(pair_with(folder, url))
        return pairs[-1]

    yield start
    for pair in pairs:
        pair.broker.stop()
        pair.bridge.stop()


class Topic:
    """One topic of one kind, compared after each step."""

    def __init__(self, pair: Pair, catalog: Catalog, name: str, kind: Kind) -> None:
        pair.admin.create_topic(name)
        self.pair, self.catalog, self.name, self.kind = pair, catalog, name, kind
        self.sender = Sender(pair.broker, name)

    @property
    def sent(self) -> dict[int, Rec]:
        return self.sender.log.committed

    def send(self, number: int) -> None:
        """Values of the schema with this id, until they are copied."""
        self.sender.send(records(self.kind.framed(number, value) for value in self.kind.values))
        wait_tiered(self.pair, self.name, timeout_s=COPIED_S)

    def served(self) -> None:
        same(read(self.pair.broker, self.name), self.sent)

    def shown(self) -> None:
        columns_are(published(self.catalog, self.name, len(self.sent)), self.kind, self.sent, HEADER)


def stands_still(topic: Topic, rows: int, seconds: float) -> None:
    """The table has these rows and no more, and `tierberg status` says what it waits for."""
    until = time.monotonic() + seconds
    assert "columns_wait" in causes(only_partition(status(topic.pair, topic.name)))
    while time.monotonic() < until:
        assert count(topic.catalog, topic.name) == rows
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))


@pytest.mark.smoke
def test_a_registry_that_errs_for_seconds(started: Callable[[Path, str], Pair], tmp_path: Path) -> None:
    schemas = Schemas()
    for number in (1, 2):
        schemas.add(number, "avro-one-value", {"schema": AVRO.schema}, version=number)
    with answering() as server:
        server.answers = schemas.answer
        pair = started(tmp_path, server.uri)
        with closing(open_catalog(embedded_settings(pair.bridge.folder))) as catalog:
            topic = Topic(pair, catalog, "avro-one", AVRO)
            topic.send(1)
            topic.shown()
            before = len(topic.sent)
            schemas.fail = lambda _: (503, {"error_code": 50301, "message": "away"})
            topic.send(2)
            topic.served()
            stands_still(topic, before, 15)
            schemas.fail = None
            topic.shown()
            topic.served()
