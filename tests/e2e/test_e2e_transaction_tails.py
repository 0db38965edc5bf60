"""Segments cut inside transactions: what the table shows before the last marker is tiered, and after."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rsm_bridge.storage.keys import derived_head
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_support import (
    PUBLISH_S,
    TIER_S,
    Pair,
    Rec,
    Sender,
    load_rows,
    read,
    rows_by_offset,
    same,
    store_objects,
    wait_rows,
    wait_tiered,
)
from tierberg.stack.admin import TIERED
from tierberg.stack.servers.kafka import BrokerOptions
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

TOPIC = "tails"
#: Closed segments stay on the broker's disk too, and the open one stays open although its records are old: a marker is
#: written with the time of today, which would close it.
HELD = {**TIERED, "local.retention.ms": "-1", "segment.ms": str(100 * 365 * 86_400_000)}


@pytest.fixture(params=[False, True], ids=["waits", "peeks"])
def peek(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def peeking(tmp_path: Path, peek: bool) -> Iterator[Pair]:
    setting = {"rsm.config.peek.later.txn.indexes": str(peek).lower()}
    started = start_pair(tmp_path, BrokerOptions(properties=setting))
    yield started
    started.broker.stop()
    started.bridge.stop()


def large(seed: int, megabytes: float) -> list[Rec]:
    """Records that do not compress, 10 KB each."""
    draw = random.Random(seed)
    return [Rec(b"%d" % number, draw.randbytes(10_000)) for number in range(int(megabytes * 100))]


def indexed(pair: Pair, topic_id: str) -> set[int]:
    """Last offsets of the tiered segments."""
    names = [path.name for path in store_objects(pair, topic_id) if "index" in path.parts]
    return {int(name.partition("-")[0]) for name in names}


def shown(pair: Pair) -> set[int]:
    rows = load_rows(pair.bridge.folder, TOPIC)
    return set() if rows is None else set(rows.column("_kafka_offset").to_pylist())


def test_what_shows_before_the_last_marker_is_tiered(peeking: Pair, peek: bool) -> None:
    pair = peeking
    pair.admin.create_topic(TOPIC, config=HELD)
    sender = Sender(pair.broker, TOPIC, transactional_id="tails", compression_type="none")
    for number, commit in enumerate((True, False, True, False, True)):
        sender.transaction(large(number, 2.4), commit=commit)
    last = sender.transaction_offsets(large(9, 2.4), commit=True)
    active = max(pair.broker.local_segments(TOPIC, 0))
    assert min(last) < active <= max(last), "the last transaction ends in the open segment"

    topic_id = pair.admin.topic_id(TOPIC)
    wait_for("the closed segments to be tiered", lambda: active - 1 in indexed(pair, topic_id), TIER_S)
    end = active if peek else min(last)
    expected = {offset for offset in sender.log.committed if offset < end}
    wait_for("what is decided to be in the table", lambda: shown(pair) == expected, PUBLISH_S)
    assert max(indexed(pair, topic_id)) == active - 1, "the segment with the marker must not be tiered yet"
    assert (active - 1 in shown(pair)) is peek

    pair.admin.set_topic_config(TOPIC, {"local.retention.ms": "1000"})
    wait_tiered(pair, TOPIC)
    same(rows_by_offset(wait_rows(pair, TOPIC, len(sender.log.committed))), sender.log.committed)
    same(read(pair.broker, TOPIC), sender.log.committed)
    same(read(pair.broker, TOPIC, isolation="read_uncommitted"), dict(sorted(sender.log.everything.items())))
    assert not [path for path in store_objects(pair, topic_id) if derived_head(path.name) is not None]
