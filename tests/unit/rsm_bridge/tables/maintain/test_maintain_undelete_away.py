"""An undelete that is not in the table's head: nobody buries or reclaims it, status names it, another does it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from converter.types import SegmentMetadata
from iceberg_catalog import failpoints
from iceberg_catalog.errors import CatalogError
from rsm_bridge.errors import BridgeError
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.cures import commands
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.storage.segments.undelete_record import Undeleted, UndeleteRecord, take_back
from rsm_bridge.storage.tombstone import is_tombstone
from rsm_bridge.tables.maintain.topic_forget import Wish, forget
from rsm_bridge.tables.maintain.undelete import Restored, RestoringRun, undelete
from rsm_bridge.tables.publish.table_run import RetryRunError
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.support.killed import KilledError, die_at
from tests.support.status_facts import kafka
from tests.worlds.foreign_support import set_head
from tests.worlds.maintain_support import DAY, World, make_world, published
from tests.worlds.status_support import in_kafka, looked, of, persons

NAMED = ("undelete_not_in_table", None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, graces=Graces(600.0, float(DAY)))


def back(world: World) -> Restored:
    return undelete(world.store, world.catalog, world.topic_id, world.context)


def head(world: World) -> int:
    snapshot = world.loaded().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def urgent(world: World, folder: Path) -> set[tuple[str, int | None]]:
    starts = {0: {"log_start": world.log().end}}
    return persons(looked(folder, in_kafka(world, starts, **{"retention.ms": "-1"})))


def deleted(world: World) -> list[SegmentMetadata]:
    """Four segments, all of them deleted by mistake."""
    segments = published(world, (3,) * 4)
    world.delete(*segments)
    world.publish()
    assert world.offsets() == []
    return segments


def days_pass(world: World) -> None:
    """Every grace ends, with runs of publisher, reclaimer and maintenance in between."""
    for _ in range(3):
        world.reclaim(world.publish())
        world.maintain()
        world.later(2 * DAY)


def refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RetryRunError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(RestoringRun, "_commit", refuse)
        with pytest.raises(RetryRunError, match="run it again"):
            back(world)


def rolled_back(world: World, _: pytest.MonkeyPatch) -> None:
    before = head(world)
    back(world)
    world.catalog.commit_table(world.loaded(), (), set_head(before))


def died_at(point: str, nth: int = 1) -> Any:
    def die(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            die_at(patch, point, nth)
            with pytest.raises(KilledError):
                back(world)

    return die


LOST = [
    pytest.param(rolled_back, id="rolled back"),
    pytest.param(refused, id="refused"),
    pytest.param(died_at("undelete-recorded"), id="died recorded"),
    pytest.param(died_at("undelete-turn", 2), id="died turning"),
    pytest.param(died_at("undelete-turned"), id="died turned"),
]


@pytest.mark.parametrize("lose", LOST)
def test_it_is_named_kept_and_done_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Any
) -> None:
    deleted(world)
    lose(world, monkeypatch)
    world.publish()
    assert world.offsets() == []
    assert NAMED in urgent(world, tmp_path)
    (finding,) = of(looked(tmp_path), CauseCode.UNDELETE_NOT_IN_TABLE)  # Kafka is not asked for it
    assert commands(finding) == ["tierberg undelete orders"]
    days_pass(world)
    assert len(world.stored("data")) == 4
    assert NAMED in urgent(world, tmp_path)
    done = back(world)
    assert (done.segments, done.rows) == (4, 12)
    assert world.offsets() == list(range(12))
    assert urgent(world, tmp_path) == set()
    days_pass(world)
    assert world.offsets() == list(range(12))
    assert urgent(world, tmp_path) == set()
    world.check()


@pytest.mark.parametrize("lose", LOST)
def test_it_can_be_taken_back(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Any) -> None:
    deleted(world)
    lose(world, monkeypatch)
    take_back(world.store, world.topic_id)
    world.publish()
    assert all(is_tombstone(world.store.read(key).data) for key in world.stored("index"))
    assert not UndeleteRecord(world.store, world.topic_id).read().lowest
    assert NAMED not in urgent(world, tmp_path)


@pytest.mark.parametrize("lose", LOST[2:4])
def test_a_mass_delete_stays_one_while_nothing_has_come_back(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Any
) -> None:
    deleted(world)
    lose(world, monkeypatch)
    assert ("mass_delete", None) in urgent(world, tmp_path)


def test_one_that_died_before_it_turned_anything_and_is_taken_back_excuses_no_mass_delete(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted(world)
    died_at("undelete-recorded")(world, monkeypatch)
    take_back(world.store, world.topic_id)
    assert urgent(world, tmp_path) == {("mass_delete", None)}
    days_pass(world)
    assert world.stored() == []


@pytest.mark.parametrize("undone", [False, True])
def test_a_table_that_is_rolled_back_into_the_midst_of_it_gets_every_row_that_is_live(
    world: World, tmp_path: Path, *, undone: bool
) -> None:
    segments = published(world, (3,) * 4)
    world.delete(*segments[:2])
    world.publish()
    back(world)
    snapshot = world.loaded().current_snapshot()
    assert snapshot is not None
    assert snapshot.parent_snapshot_id is not None
    world.catalog.commit_table(world.loaded(), (), set_head(snapshot.parent_snapshot_id))
    assert world.offsets() == []  # the live rows left for a moment, to come again above what was deleted
    if undone:
        take_back(world.store, world.topic_id)
    world.publish()
    assert world.offsets() == list(range(6 if undone else 0, 12))
    days_pass(world)
    assert world.offsets() == list(range(6 if undone else 0, 12))
    assert urgent(world, tmp_path) == set()
    world.check()


def test_a_deletion_that_kafka_makes_later_takes_it_along_in_a_table_that_was_rolled_back_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted(world)
    later = world.copy(2)
    world.publish()
    rolled_back(world, monkeypatch)
    world.publish()
    assert NAMED in urgent(world, tmp_path)
    world.delete(later)
    world.publish()
    assert NAMED not in urgent(world, tmp_path)
    world.maintain()
    assert all(is_tombstone(world.store.read(key).data) for key in world.stored("index"))


def test_one_that_landed_long_ago_and_that_retention_passes_is_nobodys_matter(world: World, tmp_path: Path) -> None:
    segments = published(world, (3, 3, 3, 3))
    world.delete(segments[0])
    world.publish()
    back(world)
    for number in (1, 2):
        days_pass(world)
        assert urgent(world, tmp_path) == set()
        world.delete(segments[number])
        world.publish()
        assert NAMED not in urgent(world, tmp_path)
    world.maintain()
    assert NAMED not in urgent(world, tmp_path)
    assert world.offsets() == [9, 10, 11]


def test_one_that_died_when_its_rows_were_back_is_ended_by_maintenance(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted(world)
    died_at("undelete-committed")(world, monkeypatch)
    assert urgent(world, tmp_path) == set()
    record = UndeleteRecord(world.store, world.topic_id)
    assert record.read().lowest
    world.maintain()
    assert not record.read().lowest
    world.delete(world.copy(2))
    world.publish()
    assert NAMED not in urgent(world, tmp_path)


def test_what_retention_has_passed_meanwhile_comes_back_with_the_rest(world: World) -> None:
    segments = published(world, (3, 3, 3, 3))
    world.delete(*segments[:2])
    world.publish()
    back(world)
    world.delete(segments[2])
    world.publish()
    assert world.offsets() == [9, 10, 11]
    done = back(world)
    assert (done.segments, dict(done.lowest)) == (3, {0: 0})
    assert world.offsets() == list(range(12))
    with pytest.raises(BridgeError, match="no deleted segment"):
        back(world)


def test_a_floor_that_was_higher_than_what_came_back(world: World, tmp_path: Path) -> None:
    """The highest deletion was reclaimed before: the record tells how high the floor was."""
    segments = published(world, (3, 3, 3, 3, 3, 3, 3))
    world.delete(*segments[:4])
    world.publish()
    world.later(3600)
    world.delete(segments[4])
    world.publish()
    world.later(3600)
    world.reclaim(world.publish())
    assert len(world.stored("data")) == 6
    before = head(world)
    back(world)
    assert world.offsets() == [*range(12), *range(15, 21)]
    world.catalog.commit_table(world.loaded(), (), set_head(before))
    world.publish()
    assert NAMED in urgent(world, tmp_path)
    world.maintain()
    back(world)
    assert world.offsets() == [*range(12), *range(15, 21)]


def test_rows_that_would_be_lost_are_foreseen(world: World, tmp_path: Path) -> None:
    """A copy that Kafka withdrew has rows in the table: it has to be made again first."""
    segments = published(world, (3, 3, 3))
    world.withdraw(segments[2])
    world.delete(*segments[:2])
    world.publish()
    assert world.offsets() == [6, 7, 8]
    with pytest.raises(BridgeError, match="offsets 6 to 8") as caught:
        back(world)
    assert caught.value.kind == "bad_request"
    assert UndeleteRecord(world.store, world.topic_id).read() == Undeleted({})
    assert all(is_tombstone(world.store.read(key).data) for key in world.stored("index"))
    assert NAMED not in urgent(world, tmp_path)
    world.copy_range(6, 8)
    back(world)
    assert world.offsets() == list(range(9))


def test_what_is_taken_back_meanwhile_is_not_said_to_be_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted(world)
    hit = failpoints.hit

    def taken(point: str, about: str = "") -> None:
        if point == "undelete-turned":
            assert take_back(world.store, world.topic_id) == 4
        hit(point, about)

    monkeypatch.setattr(failpoints, "hit", taken)
    done = back(world)
    assert (done.segments, done.rows) == (0, 0)
    world.publish()
    assert world.offsets() == []


def test_what_lies_below_a_segment_that_is_being_reclaimed_comes_back_when_that_is_gone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = published(world, (3, 3, 3, 3, 3, 3, 3))
    world.delete(*segments[:4])
    world.publish()
    world.later(3600)
    world.delete(segments[4])
    world.publish()
    world.later(3600)
    with monkeypatch.context() as patch:
        die_at(patch, "reclaim-objects")
        with pytest.raises(KilledError):
            world.reclaim(world.publish())
    done = back(world)
    assert (done.segments, dict(done.lowest)) == (0, {0: 15})
    assert NAMED in urgent(world, tmp_path)
    days_pass(world)
    assert NAMED in urgent(world, tmp_path)
    assert back(world).segments == 4
    assert world.offsets() == [*range(12), *range(15, 21)]
    assert NAMED not in urgent(world, tmp_path)


def test_nothing_is_turned_while_the_catalog_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted(world)

    def away(*_: Any) -> None:
        raise OSError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(world.catalog, "load_table", away)
        with pytest.raises((CatalogError, OSError), match="connection refused"):
            back(world)
    assert UndeleteRecord(world.store, world.topic_id).read() == Undeleted({})
    assert all(is_tombstone(world.store.read(key).data) for key in world.stored("index"))


def test_an_archive_that_was_rolled_back_has_its_rows(world: World, tmp_path: Path) -> None:
    world.rule(retention=lambda _: "keep")
    segments = published(world, (3,) * 4)
    world.delete(*segments[:3])
    world.publish()
    before = head(world)
    undelete(world.store, world.catalog, world.topic_id, world.publisher.context)
    world.catalog.commit_table(world.loaded(), (), set_head(before))
    world.publish()
    assert world.offsets() == list(range(12))
    rules = [{"pattern": ".*", "table_retention": "keep"}]
    assert persons(looked(tmp_path, in_kafka(world, {0: {"log_start": 9}}), topics=rules)) == set()


def test_a_table_made_anew_has_it_and_then_it_is_over(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted(world)
    died_at("undelete-turned")(world, monkeypatch)
    world.catalog.drop_table(world.loaded().name())
    world.publish()
    assert world.offsets() == list(range(12))
    assert NAMED not in urgent(world, tmp_path)
    world.maintain()
    assert not UndeleteRecord(world.store, world.topic_id).read().lowest
    world.delete(world.copy(2))
    world.publish()
    assert NAMED not in urgent(world, tmp_path)


@pytest.mark.parametrize("lose", LOST[2:])
def test_a_topic_that_is_forgotten_ends_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Any
) -> None:
    deleted(world)
    lose(world, monkeypatch)
    other = World(world.store, world.catalog, topic="other")
    published(other)
    backend, wish = open_backend(None, tmp_path), Wish("orders", None, yes=True)
    forget(backend, wish, lambda _: kafka(in_kafka(other)), lambda _: None, lambda _: None)
    assert NAMED not in persons(looked(tmp_path, in_kafka(other)))
    days_pass(world)
    assert world.stored() == []
