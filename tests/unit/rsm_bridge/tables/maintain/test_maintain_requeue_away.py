"""A requeue that is not in the table's head: status names it, another adds its rows. Nothing else is taken for one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from converter.types import SegmentMetadata
from iceberg_catalog.commit.commit import recorded_retention
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.plan.file_epochs import no_look
from iceberg_catalog.plan.merge import MergeLimits
from iceberg_catalog.plan.types import Follow
from rsm_bridge.metrics.progress.facts import NotAdded
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.cures import commands
from rsm_bridge.tables.maintain import requeue_topics
from rsm_bridge.tables.maintain.requeue_away import not_added
from tests.support.killed import KilledError, die_at
from tests.worlds.foreign_support import insert, rewrite, set_head
from tests.worlds.maintain_support import World, make_world
from tests.worlds.requeue_support import gap_of_three, run, segments, stored_as_it_is, verbatim
from tests.worlds.status_support import damage, in_kafka, indexes, looked, of, persons

NAMED = ("rows_not_in_table", None)
LIMITS = MergeLimits(small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=100, age_ms=0, span_ms=10**9)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    # A dead command holds the lease for its TTL; here nobody waits for it.
    monkeypatch.setattr(requeue_topics, "leased", lambda *_: contextlib.nullcontext())
    return make_world(tmp_path / "data", single_process=False)


def urgent(world: World, tmp_path: Path, **rules: Any) -> set[tuple[str, int | None]]:
    return persons(looked(tmp_path / "data", in_kafka(world), **rules))


def requeued(tmp_path: Path) -> str:
    done = run(tmp_path, "orders")
    assert done.exit_code == 0, done.output
    return done.output


def rolled_back(world: World, tmp_path: Path) -> None:
    before = world.loaded().metadata.current_snapshot_id
    assert before is not None
    requeued(tmp_path)
    world.catalog.commit_table(world.loaded(), (), set_head(before))


def merged_and_rolled_back(world: World, tmp_path: Path) -> None:
    before = world.loaded().metadata.current_snapshot_id
    assert before is not None
    requeued(tmp_path)
    world.maintenance.merger = world.new_merger(LIMITS)
    world.later(1)
    assert world.maintain().merged == 3
    world.catalog.commit_table(world.loaded(), (), set_head(before))


def died_at(point: str) -> Callable[[World, Path], None]:
    def die(_: World, tmp_path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            die_at(patch, point)
            with pytest.raises(KilledError):
                run(tmp_path)

    return die


LOST = [
    pytest.param(died_at("requeue-repair"), id="died with the indexes"),
    pytest.param(died_at("before-swap"), id="died before the swap"),
    pytest.param(rolled_back, id="rolled back"),
    pytest.param(merged_and_rolled_back, id="merged, rolled back"),
]


@pytest.mark.parametrize("lose", LOST)
def test_it_is_named_and_done_again(world: World, tmp_path: Path, lose: Callable[[World, Path], None]) -> None:
    gap_of_three(world)
    assert NAMED not in urgent(world, tmp_path)
    lose(world, tmp_path)
    world.publish()
    assert world.offsets() == [0, 1, 2, 6, 7, 8]
    assert urgent(world, tmp_path) == {NAMED}
    (finding,) = of(looked(tmp_path / "data"), CauseCode.ROWS_NOT_IN_TABLE)  # Kafka is not asked for it
    assert commands(finding)[0] == "tierberg requeue orders"
    said = "orders: 0 segments would get their rows, rows of 1 other segment come below the frontier (dry run)"
    assert said in run(tmp_path, "orders", "--dry-run").output
    assert finding.said == "1 segment with rows that the table lacks; first partition 0 offset 3"
    world.copy(2)
    world.publish()
    assert urgent(world, tmp_path) == {NAMED}
    assert "1 files came below the frontier" in requeued(tmp_path)
    assert world.offsets() == list(range(11))
    assert urgent(world, tmp_path) == set()
    world.check()


def test_rows_between_those_that_other_copies_brought(world: World, tmp_path: Path) -> None:
    log = world.log()
    for count in (1, 2, 2, 2, 1):
        log.write(count)
    stored_as_it_is(world, 1, 6)
    world.copy_range(0, 2)
    world.copy_range(5, 7)
    world.publish()
    died_at("requeue-repair")(world, tmp_path)
    assert world.offsets() == [0, 1, 2, 5, 6, 7]
    assert urgent(world, tmp_path) == {NAMED}
    requeued(tmp_path)
    assert world.offsets() == list(range(8))
    assert urgent(world, tmp_path) == set()


@pytest.mark.parametrize("commit", [True, False])
def test_rows_that_waited_for_a_marker_are_named_when_it_is_tiered(
    world: World, tmp_path: Path, *, commit: bool
) -> None:
    log = world.log()
    world.copy(1)
    log.write(1)
    log.write(2, 7)
    stored_as_it_is(world, 1, log.end - 1)
    world.copy(1)
    world.publish()
    requeued(tmp_path)
    assert world.offsets() == [0, 1, 4]
    assert NAMED not in urgent(world, tmp_path)
    log.end_transaction(7, commit=commit)
    world.copy_range(log.end - 1, log.end - 1)
    world.publish()
    assert (NAMED in urgent(world, tmp_path)) is commit
    requeued(tmp_path)
    assert world.offsets() == ([0, 1, 2, 3, 4] if commit else [0, 1, 4])
    assert urgent(world, tmp_path) == set()


def there(world: World, tmp_path: Path) -> None:
    gap_of_three(world)
    requeued(tmp_path)


def merged(world: World, tmp_path: Path) -> None:
    there(world, tmp_path)
    world.maintenance.merger = world.new_merger(LIMITS)
    world.later(1)
    assert world.maintain().merged == 3


def beside_another_copy(world: World, tmp_path: Path) -> None:
    log = world.log()
    world.copy(3)
    for count in (2, 2, 2):
        log.write(count)
    stored_as_it_is(world, 3, 6)
    world.copy_range(5, 8)
    world.publish()
    requeued(tmp_path)


def aborted(world: World, tmp_path: Path) -> None:
    log = world.log()
    world.copy(1)
    log.write(2, 5)
    log.end_transaction(5, commit=False)
    stored_as_it_is(world, 1, log.end - 1)
    world.copy(1)
    world.publish()
    requeued(tmp_path)
    assert world.offsets() == [0, 4]


def no_rows(world: World, tmp_path: Path) -> None:
    log = world.log()
    world.copy(1)
    log.end_transaction(5, commit=True)
    stored_as_it_is(world, 1, 1)
    world.copy(1)
    world.publish()
    requeued(tmp_path)


def above_the_frontier(world: World, tmp_path: Path) -> None:
    world.copy(3)
    world.publish()
    verbatim(world, 3)
    died_at("before-swap")(world, tmp_path)


def below_the_floor(world: World, tmp_path: Path) -> None:
    first = world.copy(3)
    verbatim(world, 3)
    later = world.copy(3)
    world.copy(3)
    world.publish()
    world.delete(first, later)
    world.publish()
    requeued(tmp_path)
    assert world.offsets() == [9, 10, 11]


def never_requeued(world: World, _: Path) -> None:
    gap_of_three(world)


QUIET = [there, merged, beside_another_copy, aborted, no_rows, above_the_frontier, below_the_floor, never_requeued]


@pytest.mark.parametrize("history", QUIET, ids=lambda item: item.__name__)
def test_what_no_requeue_would_add_is_not_named(
    world: World, tmp_path: Path, history: Callable[[World, Path], None]
) -> None:
    history(world, tmp_path)
    assert NAMED not in urgent(world, tmp_path)
    world.publish()
    assert NAMED not in urgent(world, tmp_path)
    if history is not never_requeued:
        assert "1 files came" not in requeued(tmp_path)


def test_an_archive_has_what_retention_deleted(world: World, tmp_path: Path) -> None:
    rules = [{"pattern": ".*", "table_retention": "keep"}]
    world.rule(retention=lambda _: "keep")
    first = world.copy(3)
    verbatim(world, 3)
    later = world.copy(3)
    world.copy(1)
    world.publish()
    requeued(tmp_path)
    world.delete(first, later)
    world.publish()
    assert world.offsets() == list(range(10))
    assert NAMED not in urgent(world, tmp_path, topics=rules)


def test_a_command_by_another_rule_takes_nothing_out_of_an_archive(world: World, tmp_path: Path) -> None:
    """As one without the bridges' `--config`: what it took would be gone with the tombstones."""
    world.rule(retention=lambda _: "keep")
    gone = world.copy(3)
    world.copy(3)
    world.publish()
    world.delete(gone)
    world.publish()
    done = run(tmp_path, "orders")
    assert done.exit_code == 2, done.output
    assert "kept by `table_retention: keep`, and these settings say follow-kafka" in " ".join(done.output.split())
    assert world.offsets() == list(range(6))
    world.rule(retention=lambda _: "follow-kafka")
    world.publish()
    assert world.offsets() == [3, 4, 5], "a bridge's rule may change"
    assert run(tmp_path, "orders").exit_code == 0


