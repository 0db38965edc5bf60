"""Random histories against the publish plan.

Whatever brokers, retries, overlaps, transactions, retention, late listings and competing publishers do:

* no two live files overlap, plans are idempotent (both checked on every publish, plan_support.Model);
* every row of the table was once returned by read_committed, in that epoch;
* once the leader has uploaded everything and the publisher is quiet, the table from max(log start, floor) on is exactly
  what read_committed returns, stretches never uploaded excepted.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from iceberg_catalog.plan_types import BatchKind, Plan, Policy, Segment, SegmentState
from tests.property.plan_kafka import Kafka
from tests.unit.plan_support import Model

BROKER = st.integers(0, 2)
PID = st.integers(1, 2)


class Histories(RuleBasedStateMachine):
    """One partition; `clean` and `policy` are set by the tests below."""

    clean = True
    policy: Policy = "follow"

    @initialize()
    def begin(self) -> None:
        self.kafka = Kafka(self.clean)
        self.model = Model(self.policy)
        self.version = 0
        self.page: tuple[int, int, list[Segment]] | None = None
        self.jumped: set[int] = set()
        self.lost: set[int] = set()

    @rule(count=st.integers(1, 3), rows=st.booleans() | st.just(True))
    def write(self, count: int, rows: bool) -> None:
        self.kafka.write(count, BatchKind.PLAIN, -1, rows=rows)

    @rule(count=st.integers(1, 3), pid=PID)
    def write_in_transaction(self, count: int, pid: int) -> None:
        self.kafka.write(count, BatchKind.TXN, pid)

    @rule(pid=PID, kind=st.sampled_from([BatchKind.COMMIT, BatchKind.ABORT]))
    def end_transaction(self, pid: int, kind: BatchKind) -> None:
        self.kafka.write(1, kind, pid)

    @rule(broker=BROKER)
    def roll(self, broker: int) -> None:
        self.kafka.roll(broker)

    @rule(broker=BROKER)
    def replicate(self, broker: int) -> None:
        self.kafka.replicate(broker)

    @rule(broker=BROKER)
    def elect(self, broker: int) -> None:
        self.kafka.elect(broker)

    @rule(finished=st.booleans() | st.just(True))
    def upload(self, finished: bool) -> None:
        self.kafka.upload(finished=finished)

    @rule(data=st.data())
    def withdraw(self, data: Any) -> None:
        if self.kafka.remote:
            self.kafka.withdraw(data.draw(st.sampled_from(sorted(self.kafka.remote))))

    @rule(count=st.integers(1, 2))
    def retention(self, count: int) -> None:
        self.kafka.retain(count)

    @rule(offset=st.integers(1, 30))
    def delete_records(self, offset: int) -> None:
        self.kafka.delete_records(offset)

    @rule()
    def delete_below_log_start(self) -> None:
        self.kafka.clean_up()

    @rule(up_to=st.integers(0, 30))
    def list_one_page(self, up_to: int) -> None:
        """A publisher reads the head and the first page of its listing, and is then slow."""
        self.page = (self.version, up_to, [s for s in self.kafka.listing() if s.end < up_to])

    @rule()
    def finish_slow_publish(self) -> None:
        if self.page is None:
            return
        version, up_to, page = self.page
        self.page = None
        listing = page + [s for s in self.kafka.listing() if s.end >= up_to]
        if version == self.version:
            self.publish_from(listing)

    @rule()
    def publish(self) -> None:
        self.publish_from(self.kafka.listing())

    def publish_from(self, listing: list[Segment]) -> Plan:
        before = self.model.state
        result = self.model.plan(listing, relisted=False)
        if result.need_relist:
            listing = self.kafka.listing()
        result = self.model.publish(*listing, relisted=result.need_relist)
        self.version += 1
        if before.frontier < 0:
            self.jumped |= set(range(self.first_row(listing)))
        for first, last in result.gaps:
            self.jumped |= set(range(first, last + 1))
        for first, last in result.lost:
            self.lost |= set(range(first, last + 1))
        return result

    def first_row(self, listing: list[Segment]) -> int:
        sources = [s.base for s in listing if s.state == SegmentState.LIVE or self.policy == "keep"]
        return min([self.model.state.frontier, *sources]) if self.model.state.frontier >= 0 else 0

    @invariant()
    def every_row_was_once_committed(self) -> None:
        for offset, epoch in self.model.rows.items():
            assert epoch in self.kafka.ever.get(offset, ()), f"offset {offset} epoch {epoch} was never committed"

    @rule()
    def settle(self) -> None:
        """Everything is uploaded and published; what the table lacks or has too much shows now."""
        kafka = self.kafka
        for pid in sorted(kafka.lead.open()):
            kafka.write(1, BatchKind.COMMIT, pid)
        kafka.write(1, BatchKind.PLAIN, -1)
        for broker in range(3):
            kafka.replicate(broker)
        kafka.roll(kafka.leader)
        for _ in range(200):
            if not kafka.upload(finished=True):
                break
        kafka.clean_up()
        self.publish_from(kafka.listing())
        self.check_exact()

    def check_exact(self) -> None:
        lead, state = self.kafka.lead, self.model.state
        low = max(lead.start, state.floor)
        if self.policy == "keep" and self.clean:
            low = 0
        expected = {o: e for o, e in lead.committed().items() if o >= low and o not in self.jumped}
        if self.policy == "keep" and self.clean:
            expected = {o: e for o, e in expected.items() if o not in self.lost}
        found = {o: e for o, e in self.model.rows.items() if o >= low and o not in self.jumped}
        assert found == expected
        assert state.frontier == lead.end


def search(clean: bool, policy: Policy, examples: int, steps: int) -> None:
    machine = type("Machine", (Histories,), {"clean": clean, "policy": policy})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )


@pytest.mark.parametrize("policy", ["follow", "keep"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_histories(clean: bool, policy: Policy) -> None:
    search(clean, policy, 100, 40)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("policy", ["follow", "keep"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_many_histories(clean: bool, policy: Policy) -> None:
    search(clean, policy, 2000, 60)
