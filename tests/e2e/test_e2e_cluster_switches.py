"""Tiering of a topic is paused, or ended with everything it stored and begun again (KIP-950)."""

from __future__ import annotations

import time

import pytest

from tests.e2e.e2e_batches import BatchProducer, consume
from tests.e2e.e2e_cluster import PUBLISH_S, TIER_S, ThreeBrokers
from tests.support.ledger import NOTHING, Ledger, compare, from_offset
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

#: In which a broker would have copied, looking every half second.
QUIET_S = 6.0


def test_copies_are_paused_and_go_on(three: ThreeBrokers) -> None:
    three.create("paused", [[1, 2, 3], [2, 3, 1]])
    ledger, partitions = Ledger(), (0, 1)
    producer = BatchProducer(three.kafka.bootstrap, "paused", "paused")
    ledger.committed += [producer.send(number, 3500) for number in partitions]
    three.agree("paused", ledger.table(), partitions)
    before = three.row_count("paused")

    # Kafka wants the disk to keep everything while nothing is copied.
    three.admin.set_topic_config("paused", {"remote.log.copy.disable": "true", "local.retention.ms": "-2"})
    ledger.committed += [producer.send(number, 3500) for number in partitions]
    time.sleep(QUIET_S)
    assert [three.java.latest_tiered("paused", number) for number in partitions] == [3499, 3499]
    assert three.row_count("paused") == before
    # Both halves are read as one log: the first from the bridges, the second from disk.
    consumed = consume(three.kafka.bootstrap, "paused", three.spans("paused", partitions))
    assert compare(ledger.table(), consumed) == NOTHING

    three.admin.set_topic_config("paused", {"remote.log.copy.disable": "false", "local.retention.ms": "1000"})
    three.agree("paused", ledger.table(), partitions)
    producer.close()


def test_tiering_ends_with_what_it_stored_and_begins_again(three: ThreeBrokers) -> None:
    three.create("ended", [[1, 2, 3], [2, 3, 1]])
    ledger, partitions = Ledger(), (0, 1)
    producer = BatchProducer(three.kafka.bootstrap, "ended", "ended")
    ledger.committed += [producer.send(number, 3500) for number in partitions]
    three.agree("ended", ledger.table(), partitions)

    three.admin.set_topic_config(
        "ended", {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true", "local.retention.ms": "-2"}
    )
    # The log begins where the disk begins: nothing was left there.
    wait_for("the tiered records to go", lambda: starts(three) == [3500, 3500], TIER_S)
    wait_for("their rows to go", lambda: three.row_count("ended") == 0, PUBLISH_S, 0.5)
    ledger.committed += [producer.send(number, 3500) for number in partitions]
    time.sleep(QUIET_S)
    assert three.row_count("ended") == 0

    three.admin.set_topic_config(
        "ended",
        {"remote.storage.enable": "true", "remote.log.delete.on.disable": "false", "local.retention.ms": "1000"},
    )
    ledger.committed += [producer.send(number, 1500) for number in partitions]
    three.agree("ended", from_offset(ledger.table(), dict.fromkeys(partitions, 3500)), partitions)
    producer.close()


def starts(three: ThreeBrokers) -> list[int]:
    return list(three.admin.start_offsets("ended", (0, 1)).values())
