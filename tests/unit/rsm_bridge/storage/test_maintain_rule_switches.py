"""Rules R13 to R15 are needed: with one off, a fixed test turns red. R1 to R12: test_catalog_plan_switches.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog import failpoints
from iceberg_catalog.tables import tables
from rsm_bridge.storage.keys import INDEX_ROOT
from rsm_bridge.storage.segments import listing
from rsm_bridge.tables.maintain import merge, sweep
from rsm_bridge.tables.maintain.merge import Merger
from tests.unit.rsm_bridge.storage import test_maintain_sweep as sweeps
from tests.unit.rsm_bridge.storage.segments import test_maintain_merge as merges
from tests.worlds.maintain_support import World, make_world, published

_Test = Callable[[Path, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Switch:
    """A rule, what stands in for it (owner and name → stand-in), and the test that must notice."""

    rule: str
    instead: dict[tuple[object, str], object]
    test: _Test


def swept(test: Callable[[World], None]) -> _Test:
    return lambda folder, _: test(make_world(folder))


def killed_between_the_pointers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(folder, merging=merges.LIMITS)
    merges.test_a_crash_at_any_step_is_repaired_by_the_next_pass(world, monkeypatch, "merge-pointer", 2, 1)


def merged_wrongly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(folder, merging=merges.LIMITS)
    merges.test_a_file_that_does_not_prove_itself_is_named_by_nobody(world, monkeypatch)


def created_again(folder: Path, _: pytest.MonkeyPatch) -> None:
    test_a_topic_created_again_has_segments_and_a_table_of_its_own(folder)


def table_first(
    self: Merger, live: Any, head: Any, partition: int, planned: Any, segments: Any, helpers: Any, tally: Any
) -> Any:
    """The table is swapped, then the pointers."""
    pointers: list[Any] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Merger, "_point", lambda _, *pointer: pointers.append(pointer))
        patched.setattr(failpoints, "hit", lambda *_: None)
        head = MERGE(self, live, head, partition, planned, segments, helpers, tally)
    for merged, pointer in pointers:
        failpoints.hit("merge-pointer", pointer.known.listed.key)
        self._point(merged, pointer)
    return head


MERGE = Merger._merge

SWITCHES = [
    Switch(
        "R13 a derived file goes when its head can be no head any more",
        {(sweep, "derived_head"): lambda key: 1 if "-d" in key else None},
        swept(sweeps.test_a_derived_file_goes_when_its_head_can_be_no_head_any_more),
    ),
    Switch(
        "R13 somebody may roll the table back to the head that a derived file was planned on",
        {(sweep, "_heads_to_be"): lambda head: {head.snapshot_id}},
        swept(sweeps.test_a_commit_that_lands_after_a_rollback_and_back_has_its_derived_file),
    ),
    Switch(
        "R13 what a copy put goes when the copy is over",
        {(sweep, "COPY_IS_OVER_SECONDS"): 0.0},
        swept(sweeps.test_what_a_crashed_copy_left_goes_after_its_deadline),
    ),
    Switch(
        "R13 kept snapshots keep their files",
        {(sweep, "named_paths"): lambda _: set()},
        swept(sweeps.test_a_derived_file_of_a_kept_snapshot_stays),
    ),
    Switch("R14 the pointers first, then the table", {(Merger, "_merge"): table_first}, killed_between_the_pointers),
    Switch("R14 a merged file is proven", {(merge, "prove"): lambda *_: None}, merged_wrongly),
    Switch(
        "R15 segments of one topic id only",
        {(listing, "index_prefix"): lambda _, *partition: INDEX_ROOT},
        created_again,
    ),
    Switch(
        "R15 a table of one topic id only",
        {(tables, "is_owner"): lambda *_: True},
        created_again,
    ),
]


def test_a_topic_created_again_has_segments_and_a_table_of_its_own(tmp_path: Path) -> None:
    """R15: the same name, offsets from 0 again, in the same store and catalog."""
    old = make_world(tmp_path)
    published(old, (3, 1, 4))
    new = World(old.store, old.catalog)
    new.copy(2)
    new.publish()
    assert new.offsets() == [0, 1]
    assert old.publish().files_added == 0
    assert old.offsets() == list(range(8))
    assert new.loaded().name() != old.loaded().name()
    old.check()
    new.check()


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.rule)
def test_a_rule_switched_off_turns_its_test_red(
    switch: Switch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        switch.test(tmp_path / "on", patched)
    for (owner, name), stand_in in switch.instead.items():
        monkeypatch.setattr(owner, name, stand_in)
    with pytest.MonkeyPatch.context() as patched, pytest.raises((AssertionError, pytest.fail.Exception)):
        switch.test(tmp_path / "off", patched)


def test_every_rule_beside_the_plan_has_a_switch() -> None:
    assert {switch.rule.split()[0] for switch in SWITCHES} == {"R13", "R14", "R15"}
