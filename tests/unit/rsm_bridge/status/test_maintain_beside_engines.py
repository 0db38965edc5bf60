"""What adds or swaps rows leaves alone what engines did: no row comes twice, and none that was deleted comes back."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from iceberg_catalog.commit.commit import commit
from iceberg_catalog.commit.foreign import TAG, foreign_commits
from iceberg_catalog.commit.foreign_files import foreign_files, rows_deleted
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.plan.merge import MergeLimits
from rsm_bridge.errors import BridgeError
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.tables.maintain import merge as merging
from rsm_bridge.tables.maintain import undelete
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.catalog_support import Place
from tests.worlds.foreign_support import delete_by_position, drop_tag, insert, rewrite, roll_back
from tests.worlds.maintain_support import DAY, World, make_world, published
from tests.worlds.status_support import in_kafka, looked
from tierberg.cli import app

LIMITS = MergeLimits(small_bytes=2**20, target_bytes=2**24, files_min=3, files_max=100, age_ms=0, span_ms=DAY * 1000)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "data", graces=Graces(600.0, float(DAY)), merging=LIMITS)


def place(world: World) -> Place:
    return Place(world.catalog, world.loaded(), Path("/unused"))


def world_folder(world: World) -> Path:
    return Path(world.store.uri("x").removeprefix("file://")).parents[1]


def run(world: World, *words: str) -> Result:
    """A command, as a process beside the bridges."""
    data = world_folder(world)
    config = data.parent / "tierberg.yaml"
    config.write_text(f"data_dir: {data}\ntopics: []\nreclaim_grace: 10m\nmerge: {{files_min: 3, age: 0s}}\n")
    return CliRunner().invoke(app, [*words, "--config", str(config)])


def delete_rows(world: World, first: int, positions: list[int], partition: int = 0) -> None:
    """Position deletes in the file that begins at an offset."""
    file = next(item for item in world.observe().head.files if (item.partition, item.first) == (partition, first))  # type: ignore[union-attr]
    delete_by_position(place(world), file.path, positions, partition)


def accepted(world: World) -> None:
    """Whoever drops the tag takes the table as it is; the next commit forgets what was before."""
    world.copy(1, 1)
    world.publish()
    drop_tag(place(world), TAG)
    world.copy(1, 1)
    world.publish()
    assert foreign_commits(world.loaded()) is None


def verbatim_below_the_frontier(world: World) -> None:
    """Offsets 0-8; 3 to 5 are tiered and not in the table."""
    vars(world.store)["single_process"] = False
    world.copy(3)
    log = world.log()
    first = log.end
    log.write(3)
    world.copy_range(first, log.end - 1, mode="verbatim")
    world.copy(3)
    world.publish()
    assert world.offsets() == [0, 1, 2, 6, 7, 8]


def since(world: World) -> int:
    found = foreign_commits(world.loaded())
    assert found is not None
    return found.since


def put_back(world: World) -> None:
    roll_back(place(world), since(world))
    world.publish()


def stored(world: World) -> dict[str, bytes]:
    return {key: world.store.read(key).data for key in world.stored("index")}


def test_an_undelete_waits_until_the_table_is_put_back(world: World) -> None:
    segments = published(world)
    rewrite(world.loaded())
    world.copy(3)
    world.publish()
    world.delete(segments[0])
    world.publish()
    before, ours = stored(world), since(world)
    said = run(world, "undelete", "orders")
    assert (said.exit_code, stored(world)) == (1, before)
    assert f"rollback_to_snapshot to {ours}, then run this again" in said.output
    assert world.offsets() == list(range(12))
    put_back(world)
    assert world.offsets() == list(range(3, 12))
    assert run(world, "undelete", "orders").exit_code == 0
    assert world.offsets() == list(range(12))
    world.check()


@pytest.mark.parametrize("what", ["rewrite", "merge-on-read delete"])
def test_where_others_were_accepted_an_undelete_needs_a_table_made_anew(world: World, what: str) -> None:
    segments = published(world)
    if what == "rewrite":
        rewrite(world.loaded())
    else:
        delete_rows(world, 3, [0])
    accepted(world)
    world.delete(segments[0])
    world.publish()
    before = stored(world)
    said = run(world, "undelete", "orders")
    assert (said.exit_code, stored(world)) == (1, before)
    assert "Drop the table by an engine, without PURGE" in said.output
    world.catalog.drop_table(world.loaded().name())
    world.publish()
    assert world.offsets() == list(range(3, 9))
    assert run(world, "undelete", "orders").exit_code == 0
    assert world.offsets() == list(range(9))


def test_accepted_files_of_another_partition_refuse_nothing(world: World) -> None:
    segments = published(world)
    world.copy(3, 1)
    world.publish()
    insert(world.loaded(), range(50, 53), partition=1)
    accepted(world)
    world.delete(segments[0])
    world.publish()
    assert run(world, "undelete", "orders").exit_code == 0
    assert world.offsets() == list(range(9))


def test_status_names_first_what_has_to_be_done_first(world: World) -> None:
    segments = published(world)
    insert(world.loaded(), range(900, 903), partition=1)
    world.delete(*segments)
    world.publish()
    kafka = in_kafka(world, {0: {"log_start": 9}}, **{"retention.ms": "-1"})
    urgent = [item for item in looked(world_folder(world), kafka).all_findings() if item.level is Level.PERSON]
    found = [item.code for item in urgent]
    assert found.index(CauseCode.FOREIGN_COMMITS) < found.index(CauseCode.MASS_DELETE)


def test_an_engine_that_commits_in_the_middle_of_an_undelete_refuses_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = published(world)
    world.delete(segments[0])
    world.publish()
    monkeypatch.setattr(undelete, "refuse_table_beside_engines", lambda *_: rewrite(world.loaded()))
    with pytest.raises(BridgeError, match="others committed") as raised:
        undelete.undelete(world.store, world.catalog, world.topic_id, world.context)
    assert raised.value.kind == "bad_request"
    assert world.offsets() == list(range(3, 9))


def test_a_requeue_waits_until_the_table_is_put_back(world: World) -> None:
    """And so nothing of it is lost by putting the table back."""
    verbatim_below_the_frontier(world)
    insert(world.loaded(), range(900, 903))
    before = stored(world)
    for words in (("requeue", "orders"), ("requeue",), ("requeue", "--dry-run")):
        said = run(world, *words)
        assert (said.exit_code, stored(world)) == (1, before)
        assert "rollback_to_snapshot" in said.output
    put_back(world)
    assert run(world, "requeue", "orders").exit_code == 0
    assert world.offsets() == list(range(9))


@pytest.mark.parametrize("kept", [False, True])
def test_a_requeue_that_is_run_again_beside_a_rewrite_adds_nothing(world: World, kept: bool) -> None:
    verbatim_below_the_frontier(world)
    assert run(world, "requeue", "orders").exit_code == 0
    rewrite(world.loaded())
    if kept:
        accepted(world)
    said = run(world, "requeue", "orders")
    assert said.exit_code == 1
    assert ("Drop the table" if kept else "rollback_to_snapshot") in said.output
    assert world.offsets() == list(range(9))


def test_one_topics_engine_does_not_hold_up_the_requeue_of_others(world: World) -> None:
    verbatim_below_the_frontier(world)
    insert(world.loaded(), range(900, 903))
    other = World(world.store, world.catalog, topic="zebra")
    verbatim_below_the_frontier(other)
    said = run(world, "requeue")
    assert said.exit_code == 1
    assert "orders: stays as it is: others committed append" in said.output
    assert other.offsets() == list(range(9))


def test_a_requeue_with_nothing_to_add_says_nothing_of_others(world: World) -> None:
    verbatim_below_the_frontier(world)
    assert run(world, "requeue", "orders").exit_code == 0
    insert(world.loaded(), range(900, 903))
    assert run(world, "requeue", "orders").exit_code == 0
    assert run(world, "requeue").exit_code == 0


@pytest.mark.parametrize("kept", [False, True])
def test_deleted_rows_stay_deleted_while_small_files_are_merged(world: World, kept: bool) -> None:
    published(world, (3, 3, 3))
    for _ in range(3):
        world.copy(3, 1)
    world.publish()
    delete_rows(world, 3, [0, 1])
    if kept:
        accepted(world)
    world.later(61)
    told = world.maintain(dry_run=True)
    assert (told.unmerged, told.merged) == (3, 5 if kept else 3)
    done = world.maintain()
    assert (done.unmerged, done.merged) == (3, 5 if kept else 3)
    assert any("small files not merged: 3" in line for line in done.lines())
    assert world.offsets() == [0, 1, 2, 5, 6, 7, 8]
    world.check()
    if not kept:
        put_back(world)
        assert world.maintain().merged == 6
        assert world.offsets() == list(range(9))


def test_rows_that_are_deleted_while_a_merge_is_under_way_stay_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(world)
    engine = [3]

    def slow(*request: object, **options: object) -> object:
        while engine:
            delete_rows(world, engine.pop(), [0])
        return commit(*request, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "commit", slow)
    world.later(61)
    assert world.maintain().merged == 0
    assert world.offsets() == [0, 1, 2, 4, 5, 6, 7, 8]
    world.check()


def test_whose_rows_foreign_files_may_be(world: World) -> None:
    published(world)
    world.copy(3, 1)
    world.publish()
    delete_rows(world, 3, [0])
    insert(world.loaded(), range(50, 53), partition=1)
    head = world.observe().head
    assert head is not None
    found = foreign_files(head)
    assert sorted((file.deletes, file.partition) for file in found) == [(False, 1), (True, 0)]
    assert (rows_deleted(found, 0), rows_deleted(found, 1)) == (True, False)
    with world.loaded().update_spec() as update:
        update.remove_field("_kafka_partition")
    insert(world.loaded(), range(60, 63), partition=1)
    head = LiveFiles().read(world.loaded())
    assert None in {file.partition for file in foreign_files(head)}


class Beside:
    """Bridges, Kafka, an operator and engines on one partition, in any order."""

    def __init__(self, world: World, chosen: random.Random) -> None:
        self.world, self.chosen = world, chosen
        vars(world.store)["single_process"] = False
        self.live = [world.copy()]
        world.publish()
        self.gone: set[int] = set()  # what an engine has deleted

    def copy(self) -> None:
        self.live.append(self.world.copy(self.chosen.randint(1, 4)))

    def verbatim(self) -> None:
        log = self.world.log()
        first = log.end
        log.write(2)
        self.live.append(self.world.copy_range(first, log.end - 1, mode="verbatim"))

    def retention(self) -> None:
        if len(self.live) > 1:
            self.world.delete(self.live.pop(0))

    def publish(self) -> None:
        self.world.publish()

    def maintain(self) -> None:
        self.world.later(61)
        self.world.maintain()

    def undelete(self) -> None:
        assert run(self.world, "undelete", "orders").exit_code in (0, 1, 2)

    def requeue(self) -> None:
        assert run(self.world, "requeue", "orders").exit_code in (0, 1)

    def rewrite(self) -> None:
        if self.world.offsets():
            rewrite(self.world.loaded())

    def delete_a_row(self) -> None:
        head = self.world.observe().head
        files = [] if head is None else [file.first for file in head.files if file.first not in self.gone]
        if files:
            first = self.chosen.choice(files)
            delete_rows(self.world, first, [0])
            self.gone.add(first)

    def put_back(self) -> None:
        if foreign_commits(self.world.loaded()) is not None:
            roll_back(place(self.world), since(self.world))
            self.gone.clear()

    def accept(self) -> None:
        if TAG in self.world.loaded().metadata.refs:
            drop_tag(place(self.world), TAG)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_comes_twice_or_back_whatever_is_done_beside_engines(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    pairs = replace(LIMITS, files_min=2)
    made = Beside(make_world(tmp_path / "data", graces=Graces(600.0, float(DAY)), merging=pairs), chosen)
    bridges = (made.copy, made.copy, made.publish, made.publish, made.maintain, made.verbatim, made.retention)
    others = (made.undelete, made.requeue, made.rewrite, made.delete_a_row, made.put_back, made.accept)
    for _ in range(30):
        chosen.choice((*bridges, *others))()
        found = made.world.offsets()
        assert len(found) == len(set(found))
        assert not made.gone & set(found)
    made.publish()
    made.world.check()
