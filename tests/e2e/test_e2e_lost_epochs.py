"""The runbook of a replica that lost its history, and of a topic that was deleted while no bridge answered."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.segments.known import read_segments
from tests.e2e.e2e_status import only_partition, status, tierberg
from tests.e2e.e2e_support import Pair, Rec, Sender, read, row_count, same, stored_segments, wait_rows, wait_tiered
from tierberg.stack.admin import TIERED
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

#: What is produced under it stays on the broker's disk.
STAYS = {"local.retention.ms": "86400000", "local.retention.bytes": "1073741824"}
REFUSALS = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
PATIENCE_S = 2.0
#: Kafka wants local retention to be that of the topic while nothing is copied.
UNTIERED = {"remote.log.copy.disable": "true", "local.retention.ms": "-2", "local.retention.bytes": "-2"}
REFUSED = "segmentLeaderEpochs can not be null or empty"


def records(seed: int, count: int) -> list[Rec]:
    draw, now = random.Random(seed), int(time.time() * 1000)
    return [Rec(b"k", draw.randbytes(1000), (), now + number) for number in range(count)]


def refused(pair: Pair, topic: str, offset: int) -> bool:
    """Whether the leader says that an offset is out of range; False when it gives a record."""
    consumer = Consumer(
        {"bootstrap.servers": pair.broker.bootstrap, "group.id": "e2e", "auto.offset.reset": "error", "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        end = time.monotonic() + 60
        while time.monotonic() < end:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return False
            if error.code() in REFUSALS:
                return True
    finally:
        consumer.close()
    raise AssertionError(f"no answer for offset {offset} of {topic}")


def checkpoint_file(pair: Pair, topic: str) -> Path:
    return pair.broker.data / f"{topic}-0" / "leader-epoch-checkpoint"


def codes(found: dict[str, Any]) -> set[str]:
    (topic,) = found["topics"]
    return {item["code"] for item in (*topic["findings"], *only_partition(found)["findings"])}


def test_a_replica_that_lost_its_epochs_is_named_and_mended(own_pair: Pair) -> None:
    pair, topic = own_pair, "history"
    pair.admin.create_topic(topic)
    sender = Sender(pair.broker, topic)
    sender.send(records(1, 4000))
    wait_tiered(pair, topic)
    pair.admin.set_topic_config(topic, STAYS)
    sender.send(records(2, 50))
    sent = dict(sender.log.committed)
    assert not codes(status(pair, topic, PATIENCE_S)) & {"epochs_cut"}

    # As a broker that died between its truncation and its reading of the tier: history begins at the local log.
    local = min(pair.broker.local_segments(topic, 0))
    assert local > 1000
    pair.broker.stop()
    path = checkpoint_file(pair, topic)
    assert path.read_text() == "0\n1\n0 0\n"
    path.write_text(f"0\n1\n0 {local}\n")
    pair.broker.start()
    assert refused(pair, topic, 0)
    assert refused(pair, topic, local - 1)
    found = status(pair, topic, PATIENCE_S)
    assert found["needs_person"]
    assert only_partition(found)["cause"] == "epochs_cut"

    # It goes on so for ever, and its copies carry the cut history.
    pair.admin.set_topic_config(topic, {"local.retention.ms": "1000", "local.retention.bytes": "1"})
    sender = Sender(pair.broker, topic)
    sender.send(records(3, 2000))
    sent |= sender.log.committed
    wait_tiered(pair, topic)
    assert refused(pair, topic, 0)
    found = status(pair, topic, PATIENCE_S)
    (cut,) = [item for item in only_partition(found)["findings"] if item["code"] == "epochs_cut"]
    assert f"epochs of the newest copy begin at {local}" in cut["said"]

    # The runbook.
    pair.broker.stop()
    code, printed, said = tierberg(pair, "leader-epochs", topic, "0", "--current", str(path))
    assert code == 0, said
    assert "no hole" in said
    assert printed.splitlines()[2] == "0 0"
    path.write_text(printed)
    pair.broker.start()
    same(read(pair.broker, topic, failures=True), sent)
    found = status(pair, topic, PATIENCE_S)
    assert "epochs_cut" not in codes(found), found
    assert row_count(pair, topic) <= len(sent)
    wait_rows(pair, topic, len(sent))


@pytest.mark.parametrize("wanted", [False, True])
def test_segments_below_all_epochs_are_named_and_then_copied_or_deleted(own_pair: Pair, wanted: bool) -> None:
    """As Kafka is left by deleteRecords and a kill -9 within seconds: cut epochs are on disk, the log start is not."""
    pair, topic = own_pair, "wedged"
    pair.admin.create_topic(topic, config={**TIERED, **UNTIERED})
    sender = Sender(pair.broker, topic)
    sender.send(records(5, 4000))
    sent = dict(sender.log.committed)
    first = sorted(pair.broker.local_segments(topic, 0))[2]
    pair.broker.stop()
    checkpoint_file(pair, topic).write_text(f"0\n1\n0 {first}\n")
    pair.broker.start()
    pair.admin.set_topic_config(topic, {**UNTIERED, **TIERED, "remote.log.copy.disable": "false"})
    wait_for("Kafka's refusal", lambda: REFUSED in pair.broker.process.output(), 60)
    assert not stored_segments(pair, topic)
    assert only_partition(status(pair, topic, PATIENCE_S))["cause"] == "epochs_missing"

    # The runbook: those records are wanted, or not.
    if wanted:
        pair.broker.stop()
        checkpoint_file(pair, topic).write_text("0\n1\n0 0\n")
        pair.broker.start()
    else:
        pair.admin.delete_records(topic, 0, first)
    wait_tiered(pair, topic)
    start = 0 if wanted else first
    same(read(pair.broker, topic, start=start), {offset: sent[offset] for offset in range(start, 4000)})
    wait_rows(pair, topic, 4000 - start)
    assert not codes(status(pair, topic, PATIENCE_S)) & {"epochs_missing", "epochs_cut"}


def test_a_topic_deleted_while_no_bridge_answered_is_forgotten_by_one_command(own_pair: Pair) -> None:
    pair = own_pair
    for topic in ("stays", "goes"):
        pair.admin.create_topic(topic)
        sender = Sender(pair.broker, topic)
        sender.send(records(4, 4000))
        wait_tiered(pair, topic)
        wait_rows(pair, topic, 4000)
    code, _, said = tierberg(pair, "topic", "forget", "goes", "--yes", "--bootstrap-server", pair.broker.bootstrap)
    assert code == 1
    assert "Kafka still has topic goes" in said

    topic_id = bytes.fromhex(pair.admin.topic_id("goes"))
    pair.bridge.stop()
    pair.admin.delete_topic("goes")
    wait_for("Kafka to give the deletion up", lambda: _gave_up(pair, "goes"), 120)
    pair.bridge.start()
    time.sleep(5)
    assert row_count(pair, "goes") == 4000  # nobody asks again
    found = status(pair, "goes", PATIENCE_S)
    assert found["needs_person"], json.dumps(found, indent=1)
    assert "topic_left" in {item["code"] for item in found["topics"][0]["findings"]}

    arguments = ("topic", "forget", "goes", "--bootstrap-server", pair.broker.bootstrap)
    code, told, said = tierberg(pair, *arguments)
    assert code == 0, said
    assert "4000 rows are left" in told
    assert row_count(pair, "goes") == 4000
    code, _, said = tierberg(pair, *arguments, "--yes")
    assert code == 0, said
    assert row_count(pair, "goes") == 0
    store = LocalObjectStore(pair.bridge.folder / "store")
    assert not any(known.live for known in read_segments(store, topic_id))
    assert row_count(pair, "stays") == 4000
    assert len(read(pair.broker, "stays")) == 4000
    found = status(pair, "goes", PATIENCE_S)
    assert "topic_left" not in {item["code"] for item in found["topics"][0]["findings"]}


def _gave_up(pair: Pair, topic: str) -> bool:
    """Its folder is gone, and Kafka has said that the deletion of its segments failed; it warns of much else."""
    lines = pair.broker.process.log.read_text().splitlines()
    failed = any("Error while stopping the partition" in line and f"{topic}-0" in line for line in lines)
    return failed and not (pair.broker.data / f"{topic}-0").exists()
