"""What a run says of itself: since when it had everything, and how many rows the projection has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import ServerError
from pyiceberg.table.snapshots import Operation, Summary

import repartition.run.run
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.plan.types import LiveFile, PartState
from iceberg_catalog.tables.names import Owner
from repartition.errors import RepartitionError
from repartition.run.frontier import Frontier, Position
from repartition.run.read_plan import plan_reading
from repartition.run.reporting import lost_by_now, report_run
from repartition.run.run import ProjectionJob, Ran
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.projections.hold import DeclaredProjection
from rsm_bridge.storage.projections.progress import ProjectionLoss, ProjectionProgress, ProjectionSize, read_one
from tests.support.projection_progress import put_progress
from tests.worlds.projection_job_support import NOTHING

OWNER = Owner("test", "orders", b"t" * 16)
PROJECTION = DeclaredProjection(ProjectionRule(table="orders_projection"), "tierberg", "kafka.orders_projection")

NO_PROGRESS = ProjectionProgress(topic_id=OWNER.topic_id, catalog=PROJECTION.catalog, table=PROJECTION.table)


def make_store(folder: Path) -> ObjectStore:
    return open_store(load_settings(None, {"data_dir": folder}))


def told(store: ObjectStore) -> ProjectionProgress:
    found = read_one(store, PROJECTION.key(OWNER.topic_id))
    assert found is not None
    return found


def test_a_projection_had_everything_when_its_run_pinned_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((1_000, 2_000, 9_000))
    asked: list[int] = []

    def now_ms() -> int:
        asked.append(next(clock))
        return asked[-1]

    def pin() -> Any:
        now_ms()
        return SimpleNamespace(snapshot_id=7)

    def run(_: ProjectionJob, __: object) -> Ran:
        now_ms()
        return Ran(NOTHING, 0, 7)

    monkeypatch.setattr(repartition.run.run, "now_ms", now_ms)
    monkeypatch.setattr(repartition.run.run, "load_projection", lambda *_: None)
    monkeypatch.setattr(ProjectionJob, "_run", run)
    store, target = make_store(tmp_path), SimpleNamespace(catalog=None)
    source: Any = SimpleNamespace(owner=OWNER, backend=SimpleNamespace(store=store), pin=pin)
    ProjectionJob(session=None, source=source, source_catalog="c", projection=PROJECTION, target=target).run()  # type: ignore[arg-type]
    assert asked == [1_000, 2_000, 9_000]
    assert told(store).caught_up_ms == 1_000
    assert (told(store).succeeded_ms or 0) > 9_000, "that is when the run ended"


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (BridgeError("store_unavailable", "no route"), "store_unavailable", "mend the store"),
        (CatalogError("state_missing", "rolled back"), "state_missing", "`tierberg status TOPIC`"),
        (ServerError("503"), "unavailable", "mend the catalog"),
        (RepartitionError("no_source", "gone"), "no_source", "where the topic is gone"),
        (ValueError("x"), "spark", "the job's log"),
    ],
)
def test_a_failure_keeps_its_kind_and_has_advice(tmp_path: Path, error: Exception, kind: str, advice: str) -> None:
    store, target = make_store(tmp_path), SimpleNamespace(catalog=None)
    source: Any = SimpleNamespace(owner=OWNER, backend=SimpleNamespace(store=store), pin=Mock(side_effect=error))
    with pytest.raises(RepartitionError) as raised:
        ProjectionJob(session=None, source=source, source_catalog="c", projection=PROJECTION, target=target).run()  # type: ignore[arg-type]
    assert raised.value.kind == kind
    failure = told(store).failure
    assert failure is not None
    assert (failure.message, advice in failure.advice) == (str(raised.value), True)


def test_a_run_that_leaves_something_says_nothing_of_when_it_had_everything(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    for at, complete in ((5, True), (8, False)):
        report_run(
            store, OWNER.topic_id, PROJECTION, Frontier(OWNER.topic_id), snapshot_id=7, pinned_ms=at, complete=complete,
            table=None, letters=None, clock=lambda: 9,
        )  # fmt: skip
    assert (told(store).caught_up_ms, told(store).succeeded_ms) == (5, 9)


def size(tmp_path: Path, **totals: str) -> ProjectionSize | None:
    """Of a table with this summary."""
    summary = Summary(Operation.OVERWRITE, **{f"total-{name.replace('_', '-')}": text for name, text in totals.items()})
    table: Any = SimpleNamespace(current_snapshot=lambda: SimpleNamespace(summary=summary))
    store = make_store(tmp_path)
    report_run(
        store, OWNER.topic_id, PROJECTION, Frontier(OWNER.topic_id), snapshot_id=7, pinned_ms=5, complete=True,
        table=table, letters=None,
    )  # fmt: skip
    return told(store).size


WHOLE = st.integers(0, 2**62)


@given(WHOLE, WHOLE)
def test_rows_are_those_that_are_not_deleted(tmp_path_factory: pytest.TempPathFactory, rows: int, gone: int) -> None:
    folder = tmp_path_factory.getbasetemp() / "sizes"
    found = size(folder, records=str(rows), data_files="3", files_size="900", position_deletes=str(gone))
    assert found == ProjectionSize(max(0, rows - gone), 3, 900)


def test_a_summary_that_does_not_say_gives_no_size(tmp_path: Path) -> None:
    assert size(tmp_path, records="5", data_files="1", files_size="9") == ProjectionSize(5, 1, 9)
    assert size(tmp_path, records="5", data_files="1") is None
    assert size(tmp_path, records="5", data_files="1", files_size="9", position_deletes="some") is None


def test_what_is_lost_is_said_with_the_commit_and_in_all(tmp_path: Path) -> None:
    """Whoever reports next says all of it, once; what was said before commits said it counts too."""
    store, nothing = make_store(tmp_path), Frontier(OWNER.topic_id)
    put_progress(store, replace(NO_PROGRESS, lost={0: ProjectionLoss(5, 5, 1), 1: ProjectionLoss(2, 2, 1)}))
    first = lost_by_now(store, PROJECTION, nothing, {0: (5, 9)}, lambda: 7)
    assert first == {0: ProjectionLoss(9, 9, 7), 1: ProjectionLoss(2, 2, 1)}
    further = replace(nothing, lost=first)
    second = lost_by_now(store, PROJECTION, further, {1: (3, 4)}, lambda: 8)
    assert second == {0: ProjectionLoss(9, 9, 7), 1: ProjectionLoss(3, 4, 8)}, "nobody has reported the first yet"
    for frontier in (replace(nothing, lost=second), further):
        report(store, frontier)
        assert told(store).lost == second, "the slower of two jobs takes nothing back"
    broken = store.read(PROJECTION.key(OWNER.topic_id))
    assert store.replace(PROJECTION.key(OWNER.topic_id), b"{", broken.version)
    assert lost_by_now(store, PROJECTION, further, {0: (9, 10)}, lambda: 9) == {**first, 0: ProjectionLoss(10, 10, 9)}


def test_a_run_knows_the_losses_of_the_commits_before(tmp_path: Path) -> None:
    lost = {0: ProjectionLoss(9, 9, 7)}
    before = Frontier(OWNER.topic_id, {0: Position(0, 9)}, lost)
    file = LiveFile(
        path="a", first=20, last=29, runs=((0, 20),), partition=0, max_timestamp_ms=None, size_bytes=100, rows=10
    )
    state = PartState(frontier=30, floor=12, lineage=((0, 0),), known_end=30)
    reading = plan_reading(before, {0: state}, [file], None)
    assert (reading.after.lost, reading.lost) == (lost, {0: (9, 12)})


def test_a_run_says_how_many_dead_letters_there_are(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    totals = {"total-records": "40", "total-data-files": "2", "total-files-size": "9", "total-position-deletes": "3"}
    table: Any = SimpleNamespace(current_snapshot=lambda: SimpleNamespace(summary=Summary(Operation.APPEND, **totals)))
    for letters, count in ((table, 37), (None, 0)):
        report(store, Frontier(OWNER.topic_id), letters)
        assert told(store).dead_letters == count


def report(store: ObjectStore, frontier: Frontier, letters: Any = None) -> None:
    report_run(
        store, OWNER.topic_id, PROJECTION, frontier, snapshot_id=7, pinned_ms=5, complete=True, table=None,
        letters=letters,
    )  # fmt: skip
