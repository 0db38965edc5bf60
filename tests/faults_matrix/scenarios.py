"""How a fail point is reached, and what must hold when its victim is back: one scenario for each step."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_catalog.commit.expire import fence
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.failpoints import Order
from tests.e2e.e2e_follower import Follower
from tests.e2e.e2e_support import same, wait_tiered
from tests.faults_matrix.case_run import TIER_S, CaseRun
from tests.faults_matrix.comparing import compare
from tierberg.stack.errors import StackError
from tierberg.stack.waiting import wait_for

HIT_S = 60
READ_S = 90


@dataclass(frozen=True)
class Scenario:
    """The order is laid between `prepare` and `provoke`. This one copies and publishes a new topic.

    Attributes:
        hit: at which time the point is reached something happens.
    """

    hit: int = 1

    @property
    def by_command(self) -> bool:
        """Whether a command reaches the point: it is killed in place of the bridge."""
        return False

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of the bridge, beside those of all cases."""
        return {}

    def prepare(self, run: CaseRun) -> None:
        """Before anybody looks for an order."""
        run.create()

    def provoke(self, run: CaseRun) -> None:
        """Makes somebody reach the point; returns at once or when all is sent."""
        run.writing.segments()

    def recover(self, run: CaseRun) -> None:
        """After the victim was killed and started again."""
        run.writing.more()

    def check(self, run: CaseRun) -> None:
        """Everything is on the remote tier alone, and table, consumers and producers agree."""
        wait_tiered(run.world.pair, run.topic, timeout_s=TIER_S)
        with run.world.ground.catalog() as catalog:
            log = run.writing.log
            compare(run.world.broker, catalog, run.topic, log, start=run.start, rows_from=run.rows_from)


class Evolving(Scenario):
    """A typed topic: its table's first evolution comes with the first copy, for the reasons why rows have no columns.

    The records are no JSON, so all of them are dead letters, which have their bytes.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"topics": [{"pattern": ".*", "value_format": "json"}]}


class Prepared(Scenario):
    """On a topic that is tiered and published already."""

    def prepare(self, run: CaseRun) -> None:
        run.create()
        run.writing.segments()
        run.settle()


COMMITTED = {"isolation.level": "read_committed", "reconnect.backoff.max.ms": 500}


class Fetching(Prepared):
    """A consumer that reads all history and is never restarted."""

    def provoke(self, run: CaseRun) -> None:
        run.found.append(run.stack.enter_context(Follower(run.world.broker.bootstrap, run.topic, config=COMMITTED)))

    def recover(self, run: CaseRun) -> None:
        committed = run.writing.log.committed
        (reader,) = run.found
        same(reader.wait(len(committed), READ_S), committed)


class Refused(Prepared):
    """Another writer moves the head while our commit is on its way."""

    def provoke(self, run: CaseRun) -> None:
        faults = run.world.faults
        faults.lay("before-swap", Order("stop", run.about))
        run.writing.more()
        faults.wait_hit("before-swap", HIT_S)
        with run.world.ground.catalog() as catalog:
            head = LiveFiles().read(catalog.load_table(run.table))
            assert head.state is not None
            commit_id, now_ms = uuid.uuid4().hex, int(time.time() * 1000)
            assert fence(catalog, head, head.state, commit_id=commit_id, as_of_ms=now_ms) is not None
        faults.go("before-swap")


class StateSweep(Scenario):
    """A bridge died before its commit and left a state object; the next one's first commit finds it."""

    def prepare(self, run: CaseRun) -> None:
        run.create()
        run.world.faults.lay("before-commit", Order("kill", run.about))
        run.writing.segments()
        run.world.faults.wait_hit("before-commit", HIT_S)
        wait_for("the bridge to be gone", lambda: not run.world.bridge.process.alive, HIT_S)

    def provoke(self, run: CaseRun) -> None:
        with contextlib.suppress(StackError):  # it may be gone before it was seen to be ready
            run.world.bridge.start()


class Deleting(Prepared):
    """Kafka's log start moves up: segments are deleted, rows leave, objects are reclaimed."""

    def provoke(self, run: CaseRun) -> None:
        run.delete_below_the_last_segment()

    def recover(self, run: CaseRun) -> None:
        # Kafka remembers a new start of the log within a minute: a broker that died before that has forgotten it.
        run.delete_records()
        super().recover(run)

    def check(self, run: CaseRun) -> None:
        super().check(run)
        run.wait_reclaimed()
