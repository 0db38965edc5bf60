"""`undelete` brings rows back by a recorded rewind; `table drop` ends a table that has nothing left."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from iceberg_catalog import failpoints
from iceberg_catalog.tables.tables import stamped_format
from rsm_bridge.errors import BridgeError, StoreError
from rsm_bridge.limits import COPY_SECONDS_MAX
from rsm_bridge.metrics.tally import Tally
from rsm_bridge.storage.keys import IndexKey, index_key
from rsm_bridge.storage.segments.undelete_record import Undeleted, UndeleteRecord, decode, take_back
from rsm_bridge.storage.tombstone import is_tombstone
from rsm_bridge.tables.maintain.drop_table import drop_table
from rsm_bridge.tables.maintain.undelete import Restored, RestoringRun, undelete
from rsm_bridge.tables.maintain.undelete_away import covered
from rsm_bridge.tables.publish.table_run import RetryRunError
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.worlds.maintain_support import DAY, NAMESPACE, World, make_world, published
from tierberg.cli import app


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, graces=Graces(600.0, float(DAY)))


def back(world: World) -> Restored:
    return undelete(world.store, world.catalog, world.topic_id, world.context)


def test_a_deleted_topic_comes_back_whole(world: World) -> None:
    world.delete(*published(world))
    world.reclaim(world.publish())
    assert world.offsets() == []
    done = back(world)
    assert (done.segments, done.rows, dict(done.lowest)) == (3, 9, {0: 0})
    assert world.offsets() == list(range(9))
    world.check()
    assert not any(is_tombstone(world.store.read(key).data) for key in world.stored("index"))


@pytest.mark.parametrize("keys", [1, 2, 5, 50])
def test_a_topic_whose_listing_has_several_pages_comes_back_once(
    world: World, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    """A run of the publisher lists such a topic from its frontiers on first, and below these an undelete works."""
    monkeypatch.setattr("rsm_bridge.storage.segments.listing.LIST_PAGE_KEYS", keys)
    monkeypatch.setattr("rsm_bridge.tables.publish.planning.INDEX_READS_MAX", 2)
    segments = published(world, (3,) * 9)
    world.delete(*segments[:2])
    world.publish()
    done = back(world)
    assert (done.segments, done.rows) == (2, 6)
    assert world.offsets() == list(range(27))
    world.check()


def test_what_was_published_beside_it_stays_once(world: World) -> None:
    segments = published(world, (3, 3, 3, 3))
    world.delete(*segments[:3])
    world.publish()
    assert world.offsets() == [9, 10, 11]
    world.copy(2)
    world.publish()
    back(world)
    assert world.offsets() == list(range(14))
    world.check()


def test_the_commit_says_where_readers_must_go_back_to(world: World) -> None:
    segments = published(world)
    world.delete(*segments[1:])
    world.publish()
    back(world)
    snapshot = world.loaded().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties["tierberg.rewind.0"] == "3"
    state = world.observe().states[0]
    assert (state.frontier, state.floor) == (9, 3)


def test_publishing_goes_on_and_changes_nothing_more(world: World) -> None:
    world.delete(*published(world))
    world.publish()
    back(world)
    result = world.publish()
    assert (result.files_added, result.files_removed) == (0, 0)
    world.copy(2)
    world.publish()
    assert world.offsets() == list(range(11))


def test_retention_that_goes_on_takes_them_out_again(world: World) -> None:
    segments = published(world, (3, 3, 3, 3))
    world.delete(*segments[:3])
    world.publish()
    back(world)
    world.delete(segments[3])
    world.publish()
    assert world.offsets() == []


def test_partitions_that_lost_nothing_are_left_alone(world: World) -> None:
    first = world.copy(3)
    world.copy(3, partition=1)
    world.publish()
    world.delete(first)
    world.publish()
    before = world.observe().states[1]
    assert dict(back(world).lowest) == {0: 0}
    assert world.observe().states[1] == before
    assert (world.offsets(0), world.offsets(1)) == ([0, 1, 2], [0, 1, 2])


def test_what_is_being_reclaimed_cannot_come_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.delete(*published(world))
    world.publish()
    world.later(2 * DAY)

    def killed(_: Any) -> None:
        raise StoreError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "delete_many", killed)
        with pytest.raises(StoreError):
            world.reclaim()
    assert back(world).segments == 0
    assert world.offsets() == []
    world.check()


def test_a_reclaimer_that_judged_before_it_finds_no_tombstone(world: World) -> None:
    world.delete(*published(world))
    result = world.publish()
    back(world)
    world.later(2 * DAY)
    world.reclaim(result)
    world.check()
    assert world.offsets() == list(range(9))


def test_a_crash_before_the_commit_is_made_up_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.delete(*published(world))
    world.publish()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RestoringRun, "restore", killed)
        with pytest.raises(KeyboardInterrupt):
            back(world)
    world.publish()
    assert world.offsets() == []
    done = back(world)
    assert (done.segments, done.rows) == (3, 9)
    assert world.offsets() == list(range(9))
    assert not UndeleteRecord(world.store, world.topic_id).read().lowest


def test_a_publisher_that_is_faster_is_planned_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.delete(*published(world))
    world.publish()
    commit = RestoringRun._commit
    refused: list[bool] = []

    def slow(self: RestoringRun, *request: Any) -> Any:
        if not refused:
            refused.append(True)
            world.copy(2)
            world.publish()
        return commit(self, *request)

    monkeypatch.setattr(RestoringRun, "_commit", slow)
    back(world)
    assert world.offsets() == list(range(11))
    world.check()


def test_a_commit_that_never_lands_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.delete(*published(world))
    world.publish()

    def refused(*_: Any) -> None:
        raise RetryRunError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(RestoringRun, "_commit", refused)
        with pytest.raises(RetryRunError, match="run it again"):
            back(world)
    back(world)
    assert world.offsets() == list(range(9))


def test_nothing_to_bring_back_says_so(world: World) -> None:
    published(world)
    with pytest.raises(BridgeError) as caught:
        back(world)
    assert caught.value.kind == "not_found"


def test_rows_no_segment_has_are_not_given_up(world: World) -> None:
    """An archive: the segment of a published file has been reclaimed; going back below it would lose the file."""
    segments = published(world)
    world.delete(segments[0])
    world.publish()
    world.store.delete_many([str(index_key(segments[1]))])
    with pytest.raises(BridgeError, match="offsets 3 to 5"):
        back(world)
    assert world.offsets() == list(range(3, 9))
    world.check()


def test_a_record_is_widened_not_forgotten(world: World) -> None:
    record = UndeleteRecord(world.store, world.topic_id)
    assert record.widen({}, frozenset()) == Undeleted({})
    a, b = (
        str(IndexKey(topic_id=world.topic_id, partition=0, last=9, base=0, segment_id=bytes([number]) * 16))
        for number in range(2)
    )
    assert record.widen({0: 5, 1: 7}, frozenset({a})) == Undeleted({0: 5, 1: 7}, frozenset({a}))
    assert record.widen({0: 9, 2: 1}, frozenset({b})) == Undeleted({0: 5, 1: 7, 2: 1}, frozenset({a, b}))
    record.finish({0: 12})
    record.forget(frozenset({a}))
    assert record.read() == Undeleted({}, frozenset({b}), {0: 12})
    assert decode(record.read().encode(), world.topic_id) == record.read()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"lowest": {"a": 1}, "restored": []}',
        b'{"lowest": {}}',
        b'{"lowest": {}, "restored": [], "floors": {"0": -1}}',
    ],
)
def test_a_damaged_record_is_named(data: bytes) -> None:
    with pytest.raises(BridgeError) as caught:
        decode(data, bytes(16))
    assert caught.value.kind == "corrupt_object"


def test_what_retention_has_passed_is_deleted_by_maintenance(world: World) -> None:
    """Kafka has forgotten the restored segments: nobody else would."""
    segments = published(world, (3, 3, 3, 3))
    world.delete(*segments[:3])
    world.publish()
    back(world)
    world.maintain()
    assert world.offsets() == list(range(12))
    world.delete(segments[3])
    world.publish()
    world.maintain()
    assert all(is_tombstone(world.store.read(key).data) for key in world.stored("index"))
    assert len(UndeleteRecord(world.store, world.topic_id).read().restored) == 3  # these went by us, not by Kafka
    world.later(2 * DAY)
    world.reclaim(world.publish())
    assert world.stored() == []
    world.maintain()
    assert not UndeleteRecord(world.store, world.topic_id).read().restored


def test_an_undelete_can_be_taken_back(world: World) -> None:
    segments = published(world)
    world.delete(*segments[:2])
    world.publish()
    back(world)
    assert take_back(world.store, world.topic_id) == 2
    world.publish()
    assert world.offsets() == [6, 7, 8]
    assert take_back(world.store, world.topic_id) == 0
    back(world)
    assert world.offsets() == list(range(9))


@pytest.mark.parametrize("step", ["undelete-recorded", "undelete-turn", "undelete-turned", "undelete-committed"])
@pytest.mark.parametrize("calls", [1, 2])
def test_one_that_is_taken_back_meanwhile_can_be_taken_back_afterwards(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, calls: int
) -> None:
    """What comes back is recorded whoever else has closed the record: else nobody would ever delete it."""
    world.delete(*published(world)[:2])
    world.publish()
    hits: list[str] = []

    def meet(name: str, detail: str = "") -> None:
        if name == step:
            hits.append(detail)
            if len(hits) == calls:
                take_back(world.store, world.topic_id)

    monkeypatch.setattr(failpoints, "hit", meet)
    back(world)
    assert hits
    take_back(world.store, world.topic_id)
    world.publish()
    assert world.offsets() == [6, 7, 8]


def test_a_taking_back_that_looked_before_an_undelete_forgets_nothing_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.delete(*published(world)[:2])
    world.publish()
    UndeleteRecord(world.store, world.topic_id).widen({0: 0}, frozenset())
    close = UndeleteRecord.close
    undeletes: list[Restored] = []

    def late(record: UndeleteRecord, partitions: frozenset[int]) -> None:
        if not undeletes:
            undeletes.append(back(world))
        close(record, partitions)

    monkeypatch.setattr(UndeleteRecord, "close", late)
    take_back(world.store, world.topic_id)
    assert undeletes
    take_back(world.store, world.topic_id)
    world.publish()
    assert world.offsets() == [6, 7, 8]


def test_covered_finds_holes(world: World) -> None:
    published(world)
    live = world.observe().segments
    assert covered(0, 8, live)
    assert not covered(0, 9, live)
    assert not covered(0, 8, [item for item in live if item.key.base != 3])


def drop(world: World, name: str = "orders") -> Tally:
    tally = Tally()
    drop_table(world.store, world.catalog, NAMESPACE, name, tally)
    return tally


def test_an_empty_table_is_dropped_with_its_states_and_metadata(world: World) -> None:
    world.delete(*published(world))
    world.publish()
    world.later(2 * DAY)
    world.reclaim()
    folder = Path(world.loaded().metadata_location.removeprefix("file://")).parent
    tally = drop(world, f"{NAMESPACE}.orders")
    assert world.table() is None
    assert tally.objects["state"] >= 1
    assert not list(world.store.list_after("state/"))
    assert not list(folder.iterdir())


def killed(point: str) -> Any:
    """A process that dies at a point, as far as one process can show it."""
    return patch.dict(failpoints._faults, {point: "raise-once"})


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("point", ["before-drop", "after-drop"])
def test_a_drop_that_died_is_finished_by_the_next(world: World, point: str, told: bool) -> None:
    """Whether or not the catalog tells where its warehouse is: one over REST does not."""
    world.delete(*published(world))
    world.publish()
    world.later(2 * DAY)
    world.reclaim()
    folder = Path(world.loaded().metadata_location.removeprefix("file://")).parent
    with killed(point), pytest.raises(failpoints.InjectedFaultError):
        drop(world)
    assert list(world.store.list_after("state/"))
    if not told:
        del world.catalog.properties["warehouse"]
    tally = drop(world)
    assert tally.objects["state"] >= 1
    assert tally.objects["metadata"] >= 1
    assert world.table() is None
    assert not list(folder.iterdir())
    assert not [*world.store.list_after("state/"), *world.store.list_after("drop/")]
    with pytest.raises(BridgeError) as caught:
        drop(world)
    assert caught.value.kind == "not_found"


FOREIGN = (
    "{store}/index/0/0",
    "{warehouse}/kafka/other/metadata/x.avro",
    "{warehouse}/kafka/other/metadata/v1.metadata.json",
    "{warehouse}/kafka/orders/metadata/../../other/metadata/x.avro",
    "{warehouse}/kafka/orders/metadata/deeper/x.avro",
    "{warehouse}/kafka/orders/metadata/..",
    "{warehouse}/kafka/orders/metadata/",
    "file:///etc/passwd",
    "s3://bucket/x",
    "",
)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("location", FOREIGN)
def test_the_record_of_a_drop_removes_nobody_elses_files(world: World, location: str, told: bool) -> None:
    world.delete(*published(world))
    world.publish()
    world.later(2 * DAY)
    world.reclaim()
    folder = Path(world.loaded().metadata_location.removeprefix("file://")).parent
    with killed("after-drop"), pytest.raises(failpoints.InjectedFaultError):
        drop(world)
    (listed,) = world.store.list_after("drop/")
    path = Path(world.store.uri(listed.key).removeprefix("file://"))
    document = json.loads(path.read_bytes())
    victim = folder.parents[1] / "other" / "metadata" / "x.avro"
    victim.parent.mkdir(parents=True)
    victim.write_bytes(b"of another table")
    head = max(folder.glob("*.metadata.json")).read_text()
    (victim.parent / "v1.metadata.json").write_text(head.replace(document["table_uuid"], str(uuid.uuid4())))
    named = location.format(store=world.store.root_uri, warehouse=folder.parents[2].as_uri())
    path.write_text(json.dumps(document | {"metadata": {**document["metadata"], named: 1}}))
    if not told:
        del world.catalog.properties["warehouse"]
    with pytest.raises(BridgeError, match="in no folder") as refused:
        drop(world)
    assert refused.value.kind == "corrupt_object"
    assert victim.read_bytes() == b"of another table"
    assert list(world.store.list_after("state/"))  # nothing was removed
    assert list(folder.iterdir())
    path.write_text(json.dumps(document))
    drop(world)
    assert not list(folder.iterdir())


def test_the_record_of_an_undelete_deletes_no_other_topics_segments(world: World) -> None:
    segments = published(world)
    other = World(world.store, world.catalog, "other")
    own = UndeleteRecord(other.store, other.topic_id)
    world.store.put_if_absent(own.key, Undeleted({}, frozenset({str(index_key(segments[0]))})).encode())
    with pytest.raises(BridgeError, match="no index of topic id") as refused:
        take_back(other.store, other.topic_id)
    assert refused.value.kind == "corrupt_object"
    world.check()
    assert all(item.live for item in world.observe().segments)


def test_an_unfinished_drop_leaves_a_table_alone_that_was_only_renamed(world: World) -> None:
    world.delete(*published(world))
    world.publish()
    world.later(2 * DAY)
    world.reclaim()
    with killed("before-drop"), pytest.raises(failpoints.InjectedFaultError):
        drop(world)
    world.catalog.rename_table(f"{NAMESPACE}.orders", f"{NAMESPACE}.renamed")
    before = list(world.store.list_after("state/"))
    with pytest.raises(BridgeError) as caught:
        drop(world)
    assert caught.value.kind == "not_found"
    assert list(world.store.list_after("state/")) == before


def test_a_table_with_rows_is_not_dropped(world: World) -> None:
    published(world)
    with pytest.raises(BridgeError, match="has rows"):
        drop(world)
    assert world.offsets() == list(range(9))


def test_nor_one_whose_segments_kafka_still_has(world: World) -> None:
    segments = published(world)
    world.delete(*segments)
    world.publish()
    world.copy(2)
    with pytest.raises(BridgeError, match="still has 1 segments"):
        drop(world)


def test_nor_one_that_can_be_brought_back(world: World) -> None:
    world.delete(*published(world))
    world.publish()
    with pytest.raises(BridgeError, match="3 deleted segments"):
        drop(world)
    back(world)
    assert world.offsets() == list(range(9))


def test_nor_one_with_leftovers(world: World) -> None:
    world.delete(*published(world))
    world.publish()
    world.log().write(2)
    world.copy_range(9, 10, indexed=False)
    world.later(2 * DAY)
    world.reclaim()
    with pytest.raises(BridgeError, match="objects of topic orders"):
        drop(world)
    world.later(COPY_SECONDS_MAX)
    world.maintain()
    drop(world)


def test_a_foreign_table_and_an_absent_one_are_refused(world: World) -> None:
    published(world)
    with pytest.raises(BridgeError) as caught:
        drop(world, "elsewhere")
    assert caught.value.kind == "not_found"
    world.catalog.create_table((NAMESPACE, "foreign"), world.loaded().schema())
    with pytest.raises(BridgeError, match="no owner stamp"):
        drop(world, "foreign")


def test_a_table_that_is_made_for_them_is_as_the_settings_say(tmp_path: Path) -> None:
    """Bridges with these settings are to fill it afterwards."""
    data = tmp_path / "data"
    world = make_world(data, graces=Graces(600.0, float(DAY)))
    segments = published(world)
    world.delete(*segments[:2])
    world.publish()
    before = world.loaded().location()
    world.catalog.drop_table((NAMESPACE, "orders"))
    settings = tmp_path / "tierberg.yaml"
    rule = "{pattern: orders, value_format: string}"
    settings.write_text(f"data_dir: {data}\ncatalog: {{layout: inside}}\ntopics: [{rule}]\n")
    done = CliRunner().invoke(app, ["undelete", "orders", "--config", str(settings)])
    assert done.exit_code == 0, done.output
    table = world.loaded()
    assert stamped_format(table) == "string"
    assert world.offsets() == list(range(9))
    assert table.location() != before
    assert table.location().startswith(world.store.uri("data/"))


def test_a_damaged_record_of_another_drop_is_no_matter_of_this_table(world: World) -> None:
    world.delete(*published(world))
    world.publish()
    world.later(2 * DAY)
    world.reclaim()
    key = f"drop/{bytes(16).hex()}.json"
    assert world.store.put_if_absent(key, b"{")
    with pytest.raises(BridgeError, match=key) as absent:
        drop_table(world.store, world.catalog, NAMESPACE, "never", Tally())
    assert absent.value.kind == "not_found"
    with killed("after-drop"), pytest.raises(failpoints.InjectedFaultError):
        drop(world)
    drop(world)
    assert [listed.key for listed in world.store.list_after("drop/")] == [key]
