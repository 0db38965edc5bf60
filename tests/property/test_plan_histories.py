"""Random histories against the publish plan.

Whatever brokers, retries, overlaps, transactions, deletes, late listings, competing publishers, engines, merges and
crashes do:

* I1: no two live files overlap, and plans are idempotent (checked on every publish);
* I2: every row of the table was once returned by read_committed, in that epoch; and once faults stop, the frontier
  reaches the log's end and the table from max(log start, floor) on is exactly what read_committed returns, stretches
  never uploaded excepted;
* I3: no object that a live segment or a retained snapshot needs is gone;
* I4: no row that Kafka deleted leaves the table before a declared projection has read it, while its time lasts; read,
  it leaves. A projection that rows wait for without a limit gets every committed row, but stretches never uploaded.

Every action, and every action with each of its faults, must have run often enough to count.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from iceberg_catalog.plan.types import BatchKind, Follow, Keep, KeepUntil, Policy, Segment, SegmentState
from tests.property.plan_actions import (
    ACTIONS,
    COPY,
    CRASH,
    DELETE,
    FOREIGN,
    MERGE,
    PUBLISH,
    RAN,
    REPAIR,
    REQUEUE,
    STEPS,
    TRUNCATION,
    report,
)
from tests.property.plan_kafka import Kafka
from tests.property.plan_projection import FOR_EVER, LEFT, Projection
from tests.property.plan_world import AHEAD, Table, World
from tests.worlds.plan_support import FOLLOW, KEEP

BROKER = st.integers(0, 2)
PID = st.integers(1, 2)
FAULT = st.sampled_from(PUBLISH)
KINDS = st.lists(
    st.sampled_from(("plain", "plain", "transaction", "transaction", "commit", "abort")), min_size=1, max_size=4
)
#: How long rows wait for a projection, in batches that are written; None: there is no projection.
LIMITS = (None, 10, FOR_EVER)
TIMES_MIN = 50
STEPS_MIN = 20_000


class Histories(RuleBasedStateMachine):
    """One partition; `clean` and `policy` are set by the tests below."""

    clean = True
    policy: Policy = FOLLOW

    def ran(self, action: str, fault: str = "") -> None:
        RAN[action, fault] += 1

    @initialize(narrow=st.booleans(), limit=st.sampled_from(LIMITS))
    def begin(self, narrow: bool, limit: int | None = None) -> None:
        self.narrow, self.limit = narrow, limit
        self.new_topic()

    def new_topic(self) -> None:
        self.kafka = Kafka(self.clean)
        self.world = World(self.kafka, self.policy)
        self.world.narrow = self.narrow
        self.world.projection = None if self.limit is None else Projection(self.limit)
        self.page: tuple[Table, int, list[Segment]] | None = None
        self.checked: tuple[int, int] = (-1, -1)
        self.now = 0

    # Producers

    def write_one(self, count: int, kind: BatchKind, pid: int, *, rows: bool = True) -> None:
        self.now += 1
        self.kafka.now = self.now
        self.kafka.write(count, kind, pid, rows=rows, time_ms=self.now)

    @rule(count=st.integers(1, 3), rows=st.booleans() | st.just(True))
    def write(self, count: int, rows: bool) -> None:
        self.ran("write")
        self.write_one(count, BatchKind.PLAIN, -1, rows=rows)

    @rule(count=st.integers(1, 3), pid=PID)
    def write_in_transaction(self, count: int, pid: int) -> None:
        self.ran("transaction")
        self.write_one(count, BatchKind.TXN, pid)

    @rule(pid=PID, commit=st.booleans())
    def end_transaction(self, pid: int, commit: bool) -> None:
        known = pid in self.kafka.lead.open()
        name = "commit" if commit else "abort"
        self.ran(name if known else "marker without a transaction")
        if self.kafka.spans(pid):
            self.ran("transaction across segments", name)
        self.write_one(1, BatchKind.COMMIT if commit else BatchKind.ABORT, pid)

    @rule(broker=BROKER)
    def roll(self, broker: int) -> None:
        self.ran("roll")
        self.kafka.roll(broker)

    @rule(kinds=KINDS, pid=PID, ends=st.booleans(), keep_up=st.integers(0, 3))
    def flow(self, kinds: list[str], pid: int, ends: bool, keep_up: int) -> None:
        """What goes on all the time: batches, a full segment, markers in the next one, followers that keep up."""
        for kind in kinds:
            if kind == "plain":
                self.write(2, rows=True)
            elif kind == "transaction":
                self.write_in_transaction(1, pid)
            else:
                self.end_transaction(pid, commit=kind == "commit")
        self.roll(self.kafka.leader)
        for open_pid in sorted(self.kafka.lead.open()) if ends else ():
            self.end_transaction(open_pid, commit=kinds[0] != "plain")
        for broker in range(3):
            if keep_up:
                self.replicate(broker)

    @rule(kinds=KINDS, pid=PID, copies=st.lists(st.sampled_from(("", "", *COPY)), max_size=3), fault=FAULT)
    def flow_through(self, kinds: list[str], pid: int, copies: list[str], fault: str) -> None:
        """The same, up to the table."""
        self.flow(kinds, pid, ends=True, keep_up=1)
        for copy_fault in copies:
            if self.kafka.due():
                self.copy(copy_fault, verbatim=False, peek=len(kinds) > 1)
        self.publish(fault)

    # Leaders

    @rule(broker=BROKER)
    def replicate(self, broker: int) -> None:
        self.ran("replicate with truncation" if self.kafka.replicate(broker) else "replicate")

    @rule(broker=BROKER)
    def elect(self, broker: int) -> None:
        if self.kafka.can_lead(broker):
            self.lead(broker)

    def lead(self, broker: int) -> None:
        self.ran("elect", TRUNCATION[not self.kafka.truncates(broker)])
        self.kafka.elect(broker)

    @precondition(lambda self: not self.clean)
    @rule(pid=PID, commit=st.booleans(), broker=BROKER, fault=FAULT)
    def end_twice(self, pid: int, commit: bool, broker: int, fault: str) -> None:
        """A transaction was read to have ended; an unclean election cuts its marker off, and it ends otherwise."""
        self.ran("end twice")
        self.write_in_transaction(1, pid)
        self.roll(self.kafka.leader)
        for follower in range(3):
            self.replicate(follower)
        self.end_transaction(pid, commit=commit)
        while self.kafka.due():
            self.copy("", verbatim=False, peek=True)
        self.publish(fault)
        self.read_if_copied()
        self.lead(broker)
        self.end_transaction(pid, commit=not commit)
        self.roll(self.kafka.leader)
        while self.kafka.due():
            self.copy("", verbatim=False, peek=False)

    # Copies and deletes

    @precondition(lambda self: self.kafka.due())
    @rule(fault=st.sampled_from(COPY), verbatim=st.just(False), peek=st.booleans())
    def copy(self, fault: str, verbatim: bool, peek: bool) -> None:
        made = self.kafka.next_copy(peek=peek)
        assert made is not None
        self.ran("copy verbatim" if verbatim and not fault else "copy", fault)
        for kind in self.kafka.overlaps(made):
            self.ran("copy", kind)
        for _, _, committed in made.peeked:
            self.ran("peek", "commit" if committed else "abort")
        if fault != COPY[1]:
            self.world.store(made, finished=not fault, verbatim=verbatim)
        else:
            self.world.write(made, named=False)

    @precondition(lambda self: self.kafka.due())
    @rule(broker=BROKER, again=st.sampled_from(COPY))
    def copy_in_smaller_parts(self, broker: int, again: str) -> None:
        """The reply of a copy is lost, and the next leader's segments are shorter."""
        base, end = self.kafka.due() or (0, 0)
        self.copy(COPY[2], verbatim=False, peek=False)
        self.replicate(broker)
        self.kafka.split(broker, base, end)
        self.elect(broker)
        for fault in (again, ""):
            if self.kafka.due():
                self.copy(fault, verbatim=False, peek=False)

    @precondition(lambda self: self.kafka.withdrawable())
    @rule(data=st.data())
    def withdraw(self, data: Any) -> None:
        self.ran("withdraw")
        self.kafka.withdraw(data.draw(st.sampled_from(self.kafka.withdrawable())))

    @precondition(lambda self: self.kafka.due())
    @rule(now=st.booleans(), lost=st.booleans())
    def copy_verbatim(self, now: bool, lost: bool = False) -> None:
        """lost: the reply; then Kafka withdraws it and copies the same offsets again."""
        self.copy(COPY[2] if lost else "", verbatim=True, peek=now)
        for crash in REQUEUE[::-1] if now else ():
            self.requeue_one(self.world.verbatim()[-1], crash)

    @precondition(lambda self: self.world.verbatim())
    @rule(data=st.data(), fault=st.sampled_from(REQUEUE))
    def requeue(self, data: Any, fault: str) -> None:
        self.requeue_one(data.draw(st.sampled_from(self.world.verbatim())), fault)

    def requeue_one(self, name: str, fault: str = "") -> None:
        self.ran("requeue", fault)
        self.world.requeue(name, crash=bool(fault))

    @precondition(lambda self: self.kafka.due())
    @rule(kinds=KINDS, pid=PID, more=st.booleans(), fault=st.sampled_from((*REPAIR, REPAIR[1])))
    def requeue_below_the_frontier(self, kinds: list[str], pid: int, more: bool, fault: str) -> None:
        """The table goes on over a segment stored as it is, which is converted later."""
        self.copy_verbatim(now=False)
        name = self.world.verbatim()[-1]
        if more:
            self.flow_through(kinds, pid, [""], "")
        self.publish("")
        if name in self.world.verbatim():
            for crash in REQUEUE[::-1] if more else REQUEUE[:1]:
                self.requeue_one(name, crash)
            self.read_if_copied()
            self.repair(fault)
            self.repair("")
            self.read_if_copied()

    @precondition(lambda self: self.kafka.due())
    @rule(now=st.booleans())
    def copied_again_below_the_frontier(self, now: bool) -> None:
        """The table passes a segment without rows whose reply was lost; it is withdrawn, and copied again with rows."""
        self.copy_verbatim(now=False, lost=True)
        name = self.world.verbatim()[-1]
        self.publish("")
        if name in self.kafka.withdrawable():
            self.ran("withdraw")
            self.kafka.withdraw(name)
            self.copy("", verbatim=False, peek=False)
            self.publish("")
            if now:
                self.settle(0, requeue=True)

    @rule(fault=st.sampled_from(REPAIR))
    def repair(self, fault: str) -> None:
        """Of what the table lacks below the frontier."""
        if self.world.repair(crash=bool(fault)):
            self.ran("repair", fault)

    @precondition(lambda self: self.kafka.known())
    @rule(data=st.data(), count=st.integers(1, 2), fault=st.sampled_from(DELETE))
    def retention(self, data: Any, count: int, fault: str) -> None:
        """The log start rises; a delete follows at once, and others some time later."""
        self.ran("log start")
        self.kafka.retain(count)
        if self.kafka.deletable():
            self.delete(data, fault)

    @rule(count=st.integers(1, 12))
    def delete_records(self, count: int) -> None:
        if self.kafka.delete_records(count):
            self.ran("delete records")

    @precondition(lambda self: self.kafka.deletable())
    @rule(data=st.data(), fault=st.sampled_from(DELETE))
    def delete(self, data: Any, fault: str) -> None:
        """In any order: deletes are repeated until they succeed."""
        while self.kafka.deletable():
            self.ran("delete", fault)
            name = data.draw(st.sampled_from(self.kafka.deletable()))
            if fault != DELETE[1]:
                self.kafka.delete(name)
            if fault:
                break

    @precondition(lambda self: len(self.kafka.known()) > 1)
    @rule(fault=st.sampled_from((*CRASH, CRASH[1])))
    def delete_topic(self, fault: str) -> None:
        """Kafka deletes every segment it knows, perhaps not all at once. The name is then used again, with a new id."""
        self.ran("delete topic", fault)
        names = [name for name, item in self.kafka.remote.items() if item in self.kafka.known()]
        for name in names[: len(names) // 2 if fault else 0]:
            self.kafka.delete(name)
        self.publish_from(self.kafka.listing())
        for name in [name for name, item in self.kafka.remote.items() if item in self.kafka.known()]:
            self.kafka.delete(name)
        self.publish_from(self.kafka.listing())
        self.read_all()
        live = [item for item in self.kafka.listing() if item.state == SegmentState.LIVE]
        if isinstance(self.policy, Follow) and self.clean and not live:
            floor = self.world.head.state.floor
            assert all(file.last >= floor for file, _ in self.world.head.files.values())
        self.new_topic()

    # Publishers

    @precondition(lambda self: self.page is None)
    @rule(up_to=st.integers(0, 30))
    def list_one_page(self, up_to: int) -> None:
        """A publisher reads the head and the first page of its listing, and is then slow."""
        self.ran("slow listing")
        self.page = (self.world.head, up_to, [s for s in self.kafka.listing() if s.last < up_to])

    @precondition(lambda self: self.page is not None)
    @rule()
    def finish_slow_publish(self) -> None:
        assert self.page is not None
        self.ran("slow publish")
        head, up_to, page = self.page
        self.page = None
        listing = [self.world.as_pointed(s) for s in page] + [s for s in self.kafka.listing() if s.last >= up_to]
        made = self.world.prepare(head, listing)
        if made is not None:
            self.world.swap(made)

    @rule(fault=FAULT)
    def publish(self, fault: str) -> None:
        self.publish_from(self.kafka.listing(), fault)

    def publish_from(self, listing: list[Segment], fault: str = "") -> None:
        world = self.world
        made = world.prepare(world.head, listing)
        if made is None:
            return
        self.ran("publish", fault)
        if fault == "lands late":
            world.pending = made
        elif fault == "conflict":
            assert world.swap(world.touched())
            assert not world.swap(made)
        elif fault == "crash after listing":
            world.objects -= {path for path in made.files if path.startswith("d") and path not in world.head.files}
        elif fault in ("", "reply lost"):
            assert world.swap(made)
            if fault == "reply lost":
                assert world.prepare(world.head, self.kafka.listing()) is None

    @precondition(lambda self: self.world.pending is not None)
    @rule()
    def late_landing(self) -> None:
        """A request whose reply was lost arrives after all; by then the head may have moved."""
        self.ran("late landing")
        made, self.world.pending = self.world.pending, None
        assert made is not None
        self.world.swap(made)

    # Maintenance, engines, time

    @rule(fault=st.sampled_from(CRASH))
    def reclaim(self, fault: str) -> None:
        if self.world.reclaim(crash=bool(fault)):
            self.ran("reclaim", fault)

    @precondition(lambda self: self.world.tombstoned())
    @rule(faults=st.lists(st.sampled_from((*CRASH, CRASH[1])), min_size=1, max_size=3))
    def publish_and_reclaim(self, faults: list[str]) -> None:
        for fault in faults:
            self.publish("")
            self.reclaim(fault)

    @precondition(lambda self: self.world.mergeable())
    @rule(data=st.data(), fault=st.sampled_from(MERGE))
    def merge(self, data: Any, fault: str) -> None:
        self.ran("merge", fault)
        one, two = data.draw(st.sampled_from(self.world.mergeable()))
        self.world.merge(one, two, fault)

    @precondition(lambda self: self.world.mergeable())
    @rule(data=st.data(), fault=st.sampled_from(MERGE))
    def merge_then_reclaim(self, data: Any, fault: str) -> None:
        self.merge(data, fault)
        self.reclaim("")
        self.merge_if_possible(data)

    def merge_if_possible(self, data: Any) -> None:
        if self.world.mergeable():
            self.merge(data, data.draw(st.sampled_from(MERGE)))

    @precondition(lambda self: self.world.projection is not None)
    @rule(up_to=st.integers(0, 30))
    def read(self, up_to: int) -> None:
        """The projection takes what the table has, up to an offset."""
        world = self.world
        assert world.projection is not None
        self.ran("read", "again" if world.projection.read(world.head.rows, world.head.state, up_to) else "")

    def read_if_copied(self) -> None:
        if self.world.projection is not None:
            self.read(FOR_EVER)

    @precondition(lambda self: self.world.projection is not None)
    @rule(kinds=KINDS, count=st.integers(1, 3), late=st.booleans(), known=st.booleans(), fault=FAULT)
    def wait_for_the_projection(self, kinds: list[str], count: int, late: bool, known: bool, fault: str) -> None:
        """Kafka deletes what is in the table, or about to come; the projection reads it in time, or not."""
        self.ran("wait", "too late" if late else "in time")
        self.flow(kinds, 1, ends=True, keep_up=1)
        while self.kafka.due():
            self.copy("", verbatim=False, peek=known)
        if known:
            self.publish("")
        self.kafka.retain(count)
        self.kafka.clean_up()
        self.publish(fault)
        self.reclaim(CRASH[0])
        self.publish("")
        if late:
            self.time_passes(LIMITS[1] or 0)
        else:
            self.read(FOR_EVER)
        self.publish(fault)

    def read_all(self) -> None:
        """Then nothing waits any more, and a whole listing lets go what is deleted."""
        if self.world.projection is not None:
            self.read(FOR_EVER)
            self.let_go()

    def let_go(self) -> None:
        self.world.narrow = False
        self.publish_from(self.kafka.listing())
        self.world.narrow = self.narrow
        if isinstance(self.policy, Follow):
            floor = self.world.head.state.floor
            assert all(file.last >= floor for file, _ in self.world.head.files.values())

    @rule(data=st.data(), kind=st.sampled_from(FOREIGN))
    def engine_writes(self, data: Any, kind: str) -> None:
        """An engine inserts rows, or rewrites one of our files into its own: found, reported, not touched."""
        made = self.world.touched()
        if kind == "rewrite":
            if not made.files:
                return
            _, rows = made.files.pop(data.draw(st.sampled_from(sorted(made.files))))
            self.world.taken |= set(rows)
        self.ran("foreign", kind)
        assert self.world.swap(made)

    @precondition(lambda self: isinstance(self.world.policy, KeepUntil) or self.limit)
    @rule(step=st.integers(1, 10))
    def time_passes(self, step: int) -> None:
        self.ran("time")
        self.now += step
        self.kafka.now = self.now
        if isinstance(self.world.policy, KeepUntil):
            self.world.policy = KeepUntil(min(self.world.policy.horizon_ms + step, self.now))

    # What must hold

    @invariant()
    def nothing_is_wrong(self) -> None:
        STEPS["all"] += 1
        world = self.world
        now = (world.head.version, len(self.kafka.ever))
        if now != self.checked:
            world.check_rows()
            self.checked = now
        world.check_objects()

    @rule(chance=st.integers(0, 2), late=st.booleans(), requeue=st.booleans())
    def settle(self, chance: int, late: bool = False, requeue: bool = False) -> None:
        """Faults stop: everything is uploaded and published; what the table lacks or has too much shows now."""
        if chance:
            return
        self.ran("settle")
        kafka, world = self.kafka, self.world
        if world.pending is not None:
            self.late_landing()
        for pid in sorted(kafka.lead.open()):
            self.write_one(1, BatchKind.COMMIT, pid)
        self.write_one(1, BatchKind.PLAIN, -1)
        for broker in range(3):
            kafka.replicate(broker)
        kafka.roll(kafka.leader)
        for name in kafka.withdrawable() if requeue else ():
            kafka.withdraw(name)
        while (made := kafka.next_copy()) is not None:
            world.store(made, finished=True)
        kafka.clean_up()
        world.narrow = False  # a whole listing comes in the end
        self.publish_from(kafka.listing())
        world.narrow = self.narrow
        self.check_exact()
        if requeue:
            for name in world.verbatim():
                self.requeue_one(name)
            world.repair()
            self.check_exact(requeued=True)
        if self.limit == LIMITS[1] and late:
            self.time_passes(self.limit or 0)
            self.let_go()
        else:
            self.read_all()
            self.check_copied()

    def check_copied(self) -> None:
        lead, world = self.kafka.lead, self.world
        if world.projection is None:
            return
        every = self.clean and world.projection.limit == FOR_EVER
        low = 0 if every else max(lead.start, world.head.state.floor)
        open_to_doubt = world.jumped | world.withheld | world.taken | (world.lost if every else set())
        expected = {o: e for o, e in lead.committed().items() if o >= low and o not in open_to_doubt}
        assert {o: e for o, e in world.projection.rows.items() if o >= low and o not in open_to_doubt} == expected

    def check_exact(self, *, requeued: bool = False) -> None:
        """requeued: all that live segments have is in the table."""
        lead, world = self.kafka.lead, self.world
        archive = isinstance(self.policy, Keep) and self.clean and not requeued
        low = 0 if archive else max(lead.start, world.head.state.floor)
        open_to_doubt = world.jumped | world.taken | (world.lost if archive else set())
        if not requeued:
            open_to_doubt |= world.withheld
        expected = {o: e for o, e in lead.committed().items() if o >= low and o not in open_to_doubt}
        found = {o: e for o, e in world.head.rows.items() if o >= low and o not in open_to_doubt}
        assert found == expected
        assert world.head.state.frontier == lead.end


def search(clean: bool, policy: Policy, examples: int, steps: int) -> None:
    machine = type("Machine", (Histories,), {"clean": clean, "policy": policy})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


WORLDS = [(clean, policy) for clean in (True, False) for policy in (FOLLOW, KEEP, KeepUntil(0))]


@pytest.mark.timeout(1200)
def test_histories(capsys: pytest.CaptureFixture[str]) -> None:
    """At least STEPS_MIN steps, and each action with each of its faults or kinds at least TIMES_MIN times.

    Half of the histories publish from listings that begin at the frontier, wherever that is enough; in the others each
    plan is compared with what such a listing gives.
    """
    for counted in (RAN, STEPS, AHEAD, LEFT):
        counted.clear()
    for clean, policy in WORLDS:
        search(clean, policy, 240, 50)
    with capsys.disabled():
        print(f"\n{report()}")
    rare = {pair: RAN[pair] for pair in ACTIONS if RAN[pair] < TIMES_MIN}
    assert not rare, report()
    assert set(RAN) == ACTIONS
    assert min(AHEAD["the same"], AHEAD["silent"]) >= TIMES_MIN, AHEAD
    assert min(LEFT["read"], LEFT["let go"], LEFT["waited"]) >= TIMES_MIN, LEFT
    assert STEPS["all"] >= STEPS_MIN


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("clean", "policy"), WORLDS)
def test_many_histories(clean: bool, policy: Policy) -> None:
    search(clean, policy, 1000, 60)
