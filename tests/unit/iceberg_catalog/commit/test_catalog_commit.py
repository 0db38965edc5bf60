"""The commit: what lands, how its end is recognised, what stays on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Operation

from iceberg_catalog.commit import commit as commit_module
from iceberg_catalog.commit.commit import Change, Outcome, commit
from iceberg_catalog.commit.expire import expire
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.commit.state import StateRef
from iceberg_catalog.limits import SNAPSHOTS_KEPT_MAX
from tests.worlds.catalog_support import STATE, Place, make_place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


def publish(place: Place, change: Change, commit_id: str = "c", catalog: Any = None) -> Outcome:
    head = LiveFiles().read(place.load())
    return commit(catalog or place.catalog, head, change, STATE, commit_id=commit_id, as_of_ms=17)


def metadata_files(place: Place) -> set[str]:
    root = Path(place.table.location().removeprefix("file://")) / "metadata"
    return {path.name for path in root.iterdir() if path.suffix == ".avro"}


def operations(place: Place) -> list[Operation]:
    snapshots = sorted(place.load().metadata.snapshots, key=lambda s: s.sequence_number or 0)
    return [s.summary.operation for s in snapshots if s.summary is not None]


class Losing:
    """A catalog whose commit request gets lost: before it lands, or its reply after."""

    def __init__(self, place: Place, before: Exception | None = None, after: Exception | None = None) -> None:
        self.place, self.before, self.after = place, before, after
        self.requests = 0

    def commit_table(self, *args: Any) -> Any:
        self.requests += 1
        if self.before is not None:
            raise self.before
        response = self.place.catalog.commit_table(*args)
        if self.after is not None:
            raise self.after
        return response

    def load_table(self, identifier: Any) -> Any:
        return self.place.catalog.load_table(identifier)


def test_rows_are_read_by_pyiceberg_duckdb_and_polars(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    outcome = publish(place, Change(append=(place.write(0, 9), place.write(10, 14, epoch=3), place.write(0, 4, 1))))
    assert outcome.kind == "committed"
    assert place.offsets(0) == list(range(15))
    assert place.offsets(1) == list(range(5))
    table = place.load()
    connection = table.scan().to_duckdb("orders")
    query = "select count(*), sum(_kafka_offset), count(_kafka_key), sum(len(_kafka_headers)) from orders"
    assert connection.execute(query).fetchone() == (20, 115, 13, 18)
    frame = pl.scan_iceberg(table).filter(pl.col("_kafka_partition") == 0).collect()
    assert sorted(frame["_kafka_offset"].to_list()) == list(range(15))
    assert isinstance(connection, duckdb.DuckDBPyConnection)


def test_the_snapshot_says_who_made_it_and_where_the_state_is(place: Place) -> None:
    outcome = publish(place, Change(append=(place.write(0, 9),)), commit_id="one")
    snapshot = place.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.snapshot_id == outcome.snapshot_id
    summary = snapshot.summary.additional_properties
    assert summary["tierberg.commit-id"] == "one"
    assert summary["tierberg.state"] == STATE.key
    assert summary["tierberg.state-sha256"] == STATE.sha256
    assert summary["tierberg.as-of"] == "17"
    assert (summary["total-records"], summary["total-data-files"]) == ("10", "1")


def test_overwrite_delete_and_append_go_in_one_request(place: Place) -> None:
    first, second, third = place.write(0, 9), place.write(10, 19), place.write(20, 29)
    publish(place, Change(append=(first, second, third)))
    catalog = Losing(place)
    change = Change(
        append=(place.write(30, 34),),
        delete=(first.file_path,),
        replace=(second.file_path,),
        replacement=(place.write(10, 14),),
    )
    outcome = publish(place, change, commit_id="two", catalog=catalog)
    assert (outcome.kind, catalog.requests) == ("committed", 1)
    assert place.offsets() == [*range(10, 15), *range(20, 35)]
    assert operations(place) == [Operation.APPEND, Operation.OVERWRITE, Operation.DELETE, Operation.APPEND]
    snapshot = place.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties["total-records"] == "20"
    assert snapshot.summary.additional_properties["total-data-files"] == "3"


def test_each_intermediate_snapshot_can_be_read(place: Place) -> None:
    first, second = place.write(0, 9), place.write(10, 19)
    publish(place, Change(append=(first, second)))
    change = Change(
        append=(place.write(20, 29),),
        delete=(first.file_path,),
        replace=(second.file_path,),
        replacement=(place.write(10, 12),),
    )
    publish(place, change, commit_id="two")
    table = place.load()
    counts = [table.scan(snapshot_id=s.snapshot_id).to_arrow().num_rows for s in table.metadata.snapshots]
    assert counts == [20, 13, 3, 13]


def test_a_change_of_state_alone_is_an_append_without_files(place: Place) -> None:
    outcome = publish(place, Change())
    assert outcome.kind == "committed"
    assert operations(place) == [Operation.APPEND]
    assert LiveFiles().read(place.load()).state == STATE
    assert place.offsets() == []


def test_all_files_removed_leaves_a_readable_empty_table(place: Place) -> None:
    files = (place.write(0, 9), place.write(10, 19))
    publish(place, Change(append=files))
    publish(place, Change(delete=tuple(f.file_path for f in files)), commit_id="two")
    assert place.offsets() == []
    publish(place, Change(append=(place.write(20, 21),)), commit_id="three")
    assert place.offsets() == [20, 21]
    assert len(LiveFiles().read(place.load()).manifests) == 1


def test_a_path_that_is_not_in_the_head_is_refused_and_leaves_nothing(place: Place) -> None:
    publish(place, Change(append=(place.write(0, 9),)))
    before = metadata_files(place)
    with pytest.raises(ValueError, match="not a live file"):
        publish(place, Change(append=(place.write(10, 11),), delete=("file:///nowhere.parquet",)))
    assert metadata_files(place) == before


def test_a_file_that_is_live_is_not_added_again(place: Place) -> None:
    """Every row of it would be there twice. One that goes by the same commit may come again."""
    file = place.write(0, 9)
    publish(place, Change(append=(file,)))
    before = metadata_files(place)
    for change in (Change(append=(place.write(10, 11), file)), Change(replacement=(file,))):
        with pytest.raises(ValueError, match="would be in it twice"):
            publish(place, change)
    assert metadata_files(place) == before
    publish(place, Change(replace=(file.file_path,), append=(file,)), commit_id="again")
    assert place.offsets() == list(range(10))


@pytest.mark.parametrize(
    "error",
    [
        CommitStateUnknownException("502"),
        CommitFailedException("409 for the repeated request"),
        ConnectionError("dropped"),
        TimeoutError("no answer"),
        ValueError("garbled answer"),
    ],
)
def test_a_lost_reply_after_landing_is_a_commit(place: Place, error: Exception) -> None:
    outcome = publish(place, Change(append=(place.write(0, 9),)), catalog=Losing(place, after=error))
    assert outcome.kind == "committed"
    assert outcome.error is error
    assert place.offsets() == list(range(10))


@pytest.mark.parametrize("error", [CommitStateUnknownException("503"), ConnectionError("refused"), TimeoutError()])
def test_a_request_that_may_still_land_keeps_its_files(place: Place, error: Exception) -> None:
    before = metadata_files(place)
    catalog = Losing(place, before=error)
    outcome = publish(place, Change(append=(place.write(0, 9),)), catalog=catalog)
    assert outcome.kind == "unknown"
    assert len(metadata_files(place) - before) == 2
    assert place.offsets() == []


def test_a_late_request_lands_or_fails_but_never_doubles(place: Place) -> None:
    """The first request is held back; the replanned one lands; then the first one arrives."""
    held: list[tuple[Any, ...]] = []

    class Holding(Losing):
        def commit_table(self, *args: Any) -> Any:
            held.append(args)
            raise TimeoutError

    data = place.write(0, 9)
    assert publish(place, Change(append=(data,)), "one", Holding(place)).kind == "unknown"
    assert publish(place, Change(append=(data,)), "two").kind == "committed"
    with pytest.raises(CommitFailedException):
        place.catalog.commit_table(*held[0])
    assert place.offsets() == list(range(10))


def test_a_held_request_that_lands_first_makes_the_next_swap_fail(place: Place) -> None:
    held: list[tuple[Any, ...]] = []

    class Holding(Losing):
        def commit_table(self, *args: Any) -> Any:
            held.append(args)
            raise TimeoutError

    head = LiveFiles().read(place.load())
    data = place.write(0, 9)
    change = Change(append=(data,))
    commit(Holding(place), head, change, STATE, commit_id="one", as_of_ms=0)  # type: ignore[arg-type]
    place.catalog.commit_table(*held[0])
    outcome = commit(place.catalog, head, change, STATE, commit_id="two", as_of_ms=0)
    assert outcome.kind == "conflict"
    assert place.offsets() == list(range(10))


def test_a_conflict_removes_our_manifests_only(place: Place) -> None:
    head = LiveFiles().read(place.load())
    publish(place, Change(append=(place.write(0, 9),)), commit_id="winner")
    before = metadata_files(place)
    change = Change(append=(place.write(10, 19),))
    outcome = commit(place.catalog, head, change, STATE, commit_id="loser", as_of_ms=0)
    assert outcome.kind == "conflict"
    assert outcome.table is not None
    assert metadata_files(place) == before
    assert place.offsets() == list(range(10))
    assert isinstance(outcome.error, CommitFailedException)


def test_a_refusal_and_a_reload_that_is_older_prove_nothing(place: Place) -> None:
    """As of a replica, or a cache: the commit has landed, its repetition is refused, and nobody has heard of it."""
    publish(place, Change(append=(place.write(0, 9),)), commit_id="before")
    old = place.load()

    class Stale(Losing):
        def load_table(self, identifier: Any) -> Any:
            return old

    catalog = Stale(place, after=CommitFailedException("409 for the repeated request"))
    before = metadata_files(place)
    outcome = publish(place, Change(append=(place.write(10, 19),)), catalog=catalog)
    assert outcome.kind == "unknown"
    assert len(metadata_files(place) - before) == 2
    assert place.offsets() == list(range(20))


def test_a_landed_commit_that_expired_at_once_keeps_its_manifests(place: Place) -> None:
    """As in a catalog that keeps only the newest snapshot: refused for its repetition, and already replaced."""

    class Forgetful(Losing):
        def load_table(self, identifier: Any) -> Any:
            if not self.requests:
                return place.load()
            publish(place, Change(append=(place.write(10, 19),)), commit_id="next")
            head = LiveFiles().read(place.load())
            old = {snapshot.snapshot_id for snapshot in head.table.metadata.snapshots} - {head.snapshot_id}
            assert expire(place.catalog, head, old) is not None
            return place.load()

    catalog = Forgetful(place, after=CommitFailedException("409 for the repeated request"))
    outcome = publish(place, Change(append=(place.write(0, 9),)), catalog=catalog)
    assert outcome.kind == "conflict"
    assert place.offsets() == list(range(20))


def test_a_table_dropped_and_created_again_is_never_written(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    head = LiveFiles().read(place.load())
    data = place.write(0, 9)
    place.catalog.drop_table(place.table.name())
    again = make_place(tmp_path)
    outcome = commit(place.catalog, head, Change(append=(data,)), STATE, commit_id="c", as_of_ms=0)
    assert outcome.kind == "unknown"
    assert again.offsets() == []


def test_an_unreachable_catalog_leaves_the_outcome_unknown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "RELOAD_PAUSE_MS", 0)

    class Gone(Losing):
        def load_table(self, identifier: Any) -> Any:
            raise ConnectionError

    outcome = publish(place, Change(append=(place.write(0, 9),)), catalog=Gone(place, after=ConnectionError()))
    assert (outcome.kind, outcome.table) == ("unknown", None)
    assert place.offsets() == list(range(10))


def test_old_snapshots_expire_in_the_same_commit(place: Place) -> None:
    for number in range(SNAPSHOTS_KEPT_MAX + 6):
        assert publish(place, Change(append=(place.write(number, number),)), f"c{number}").kind == "committed"
        assert len(place.load().metadata.snapshots) <= SNAPSHOTS_KEPT_MAX
    assert place.offsets() == list(range(SNAPSHOTS_KEPT_MAX + 6))
    assert len(place.load().metadata.snapshots) == SNAPSHOTS_KEPT_MAX


def test_tags_take_no_place_of_the_newest_snapshots(place: Place) -> None:
    for number in range(SNAPSHOTS_KEPT_MAX + 3):
        made = publish(place, Change(append=(place.write(number, number),)), f"c{number}").snapshot_id
        place.load().manage_snapshots().create_tag(made, f"day{number}").commit()
    for number in range(100, 103):
        publish(place, Change(append=(place.write(number, number),)), f"c{number}")
    metadata = place.load().metadata
    named = {ref.snapshot_id for name, ref in metadata.refs.items() if name != "main"}
    assert len([item for item in metadata.snapshots if item.snapshot_id not in named]) == 3


def test_time_never_goes_back_in_a_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's readers refuse logs of snapshots and of metadata that do, by more than a minute."""
    now = int(time.time() * 1000)
    for number, ahead_ms in enumerate((600_000, 0, -600_000)):
        with monkeypatch.context() as patched:
            clock = (now + ahead_ms) / 1000
            patched.setattr("iceberg_catalog.commit.snapshots.time.time", lambda clock=clock: clock)
            assert publish(place, Change(append=(place.write(number, number),)), f"c{number}").kind == "committed"
        place.load().transaction().set_properties({"note": str(number)}).commit_transaction()
    metadata = place.load().metadata
    for log in (metadata.snapshot_log, metadata.metadata_log):
        times = [entry.timestamp_ms for entry in log]
        assert times == sorted(times)
    assert metadata.last_updated_ms >= metadata.snapshot_log[-1].timestamp_ms >= now + 600_000


