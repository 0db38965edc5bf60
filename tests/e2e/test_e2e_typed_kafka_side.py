"""Kafka's side of typed topics is that of any other: content, positions, transactions, seeks, times.

The main job's own checks, on values that decode, damaged ones, tombstones and bytes that were never meant to.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.status.verify.store import verify_store
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_lake import PARTITIONS, check, merge, produce, rows
from tests.e2e.e2e_seeks import check_seeks, check_times, interleaved, stored_sizes
from tests.e2e.e2e_stamped import SMALL_SEGMENTS, senders, stamped, transactions
from tests.e2e.e2e_support import Pair, Rec, Sender, wait_tiered
from tests.support.answering_server import answering
from tests.support.registry_answers import Schemas
from tests.support.typed_avro import AVRO_WRITTEN
from tests.support.typed_case import Kind
from tests.support.typed_json import JSON
from tests.support.typed_protobuf import protobuf

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

KINDS: dict[str, Kind] = {"avro": AVRO_WRITTEN, "json": JSON, "protobuf": protobuf(importing=False)}
#: Of their values at least this share is written as usual; of JSON there are many ways.
WRITTEN = {"avro": 0.4, "json": 0.1, "protobuf": 0.3}
IDS = {name: number for number, name in enumerate(KINDS, start=1)}


@pytest.fixture(scope="module", params=["always", "proven"])
def policy(request: pytest.FixtureRequest) -> str:
    """Whether the table has the bytes of all values, or of those that columns do not give back."""
    return str(request.param)


@pytest.fixture(scope="module")
def typed_pair(tmp_path_factory: pytest.TempPathFactory, policy: str) -> Iterator[Pair]:
    schemas = Schemas()
    for name, kind in KINDS.items():
        body: dict[str, Any] = {"schema": kind.schema}
        schemas.add(IDS[name], f"{name}-value", body if name == "avro" else {**body, "schemaType": name.upper()})
    with answering() as server:
        server.answers = schemas.answer
        folder: Path = tmp_path_factory.mktemp("typed")
        settings = {
            "topics": [{**kind.rule(f"{name}-.*", "wire"), "value_bytes": policy} for name, kind in KINDS.items()],
            "schema_registry": {"url": server.uri},
        }
        started = start_pair(folder, bridge_settings=settings)
        yield started
        started.broker.stop()
        started.bridge.stop()


@pytest.fixture
def typed_catalog(typed_pair: Pair) -> Iterator[Catalog]:
    with closing(open_catalog(embedded_settings(typed_pair.bridge.folder))) as opened:
        yield opened


def as_typed(name: str, records: Sequence[Rec], seed: int) -> list[Rec]:
    """The same records with values of the kind: most decode, some are cut, flipped, or left as they were."""
    draw = random.Random(seed)
    kind = KINDS[name]
    framed = [kind.framed(IDS[name], value) for value in kind.values]

    def one(record: Rec) -> Rec:
        value, chance = draw.choice(framed), draw.random()
        if record.value is None or chance < 0.05:
            return record
        if chance < 0.1:
            return replace(record, value=value[: draw.randrange(len(value))])
        if chance < 0.15:
            place = draw.randrange(len(value))
            return replace(record, value=value[:place] + bytes([value[place] ^ 0x55]) + value[place + 1 :])
        return replace(record, value=value)

    return [one(record) for record in records]


def produce_typed(monkeypatch: pytest.MonkeyPatch, pair: Pair, topic: str, name: str, seed: int) -> dict[int, Sender]:
    """The main job's producers, transactions and all, with values of the kind."""
    plain = Sender.send

    def send(self: Sender, records: Any, *, committed: bool = True) -> None:
        plain(self, as_typed(name, list(records), seed + self.partition), committed=committed)

    with monkeypatch.context() as patched:
        patched.setattr(Sender, "send", send)
        return produce(pair, topic, seed)


@pytest.mark.parametrize("name", KINDS)
def test_content_comes_back_and_becomes_rows(
    name: str, typed_pair: Pair, typed_catalog: Catalog, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    pair, topic, proven = typed_pair, f"{name}-ledger", policy == "proven"
    pair.admin.create_topic(topic, partitions=len(PARTITIONS))
    sent = produce_typed(monkeypatch, pair, topic, name, 11)
    wait_tiered(pair, topic, PARTITIONS)
    assert all(sender.log.aborted for sender in sent.values())
    check(pair, typed_catalog, topic, sent, proven=proven)

    pair.bridge.kill()
    merge(sent, produce_typed(monkeypatch, pair, topic, name, 12))
    pair.bridge.start()
    wait_tiered(pair, topic, PARTITIONS)
    check(pair, typed_catalog, topic, sent, proven=proven)
    pair.broker.process.kill()
    pair.broker.start()
    # As in the main job: a broker that has just started fails remote reads until it knows its segments.
    merge(sent, produce_typed(monkeypatch, pair, topic, name, 13))
    wait_tiered(pair, topic, PARTITIONS)
    check(pair, typed_catalog, topic, sent, proven=proven)

    found = rows(typed_catalog, topic)
    assert found is not None
    dead = found.num_rows - found.column("_kafka_error").null_count
    assert 0.02 < dead / found.num_rows < 0.3
    bare = found.column("_kafka_value").null_count - found.column("_kafka_value_size").null_count
    print(f"{topic}: {bare / found.num_rows:.1%} of {found.num_rows} rows have their value in columns alone")
    assert bare > WRITTEN[name] * found.num_rows if proven else bare == 0
    report = verify_store(pair.bridge.folder / "tierberg.yaml", None, topic)
    assert report.damages == []
    assert report.rows == found.num_rows


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("name", KINDS)
def test_seeks_and_timestamps_with_half_of_all_transactions_aborted(name: str, codec: str, typed_pair: Pair) -> None:
    pair, topic = typed_pair, f"{name}-positions-{codec}"
    pair.admin.create_topic(topic, config=SMALL_SEGMENTS)
    records = as_typed(name, stamped(5, 9000), 5)
    log = interleaved(senders(pair, topic, codec, 12), transactions(records, 5, 300), 5)
    wait_tiered(pair, topic)
    sizes = stored_sizes(pair, topic)
    print(f"{topic}: {sizes}")
    assert 0.3 < len(log.aborted) / len(log.everything) < 0.7
    check_seeks(pair, topic, log, 5)
    check_times(pair, topic, log, 5)
