"""`tierberg requeue` over a real small table: rows come late, Kafka is served what it was served."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from converter.segment.add_rows import add_rows
from converter.types import Cause
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.summary import REPAIR
from rsm_bridge.tables.maintain import requeue
from rsm_bridge.tables.maintain import requeue_topics as requeue_command
from rsm_bridge.tables.maintain.merge import prove
from tests.support.killed import KilledError, die_at
from tests.worlds.maintain_support import World, make_world
from tests.worlds.requeue_support import gap_of_three, run, segments, stored_as_it_is, verbatim

STEPS = ("requeue-written", "requeue-repair", "before-swap", "after-swap")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "data", single_process=False)


def test_rows_below_the_frontier_come_with_a_commit_that_says_so(world: World, tmp_path: Path) -> None:
    gap_of_three(world)
    before = world.observe().states
    done = run(tmp_path, "orders")
    assert done.exit_code == 0, done.output
    assert "orders: 1 segments have 3 rows; 1 files came below the frontier" in done.output
    assert world.offsets() == list(range(9))
    assert world.observe().states == {0: replace(before[0], repairs=((1, 3),))}
    snapshot = world.loaded().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "append"
    assert snapshot.summary.additional_properties[f"{REPAIR}0"] == "3-5"
    world.check()
    assert not any(known.withheld for known in segments(world))
    assert world.publish().files_added == 0
    assert "0 segments have 0 rows; 0 files" in run(tmp_path).output
    assert world.offsets() == list(range(9))


def test_a_dry_run_and_a_verbatim_rule_change_nothing(world: World, tmp_path: Path) -> None:
    gap_of_three(world)
    before = world.stored()
    assert "orders: 1 segments would get their rows (dry run)" in run(tmp_path, "--dry-run").output
    ruled = run(tmp_path, topics="[{pattern: .*, mode: verbatim}]")
    assert "1 segments stay as they are: the rule of the topic says mode: verbatim" in ruled.output
    assert world.stored() == before
    missing = run(tmp_path, "elsewhere")
    assert missing.exit_code == 2
    assert "nothing of a topic elsewhere" in missing.output


def test_a_topic_that_had_no_table_gets_one(world: World, tmp_path: Path) -> None:
    verbatim(world, 4)
    verbatim(world, 2)
    world.publish()
    assert world.table() is None
    assert run(tmp_path).exit_code == 0
    assert world.offsets() == list(range(6))
    world.check()


def test_only_committed_rows_come(world: World, tmp_path: Path) -> None:
    log = world.log()
    world.copy(1)
    first = log.end
    log.write(2, 5)
    log.end_transaction(5, commit=True)
    log.write(2, 6)
    log.end_transaction(6, commit=False)
    log.write(1)
    log.write(1, 7)
    stored_as_it_is(world, first, log.end - 1)
    log.end_transaction(7, commit=True)
    world.copy_range(log.end - 1, log.end - 1)
    world.copy(1)
    world.publish()
    assert world.offsets() == [0, 10]
    done = run(tmp_path)
    # Its transaction index and producer snapshot are missing, so it decides none.
    assert "1 segments have 6 rows, 5 of them in transactions their segment leaves open; 1 files" in done.output
    assert "wait" not in done.output
    assert world.offsets() == [0, 1, 2, 7, 8, 10]
    world.check()


@pytest.mark.parametrize("commit", [True, False])
def test_rows_below_the_frontier_wait_for_a_marker_that_is_not_tiered(
    world: World, tmp_path: Path, *, commit: bool
) -> None:
    log = world.log()
    world.copy(1)
    for count, producer in ((1, -1), (2, 7), (1, -1), (1, 7), (1, -1)):
        log.write(count, producer)
    stored_as_it_is(world, 1, log.end - 1)
    world.copy(1)
    world.publish()
    waiting = "orders: 5 rows wait for the end of a transaction: run it again"
    done = run(tmp_path)
    assert "1 segments have 6 rows, 3 of them in transactions their segment leaves open; 1 files" in done.output
    assert waiting in done.output
    assert world.offsets() == [0, 1, 7]  # one file around those that wait would count as having them
    again = run(tmp_path)
    assert "0 segments have 0 rows; 0 files" in again.output
    assert waiting in again.output

    log.end_transaction(7, commit=commit)
    world.copy_range(log.end - 1, log.end - 1)
    world.publish()
    assert world.offsets() == [0, 1, 7]
    at_last = run(tmp_path)
    assert "0 segments have 0 rows; 1 files" in at_last.output
    assert "wait" not in at_last.output
    assert world.offsets() == (list(range(8)) if commit else [0, 1, 4, 6, 7])
    world.check()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("crashes", [1, 2])
def test_a_crash_is_repaired_by_running_it_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, crashes: int
) -> None:
    # A dead command holds the lease for its TTL; here nobody waits for it.
    monkeypatch.setattr(requeue_command, "leased", lambda *_: contextlib.nullcontext())
    gap_of_three(world)
    for _ in range(crashes if step != "after-swap" else 1):
        with monkeypatch.context() as patched:
            die_at(patched, step)
            with pytest.raises(KilledError):
                run(tmp_path)
        world.check()
        world.publish()
    assert run(tmp_path).exit_code == 0
    assert world.offsets() == list(range(9))
    world.check()


def test_rows_that_another_copy_brought_are_not_doubled(world: World, tmp_path: Path) -> None:
    """A new leader's segment begins within the one that could not be converted."""
    log = world.log()
    world.copy(3)
    for count in (2, 2, 2):
        log.write(count)
    stored_as_it_is(world, 3, 6)
    world.copy_range(5, 8)
    world.publish()
    assert world.offsets() == [0, 1, 2, 5, 6, 7, 8]
    assert run(tmp_path).exit_code == 0
    assert world.offsets() == list(range(9))
    world.check()


