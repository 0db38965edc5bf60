"""`tierberg status` beside a real broker and bridge: the main causes, told apart, with the right exit codes."""

from __future__ import annotations

import json
import random
import time

import pytest

from tests.e2e.e2e_status import ask, causes, only_partition, status
from tests.e2e.e2e_support import Pair, Rec, Sender, wait_tiered
from tierberg.stack.servers.rest_catalog import RestCatalogServer
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

#: A topic as Kafka makes it: a segment stays open for a week or 1 GiB.
OPEN = {"remote.storage.enable": "true"}
WAIT_S = 60


def records(count: int = 2000, size: int = 900) -> list[Rec]:
    draw, now = random.Random(count), int(time.time() * 1000)
    return [Rec(b"k", draw.randbytes(size), (), now) for _ in range(count)]


@pytest.mark.smoke
def test_from_nothing_closed_to_published(pair: Pair) -> None:
    pair.admin.create_topic("status-flow", config=OPEN)
    sender = Sender(pair.broker, "status-flow")
    sender.send(records(50))
    found = status(pair, "status-flow")
    partition = only_partition(found)
    assert partition["cause"] == "nothing_closed", json.dumps(found, indent=1)
    assert (partition["produced_end"], partition["closed_end"], partition["tiered_end"]) == (50, 0, None)
    assert time.time() - partition["pending_ms"] / 1000 < WAIT_S
    assert "segment open since" in partition["findings"][0]["said"]
    assert "segment.ms=604800000" in partition["findings"][0]["said"]
    assert not found["needs_person"]

    # The advice given is followed: smaller segments.
    pair.admin.set_topic_config("status-flow", {"segment.bytes": "1048576", "local.retention.ms": "1000"})
    sender.send(records())
    wait_tiered(pair, "status-flow")
    wait_for("everything to be published", lambda: published(pair, "status-flow", 2050), WAIT_S, 1.0)
    found = status(pair, "status-flow")
    partition = only_partition(found)
    assert partition["cause"] == "published"
    assert partition["produced_end"] == partition["tiered_end"] == partition["published_end"] == 2050
    assert partition["lag_s"] == 0
    assert found["topics"][0]["table"] == "kafka.status_flow"
    assert found["topics"][0]["topic_id"] == pair.admin.topic_id("status-flow")
    code, text = ask(pair, "status-flow")
    assert code == 0
    assert text.startswith("nobody is needed: 1 tiered topic, 1 partition\n")


def published(pair: Pair, topic: str, end: int) -> bool:
    return bool(only_partition(status(pair, topic))["published_end"] == end)


@pytest.mark.smoke
def test_why_a_topic_is_not_tiered(pair: Pair) -> None:
    reasons = {
        "status-off": ({}, "remote_storage_off"),
        "status-compacted": ({"cleanup.policy": "compact"}, "compacted"),
        "status-paused": ({**OPEN, "remote.log.copy.disable": "true"}, "copy_disabled"),
    }
    for topic, (config, cause) in reasons.items():
        pair.admin.create_topic(topic, config=config)
        Sender(pair.broker, topic).send(records(10))
        found = status(pair, topic)
        assert [finding["code"] for finding in found["topics"][0]["findings"]] == [cause]
        assert not found["needs_person"]
    internal = status(pair, "__remote_log_metadata")
    assert [finding["code"] for finding in internal["topics"][0]["findings"]] == ["internal_topic"]
    assert causes(status(pair, "status-misspelt")) == {"no_such_topic"}
    _, everything = ask(pair)
    local = next(line for line in everything.splitlines() if "status-off" in line)
    assert local.strip().split(", ").count("status-off") == 1
    assert "__remote_log_metadata" not in everything


def test_an_open_transaction_is_told_apart(pair: Pair) -> None:
    pair.admin.create_topic("status-open")
    sender = Sender(pair.broker, "status-open", transactional_id="status-open")
    sender.transaction(records(10), commit=True)
    old = [Rec(b"k", b"v", (), int(time.time() * 1000) - 300_000) for _ in range(10)]
    sender.producer.begin_transaction()
    sender.send(old)
    found = only_partition(status(pair, "status-open"))
    sender.producer.commit_transaction(60)
    assert found["stable_end"] == 11
    assert found["produced_end"] == 21
    opened = [finding for finding in found["findings"] if finding["code"] == "open_transaction"]
    assert "began at offset 11 5 min" in opened[0]["said"]
    assert opened[0]["level"] == "waits"


def test_servers_that_are_away_are_named(rest_pair: Pair, catalog_server: RestCatalogServer) -> None:
    pair = rest_pair
    pair.admin.create_topic("ledger")
    sender = Sender(pair.broker, "ledger")
    sender.send(records())
    wait_tiered(pair, "ledger")
    wait_for("the first commit", lambda: published(pair, "ledger", 2000), WAIT_S, 1.0)
    found = status(pair, "ledger")
    assert causes(found) == set()
    assert not found["needs_person"]

    catalog_server.kill()
    sender.send(records())
    wait_tiered(pair, "ledger")
    found = status(pair, "ledger")
    assert causes(found) == {"catalog_away"}
    assert found["needs_person"]
    partition = only_partition(found)
    assert (partition["produced_end"], partition["tiered_end"], partition["published_end"]) == (4000, 4000, None)

    catalog_server.start()
    wait_for("the table to catch up", lambda: published(pair, "ledger", 4000), WAIT_S, 1.0)
    pair.bridge.kill()
    found = status(pair, "ledger")
    assert causes(found) == {"bridge_away"}
    code, text = ask(pair)
    assert code == 1
    assert text.startswith("somebody is needed: 1 finding in 1 tiered topic, 1 partition\n\n!! bridge_away: ")
    assert only_partition(found)["published_end"] == 4000

    pair.broker.process.kill()
    found = status(pair, "ledger")
    assert causes(found) == {"bridge_away", "kafka_away"}
    assert only_partition(found)["tiered_end"] == 4000