@pytest.mark.parametrize("wanted", ["true", "false"])
def test_old_metadata_goes_where_the_table_says_so(place: Place, wanted: str) -> None:
    said = {"write.metadata.delete-after-commit.enabled": wanted, "write.metadata.previous-versions-max": "3"}
    place.load().transaction().set_properties(said).commit_transaction()
    for number in range(8):
        publish(place, Change(append=(place.write(number, number),)), f"c{number}")
    root = Path(place.table.location().removeprefix("file://")) / "metadata"
    kept = len(list(root.glob("*.metadata.json")))
    assert kept == (4 if wanted == "true" else 10)


def test_a_tagged_snapshot_does_not_expire(place: Place) -> None:
    tagged = publish(place, Change(append=(place.write(0, 0),)), "c0").snapshot_id
    place.load().manage_snapshots().create_tag(tagged, "keep").commit()
    for number in range(1, SNAPSHOTS_KEPT_MAX + 4):
        assert publish(place, Change(append=(place.write(number, number),)), f"c{number}").kind == "committed"
    table = place.load()
    assert table.metadata.snapshot_by_id(tagged) is not None
    assert table.scan(snapshot_id=tagged).to_arrow().num_rows == 1


def test_small_manifests_are_folded_and_untouched_ones_kept(place: Place) -> None:
    counts = []
    for number in range(45):
        publish(place, Change(append=(place.write(number, number),)), f"c{number}")
        counts.append(len(LiveFiles().read(place.load()).manifests))
    assert max(counts) < 20
    assert place.offsets() == list(range(45))