def test_what_a_command_commits_does_not_say_the_bridges_rule(world: World, tmp_path: Path) -> None:
    world.rule(retention=lambda _: "keep")
    world.copy(3)
    verbatim(world, 3)
    world.copy(3)
    world.publish()
    requeued(tmp_path)
    assert world.offsets() == list(range(9))
    assert recorded_retention(LiveFiles().read(world.loaded())) == "keep"


@pytest.mark.parametrize("act", [insert, rewrite])
def test_what_engines_did_comes_first(world: World, tmp_path: Path, act: Callable[..., None]) -> None:
    """A requeue is refused then, so it is no cure."""
    gap_of_three(world)
    died_at("requeue-repair")(world, tmp_path)
    act(world.loaded())
    found = urgent(world, tmp_path)
    assert ("foreign_commits", None) in found
    assert NAMED not in found


def test_it_is_not_named_where_the_command_would_do_nothing(world: World, tmp_path: Path) -> None:
    gap_of_three(world)
    died_at("requeue-repair")(world, tmp_path)
    assert NAMED not in urgent(world, tmp_path, topics=[{"pattern": ".*", "mode": "verbatim"}])
    damage(indexes(world)[0])
    found = urgent(world, tmp_path)
    assert ("index_damaged", None) in found
    assert NAMED not in found


