"""What a run says of itself: since when it had everything, and how many rows the projection has."""

from __future__ import annotations

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
from iceberg_catalog.tables.names import Owner
from repartition.errors import RepartitionError
from repartition.run.frontier import Frontier
from repartition.run.reporting import report_run
from repartition.run.run import ProjectionJob, Ran
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.projections.hold import DeclaredProjection
from rsm_bridge.storage.projections.progress import ProjectionProgress, ProjectionSize, read_one
from tests.worlds.projection_job_support import NOTHING

OWNER = Owner("test", "orders", b"t" * 16)
PROJECTION = DeclaredProjection(ProjectionRule(table="orders_projection"), "tierberg", "kafka.orders_projection")


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
            lost={}, table=None, clock=lambda: 9,
        )  # fmt: skip
    assert (told(store).caught_up_ms, told(store).succeeded_ms) == (5, 9)


def size(tmp_path: Path, **totals: str) -> ProjectionSize | None:
    """Of a table with this summary."""
    summary = Summary(Operation.OVERWRITE, **{f"total-{name.replace('_', '-')}": text for name, text in totals.items()})
    table: Any = SimpleNamespace(current_snapshot=lambda: SimpleNamespace(summary=summary))
    store = make_store(tmp_path)
    report_run(
        store, OWNER.topic_id, PROJECTION, Frontier(OWNER.topic_id), snapshot_id=7, pinned_ms=5, complete=True,
        lost={}, table=table,
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
