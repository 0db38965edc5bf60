"""An unclean election: rows of the branch that died leave the table, whatever was committed in it."""

from __future__ import annotations

import pytest

from tests.e2e.e2e_batches import BatchProducer
from tests.e2e.e2e_cluster import PUBLISH_S, ThreeBrokers
from tests.support.ledger import Ledger, compare
from tierberg.stack.cluster_admin import ProducerState
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]

TOPIC = "split"


def published(three: ThreeBrokers, count: int) -> None:
    wait_for(f"{count} rows in {TOPIC}", lambda: three.row_count(TOPIC) == count, PUBLISH_S, 0.5)


def test_the_dead_branch_leaves_the_table(three: ThreeBrokers) -> None:
    three.create(TOPIC, [[1, 2, 3]])
    bootstrap, ledger, dead = three.kafka.bootstrap, Ledger(), Ledger()
    plain = BatchProducer(bootstrap, TOPIC, "before")
    open_one = BatchProducer(bootstrap, TOPIC, "astride", transactional_id="astride")
    ledger.committed.append(plain.send(0, 3500))
    open_one.begin()
    astride = open_one.send(0, 50)
    ledger.aborted.append(astride)
    first_open = astride["offset"][0].as_py()

    # Kafka's own topics must keep a clean leader, so it is not broker 3 that is lost but its replica of this topic.
    three.java.reassign(TOPIC, 0, [1, 2])
    three.wait_in_sync(TOPIC, 0, 1, 2)
    # Broker 2 has the transaction's records and will not hear of their commit.
    three.kafka.brokers[2].kill()
    three.wait_in_sync(TOPIC, 0, 1)
    open_one.commit()
    dead.committed += [astride, plain.send(0, 4000)]
    three.wait_tiered(TOPIC)
    published(three, 3500 + 50 + 4000)
    three.kafka.brokers[1].kill()
    wait_for("no leader", lambda: three.admin.leader(TOPIC, 0) is None, 60, 0.5)
    three.kafka.brokers[2].start()
    three.java.elect(TOPIC, 0, "UNCLEAN")
    three.wait_leader(TOPIC, 0, 2)

    # To the new leader the transaction hangs; an operator ends it.
    hanging = hanging_transaction(three)
    assert hanging.open_from == first_open
    three.java.write_abort_marker(TOPIC, 0, hanging)
    after = BatchProducer(bootstrap, TOPIC, "after")
    ledger.committed.append(after.send(0, 6000))
    three.agree(TOPIC, ledger.table())
    # The new branch covers the offsets of the dead one, with other records, and with the marker if it was sent twice.
    found = compare(dead.committed[1], three.rows(TOPIC))
    assert found.altered + found.lost == 4000
    assert found.lost <= 1
    assert min(three.rewinds(TOPIC)[0]) == first_open

    # The old leader comes back, cuts its own branch and leads again; then a third replica, of the new branch alone.
    three.kafka.brokers[1].start()
    for replicas in ([1, 2], [3, 1, 2]):
        three.java.reassign(TOPIC, 0, replicas)
        three.wait_in_sync(TOPIC, 0, *replicas)
        three.java.elect(TOPIC, 0)
        three.wait_leader(TOPIC, 0, replicas[0])
        ledger.committed.append(after.send(0, 2000))
        three.agree(TOPIC, ledger.table())
    for producer in (plain, open_one, after):
        producer.close()


def hanging_transaction(three: ThreeBrokers) -> ProducerState:
    """The producer with an open transaction, as an operator finds it."""
    (found,) = [state for state in three.java.producers(TOPIC, 0) if state.open_from >= 0]
    return found
