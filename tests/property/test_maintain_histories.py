"""I3 over a real table and store: nothing a live segment or a kept snapshot needs is ever removed.

Copies that crash or lose their reply, transactions, overlapping segments, retention in any order, commits that land
late, a tag, clocks that jump, reclaiming, sweeping, merges that die at any step, undeletes, and bridges that know the
table by another namespace until one of the two is dropped, in random order. After
every step everything that an index or a snapshot names is there, every live segment is served as it was copied, no
offset is in the table twice, and no row that is not committed; when all is quiet the rows of live segments are there.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
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

from converter.types import SegmentMetadata
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import PartState
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import LIST_PAGE_KEYS
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.tables.maintain import sweep
from rsm_bridge.tables.maintain.drop_other import drop_other
from rsm_bridge.tables.maintain.undelete import undelete
from rsm_bridge.tables.publish.table_run import RetryRunError, RunResult, TableRun
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.support.killed import KilledError, die_at
from tests.worlds.maintain_support import DAY, World, make_world

PARTITION = st.integers(0, 1)
#: Seconds that pass: within every grace, beyond one after the other.
WAIT = st.sampled_from([0.0, 700.0, 2 * 3600.0, 2.0 * DAY, 6.0 * DAY])


MERGING = MergeLimits(small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=6, age_ms=0, span_ms=DAY * 1000)
MERGE_STEPS = ("merge-written", "merge-pointer", "merge-pointer", "merge-pointed", "before-swap", "after-swap")


class Slow(TableRun):
    """A bridge whose commit request is on its way."""

    request: tuple[Any, ...] = ()

    def _commit(self, *request: Any) -> Any:
        self.request = request
        raise RetryRunError("on its way")

    def land(self) -> None:
        TableRun._commit(self, *self.request)


class Maintained(RuleBasedStateMachine):
    """One topic with two partitions and two bridges; perhaps others, which know its table by another namespace."""

    @initialize(
        grace=st.sampled_from([0.0, 600.0]),
        mass=st.sampled_from([0.0, float(DAY)]),
        page=st.sampled_from([LIST_PAGE_KEYS, 3]),
    )
    def begin(self, grace: float, mass: float, page: int) -> None:
        # Of a topic with more than a page of indexes a run looks at what is new first.
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr("rsm_bridge.storage.segments.listing.LIST_PAGE_KEYS", page)
        self.patched.setattr("rsm_bridge.tables.publish.planning.INDEX_READS_MAX", page)
        self.folder = Path(tempfile.mkdtemp(prefix="maintained-"))
        self.world = make_world(self.folder, graces=Graces(grace, mass), merging=MERGING)
        vars(self.world.store)["single_process"] = False
        self.finished: list[SegmentMetadata] = [self.world.copy(2)]
        self.world.publish()  # there is a table: before that, time alone keeps a first commit safe
        self.unknown: list[SegmentMetadata] = []
        self.reached = {0: 1, 1: -1}
        self.second: World | None = None
        self.slow: Slow | None = None
        self.seen: RunResult | None = None

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)
            self.patched.undo()

    @rule(count=st.integers(1, 3), partition=PARTITION, producer=st.sampled_from([-1, -1, 5]))
    def write(self, count: int, partition: int, producer: int) -> None:
        self.world.log(partition).write(count, producer)

    @rule(partition=PARTITION, commit=st.booleans())
    def end_transaction(self, partition: int, commit: bool) -> None:
        self.world.log(partition).end_transaction(5, commit=commit)

    @rule(partition=PARTITION, back=st.integers(0, 2), fate=st.sampled_from(["known", "known", "lost", "crash"]))
    def copy(self, partition: int, back: int, fate: str) -> None:
        """From the next batch on, or some batches earlier, as a new leader with other segments does."""
        log = self.world.log(partition)
        done = self.reached[partition]
        log.write(1)
        todo = [batch for batch in log.batches if batch.base > done]
        earlier = [batch for batch in log.batches if batch.base <= done][::-1][:back]
        first = earlier[-1].base if earlier else todo[0].base
        made = self.world.copy_range(first, todo[-1].last, partition, indexed=fate != "crash")
        {"known": self.finished, "lost": self.unknown, "crash": []}[fate].append(made)
        if fate == "known":
            self.reached[partition] = made.end_offset

    @rule(count=st.integers(1, 3), partition=PARTITION)
    def retention(self, count: int, partition: int) -> None:
        mine = sorted((s for s in self.finished if s.partition == partition), key=lambda s: s.start_offset)
        for segment in mine[:count]:
            self.world.delete(segment)
            self.finished.remove(segment)

    @rule()
    def withdraw(self) -> None:
        """Kafka takes back a copy whose reply it never got."""
        if self.unknown:
            self.world.withdraw(self.unknown.pop())

    @rule()
    def publish(self) -> None:
        self.seen = self.world.publish()

    @rule()
    def begin_slow_publish(self) -> None:
        world = self.world
        self.slow = Slow(store=world.store, catalog=world.catalog, topic_id=world.topic_id, context=world.context)
        try:
            self.slow.run()
        except RetryRunError:
            return
        self.slow = None

    @precondition(lambda self: self.slow is not None)
    @rule()
    def slow_publish_lands(self) -> None:
        slow, self.slow = self.slow, None
        assert slow is not None
        try:
            slow.land()
        except RetryRunError:
            return

    @rule(stale=st.booleans(), wait=WAIT)
    def reclaim(self, stale: bool, wait: float) -> None:
        """After a run; or over what an earlier run said, by a thread that was asleep."""
        self.world.later(wait)
        if not stale or self.seen is None:
            self.world.reclaim(self.world.publish())
            return
        # Snapshots of so old a head may have expired: it fails when it reads them, having removed nothing.
        with contextlib.suppress(FileNotFoundError):
            self.world.reclaim(self.seen)

    @rule(wait=WAIT)
    def reclaim_by_hand(self, wait: float) -> None:
        self.world.later(wait)
        self.world.new_reclaimer().reclaim(self.world.observe(), Tally())

    @rule(wait=WAIT)
    def maintain(self, wait: float) -> None:
        self.world.later(wait)
        self.world.maintain()

    @rule(wait=WAIT, step=st.sampled_from(MERGE_STEPS), times=st.integers(1, 3))
    def merge_dies(self, wait: float, step: str, times: int) -> None:
        self.world.later(wait)
        with pytest.MonkeyPatch.context() as patched, contextlib.suppress(KilledError):
            die_at(patched, step, times)
            self.world.maintain()

    @rule()
    def settle(self) -> None:
        """Live segments are in the table between floor and frontier; transactions that a gap swallowed aside."""
        self.world.publish()
        now = self.world.observe()
        for known in now.segments:
            state, partition = now.states.get(known.key.partition, PartState()), known.key.partition
            if known.live:
                plain, _ = self.world.log(partition).outcome()
                due = range(max(known.key.base, state.floor), min(known.key.last + 1, state.frontier))
                missing = (plain & set(due)) - set(self.world.offsets(partition))
                assert not missing, f"live rows {missing} of partition {partition} are not in the table"

    @rule(wait=WAIT, step=st.sampled_from(["publish", "reclaim", "maintain"]))
    def by_other_rules(self, wait: float, step: str) -> None:
        """What a bridge does that knows the topic's table by another namespace; its first run makes that table."""
        self.world.later(wait)
        world = self.second
        if world is None:
            world = self.second = World(
                self.world.store,
                self.world.catalog,
                self.world.topic,
                self.world.topic_id,
                self.world.logs,
                self.world.graces,
                merging=MERGING,
                namespace="lakehouse",
            )
        world.ahead_ms = self.world.ahead_ms
        if step == "reclaim":
            world.reclaim(world.publish())
        elif step == "maintain":
            world.maintain()
        else:
            world.publish()

    @rule(old=st.booleans())
    def drop_one_of_two(self, old: bool) -> None:
        """The bridges that know the dropped table make another with their next run."""
        worlds = [self.world, self.second]
        gone, stays = worlds if old else worlds[::-1]
        table = None if gone is None else gone.table()
        if gone is None or stays is None or table is None or self.slow is not None:
            return
        try:
            drop_other(gone.store, gone.catalog, table.metadata.table_uuid, lambda _: stays.table(), Tally())
        except BridgeError as error:
            assert error.kind == "bad_request"  # noqa: PT017 - it has rows that the other lacks, or there is no other
            return
        gone.publish()

    @rule()
    def bring_back(self) -> None:
        try:
            undelete(self.world.store, self.world.catalog, self.world.topic_id, self.world.context)
        except BridgeError as error:
            # Refused, too, while the table has rows of a copy that was taken back and not yet uploaded again.
            if error.kind not in ("not_found", "bad_request"):
                raise

    @rule()
    def tag(self) -> None:
        table = self.world.table()
        if table is not None and table.current_snapshot() is not None and "audit" not in table.metadata.refs:
            table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "audit").commit()

    @invariant()
    def everything_needed_is_there(self) -> None:
        if not hasattr(self, "world"):
            return
        for world in [self.world, *([] if self.second is None else [self.second])]:
            world.check()
            for partition in (0, 1) if world.table() is not None else ():
                offsets = world.offsets(partition)
                assert len(offsets) == len(set(offsets)), "an offset came twice"
                plain, committed = world.log(partition).outcome()
                assert set(offsets) <= plain | committed


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is on one machine: what was written before the head is swept at once, up to the file system's ticks."""
    monkeypatch.setattr(sweep, "CLOCK_SKEW_SECONDS_MAX", 0.05)


def search(examples: int, steps: int) -> None:
    checked = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Maintained, settings=checked)


@pytest.mark.timeout(300)
def test_nothing_needed_is_ever_removed() -> None:
    search(10, 30)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_nothing_needed_is_ever_removed_in_many_histories() -> None:
    search(300, 60)