def test_a_branch_that_lost_an_election_is_not_missed(world: World, tmp_path: Path) -> None:
    gap_of_three(world)
    died_at("requeue-repair")(world, tmp_path)
    known, files, state = segments(world), LiveFiles().read(world.loaded()).files, world.observe().states[0]
    assert not_added(known, {0: state}, files, Follow(), no_look) == NotAdded(1, 0, 3)
    other = replace(state, lineage=((0, 0), (4, 3)))
    dead = [item for item in files if item.first < 3]
    assert not_added(known, {0: replace(other, frontier=3)}, dead, Follow(), no_look) is None
    rewound = [replace(item, runs=((4, 6),)) if item.first == 6 else item for item in files]
    assert not_added(known, {0: other}, rewound, Follow(), no_look) is None


def bare_gap(world: World) -> SegmentMetadata:
    """Offsets 0-8; 3 to 5 are in a segment without rows, which the table has passed."""
    world.copy(3)
    world.log().write(3)
    bare = world.copy_range(3, 5, mode="verbatim")
    world.copy(3)
    world.publish()
    return bare


def copied_again(world: World, _: Path) -> None:
    """Its reply was lost, and the copy that took its place has rows."""
    world.withdraw(bare_gap(world))
    world.copy_range(3, 5)
    world.publish()


def requeued_copied_again_and_rolled_back(world: World, tmp_path: Path) -> None:
    bare = bare_gap(world)
    before = world.loaded().metadata.current_snapshot_id
    assert before is not None
    requeued(tmp_path)
    world.withdraw(bare)
    world.copy_range(3, 5)
    world.publish()
    world.catalog.commit_table(world.loaded(), (), set_head(before))
    world.publish()


@pytest.mark.parametrize(
    "history", [copied_again, requeued_copied_again_and_rolled_back], ids=lambda item: item.__name__
)
def test_rows_of_a_segment_that_took_the_place_of_one_without(
    world: World, tmp_path: Path, history: Callable[[World, Path], None]
) -> None:
    history(world, tmp_path)
    assert world.offsets() == [0, 1, 2, 6, 7, 8]
    assert urgent(world, tmp_path) == {NAMED}
    run(tmp_path)  # of all topics: what an engine deleted must not come back by the way
    assert world.offsets() == [0, 1, 2, 6, 7, 8]
    assert "1 files came below the frontier" in requeued(tmp_path)
    assert world.offsets() == list(range(9))
    assert urgent(world, tmp_path) == set()
    world.check()