def test_removal_rewrites_touched_manifests_only(place: Place) -> None:
    files = [place.write(number, number) for number in range(3)]
    for number, item in enumerate(files):
        publish(place, Change(append=(item,)), f"c{number}")
    before = {content.manifest.manifest_path for content in LiveFiles().read(place.load()).manifests}
    publish(place, Change(delete=(files[1].file_path,)), "removal")
    after = {content.manifest.manifest_path for content in LiveFiles().read(place.load()).manifests}
    assert len(before & after) == 2
    assert place.offsets() == [0, 2]


def test_entries_keep_their_sequence_numbers_when_moved(place: Place) -> None:
    keep, drop = place.write(0, 4), place.write(5, 9)
    publish(place, Change(append=(keep, drop)), "one")
    publish(place, Change(delete=(drop.file_path,)), "two")
    table = place.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = [e for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]
    assert [(e.data_file.file_path, e.sequence_number) for e in entries] == [(keep.file_path, 1)]


def test_eight_writers_lose_and_double_nothing(place: Place) -> None:
    """Real conflicts on one SQLite catalog: everyone appends, and replans on every failure."""
    per_writer, writers = 5, 8

    def write(writer: int) -> int:
        live, conflicts = LiveFiles(), 0
        for number in range(per_writer):
            offset = writer * per_writer + number
            data = place.write(offset, offset)
            for attempt in range(200):
                head = live.read(place.load())
                if any(item.path == data.file_path for item in head.files):
                    break
                change = Change(append=(data,))
                name = f"w{writer}-{number}-{attempt}"
                outcome = commit(place.catalog, head, change, STATE, commit_id=name, as_of_ms=0)
                if outcome.kind == "committed":
                    break
                conflicts += 1
            else:
                raise AssertionError("no progress")
        return conflicts

    with ThreadPoolExecutor(writers) as pool:
        conflicts = sum(pool.map(write, range(writers)))
    assert place.offsets() == list(range(per_writer * writers))
    assert conflicts > 0