def test_a_segment_below_the_floor_adds_nothing(world: World, tmp_path: Path) -> None:
    first = world.copy(3)
    verbatim(world, 3)
    later = world.copy(3)
    world.copy(3)
    world.publish()
    world.delete(first, later)
    world.publish()
    assert world.offsets() == [9, 10, 11]
    assert run(tmp_path).exit_code == 0
    assert world.offsets() == [9, 10, 11]
    world.check()


def test_a_segment_deleted_meanwhile_stays_deleted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy(3)
    made = world.log()
    made.write(3)
    doomed = world.copy_range(3, 5, mode="verbatim")
    world.copy(3)
    world.publish()

    def deleting(*arguments: object) -> None:
        world.delete(doomed)
        prove(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(requeue, "prove", deleting)
    done = run(tmp_path)
    assert done.exit_code == 0, done.output
    assert "0 segments have 0 rows" in done.output
    assert world.offsets() == [6, 7, 8]
    world.check()


def test_one_that_still_fails_does_not_hold_up_the_others(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap_of_three(world)
    verbatim(world, 2)

    def failing(*arguments: object) -> bytes:
        if str(arguments[5]).startswith(f"data/{world.topic_id.hex()}/0/{3:020d}"):
            raise RuntimeError("not this one")
        return add_rows(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(requeue, "add_rows", failing)
    done = run(tmp_path)
    assert done.exit_code == 3
    assert "1 segments stay as they are" in done.output
    assert "not this one" in done.output
    assert world.offsets() == [0, 1, 2, 6, 7, 8, 9, 10]
    assert [known.withheld for known in segments(world)] == [False, True, False, False]


def test_what_kafka_is_served_does_not_change(world: World, tmp_path: Path) -> None:
    """Positions are cached by brokers: every batch stays in its kept bytes, at its place."""
    gap_of_three(world)
    known = next(known for known in segments(world) if known.withheld)
    before = world.served(known.listed.key)
    run(tmp_path)
    (after,) = (item for item in segments(world) if item.requeued)
    assert after.kept == known.kept
    assert world.served(after.listed.key) == before
    assert after.counts is not None
    assert dict(after.counts.quarantined).get(Cause.INTERNAL) is None


def test_merges_leave_room_for_it(world: World, tmp_path: Path) -> None:
    for _ in range(3):
        world.copy(2)
    verbatim(world, 2)
    for _ in range(3):
        world.copy(2)
    world.publish()
    limits = MergeLimits(small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=100, age_ms=0, span_ms=10**9)
    world.maintenance.merger = world.new_merger(limits)
    world.later(1)
    assert world.maintain().merged == 6
    assert run(tmp_path).exit_code == 0
    assert world.offsets() == list(range(14))
    world.check()
    world.later(1)
    world.maintain()
    assert world.offsets() == list(range(14))
    world.check()
