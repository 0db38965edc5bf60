"""Replicas are lost, made again, moved between brokers and between disks; whoever leads then, copies and serves."""

from __future__ import annotations

import time

import pytest

from tests.e2e.e2e_batches import BatchProducer, consume
from tests.e2e.e2e_cluster import HEAL_S, ThreeBrokers
from tests.support.ledger import NOTHING, Ledger, compare
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

MIB = 1 << 20
AWAY_S = 20


def move_to_the_other_folder(three: ThreeBrokers, topic: str, number: int) -> None:
    current, _ = three.java.folders(topic, 0, number)
    (other,) = [folder for folder in three.kafka.brokers[number].log_folders if folder != current]
    three.java.move(topic, 0, number, other)
    arrived = (other, None)
    wait_for(f"the replica in {other}", lambda: three.java.folders(topic, 0, number) == arrived, HEAL_S, 0.5)


def test_a_broker_with_an_empty_disk_rejoins_and_leads(three: ThreeBrokers) -> None:
    three.create("wiped", [[1, 2, 3]])
    ledger = Ledger()
    producer = BatchProducer(three.kafka.bootstrap, "wiped", "wiped")
    ledger.committed.append(producer.send(0, 6000))
    three.wait_tiered("wiped")
    ledger.committed.append(producer.send(0, 100))
    lose_disk(three, "wiped", 2)
    # What the leader had left is all there was to copy; the rest is in the remote store only.
    assert min(three.kafka.brokers[2].local_segments("wiped", 0)) >= 6000
    lead_and_agree(three, "wiped", 2, producer, ledger)


def test_a_follower_begins_at_the_last_tiered_offset(three: ThreeBrokers) -> None:
    """KIP-1023: an empty replica skips what its leader still has on disk and the remote store has too."""
    # The leader keeps about four of nine segments on disk, far more than it has not tiered.
    three.create("skipped", [[1, 2, 3]], local_retention_ms="-2", local_retention_bytes=str(4 * MIB))
    broker, ledger = three.kafka.brokers[3], Ledger()
    producer = BatchProducer(three.kafka.bootstrap, "skipped", "skipped")
    ledger.committed.append(producer.send(0, 9000))
    wait_for("nine segments to be tiered", lambda: three.java.latest_tiered("skipped", 0) > 8000, 120, 0.5)
    wait_for("the oldest to leave the disk", lambda: three.java.earliest_local("skipped", 0) > 3000, 60, 0.5)
    plain = broker.options
    broker.options = plain.with_properties({"follower.fetch.last.tiered.offset.enable": "true"})
    try:
        lose_disk(three, "skipped", 3)
        own, leaders = (min(three.kafka.brokers[number].local_segments("skipped", 0)) for number in (3, 1))
        print(f"local logs begin at {leaders} on the leader, at {own} on the broker with the empty disk")
        assert own > 8000 > leaders
    finally:
        # Replicas of other topics, with nothing left to tier, are refused the offset by Kafka 4.3.1.
        broker.options = plain
        broker.stop()
        broker.start()
    three.wait_in_sync("skipped", 0, 1, 2, 3)
    lead_and_agree(three, "skipped", 3, producer, ledger)


def test_a_follower_that_rebuilds_outlasts_the_bridges_absence(three: ThreeBrokers) -> None:
    """Kafka empties its log before it asks the plugin for the state; a failure then may cost its history for ever."""
    three.create("rebuilt", [[1, 2, 3]])
    ledger, broker = Ledger(), three.kafka.brokers[2]
    producer = BatchProducer(three.kafka.bootstrap, "rebuilt", "rebuilt")
    ledger.committed.append(producer.send(0, 6000))
    three.wait_tiered("rebuilt")
    broker.kill()
    broker.wipe()
    for bridge in three.bridges:
        bridge.kill()
    said = len(broker.process.log.read_text())
    broker.start()

    def log() -> str:
        return broker.process.log.read_text()[said:]

    wait_for("the follower to ask for its state", lambda: "because the follower's log is empty" in log(), 60, 0.5)
    time.sleep(AWAY_S)
    for bridge in three.bridges:
        bridge.start()
    three.wait_in_sync("rebuilt", 0, 1, 2, 3)
    assert "reads of a rebuild are answered again, after" in log()
    failed = [line for line in log().splitlines() if "Error building remote log auxiliary state" in line]
    assert failed == [], "a partition failed while the bridges were away"
    lead_and_agree(three, "rebuilt", 2, producer, ledger)


def lose_disk(three: ThreeBrokers, topic: str, victim: int) -> None:
    """The broker comes back with nothing and gets its replica of the topic again."""
    broker = three.kafka.brokers[victim]
    broker.kill()
    broker.wipe()
    broker.start()
    three.wait_in_sync(topic, 0, 1, 2, 3)


def lead_and_agree(three: ThreeBrokers, topic: str, leader: int, producer: BatchProducer, ledger: Ledger) -> None:
    """The broker leads, serves all of the history, most of which it never had, and copies what comes."""
    three.java.reassign(topic, 0, [leader, *sorted({1, 2, 3} - {leader})])
    three.java.elect(topic, 0)
    three.wait_leader(topic, 0, leader)
    ledger.committed.append(producer.send(0, 3000))
    consumed = consume(three.kafka.bootstrap, topic, three.spans(topic, [0]))
    assert compare(ledger.table(), consumed) == NOTHING
    three.admin.set_topic_config(topic, {"local.retention.ms": "1000"})
    three.agree(topic, ledger.table())
    producer.close()


def test_a_partition_is_reassigned_under_load(three: ThreeBrokers) -> None:
    three.create("reassigned", [[1, 2]])
    ledger = Ledger()
    producer = BatchProducer(three.kafka.bootstrap, "reassigned", "reassigned")
    for replicas in ([2, 3], [3], [1, 2, 3]):
        ledger.committed.append(producer.send(0, 2500))
        three.java.reassign("reassigned", 0, replicas)
        ledger.committed.append(producer.send(0, 2500))
        wait_for("the reassignment", lambda: not three.java.reassigning(), HEAL_S, 0.5)
        three.wait_in_sync("reassigned", 0, *replicas)
        three.wait_leader("reassigned", 0, *replicas)
    three.java.elect("reassigned", 0)
    three.wait_leader("reassigned", 0, 1)
    ledger.committed.append(producer.send(0, 2500))
    three.agree("reassigned", ledger.table())
    producer.close()


def test_replicas_move_to_another_log_folder(three: ThreeBrokers) -> None:
    three.create("carried", [[1, 2, 3]], local_retention_ms="600000")
    ledger = Ledger()
    producer = BatchProducer(three.kafka.bootstrap, "carried", "carried")
    ledger.committed.append(producer.send(0, 5000))
    for number in (1, 2):  # the leader and a follower
        move_to_the_other_folder(three, "carried", number)
        ledger.committed.append(producer.send(0, 2500))
    three.wait_in_sync("carried", 0, 1, 2, 3)
    ledger.committed.append(producer.send(0, 2500))
    three.admin.set_topic_config("carried", {"local.retention.ms": "1000"})
    three.agree("carried", ledger.table())
    producer.close()