def test_old_metadata_files_are_deleted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.load().transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "3"})
    for number in range(8):
        publish(place, Change(append=(place.write(number, number),)), f"c{number}")
    root = Path(place.table.location().removeprefix("file://")) / "metadata"
    assert len(list(root.glob("*.metadata.json"))) <= 5


def test_metadata_stays_small(place: Place) -> None:
    for number in range(SNAPSHOTS_KEPT_MAX + 2):
        publish(place, Change(append=(place.write(number, number),)), f"c{number}")
    size = Path(place.load().metadata_location.removeprefix("file://")).stat().st_size
    assert size < 50_000


@pytest.mark.parametrize("fail_at", range(3))
def test_a_store_that_fails_while_writing_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    publish(place, Change(append=(place.write(0, 9),)))
    before = metadata_files(place)
    head = LiveFiles().read(place.load())
    real: Callable[[str], Any] = head.table.io.new_output
    calls = 0

    def failing(location: str) -> Any:
        nonlocal calls
        calls += 1
        if calls > fail_at:
            raise OSError("disk full")
        return real(location)

    monkeypatch.setattr(head.table.io, "new_output", failing)
    change = Change(append=(place.write(10, 19),), delete=(head.files[0].path,))
    with pytest.raises(OSError, match="disk full"):
        commit(place.catalog, head, change, StateRef("k", "h"), commit_id="c", as_of_ms=0)
    assert metadata_files(place) == before
