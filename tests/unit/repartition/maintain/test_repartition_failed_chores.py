"""What maintenance could not do stays known until it goes well, however many runs go well meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from iceberg_catalog.tables.names import Owner
from repartition.errors import RepartitionError
from repartition.maintain import maintain
from repartition.maintain.due import Budget
from repartition.run.frontier import Frontier
from repartition.run.reporting import report_run
from rsm_bridge.config.projections import ProjectionRule
from rsm_bridge.config.settings import load_settings
from rsm_bridge.storage.opening import open_store
from rsm_bridge.storage.projections.hold import DeclaredProjection
from rsm_bridge.storage.projections.progress import read_one

OWNER = Owner("test", "orders", b"t" * 16)
PROJECTION = DeclaredProjection(ProjectionRule(table="orders_now"), "tierberg", "kafka.orders_now")
DENIED = OSError("AccessDenied")


class Kept:
    """A projection whose table and dead letters have orphans to remove."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = open_store(load_settings(None, {"data_dir": folder}))
        self.job: Any = SimpleNamespace(
            source=SimpleNamespace(owner=OWNER, backend=SimpleNamespace(store=self.store)),
            projection=PROJECTION,
            rule=PROJECTION.rule,
            target=SimpleNamespace(catalog=SimpleNamespace(load_table=Mock(side_effect=DENIED))),
            name=("kafka", "orders_now"),
            letters_name=("kafka", "orders_now__dead_letters"),
            step=lambda _: None,
        )
        self.due: list[list[str]] = []
        self.does: Mock = Mock()
        monkeypatch.setattr(maintain, "_due", lambda *_: self.due.pop(0))
        monkeypatch.setattr(maintain, "_CHORES", {"orphans": self._do})

    def _do(self, *_: object) -> Any:
        return self.does()

    def maintain(
        self, *does: Any, due: tuple[list[str], list[str]] = (["orphans"], []), rich: bool = True
    ) -> list[str]:
        """One pass after a run that goes well; chores that are known to have failed then.

        Args:
            does: what the chores answer or raise, one after the other.
            due: chores of the projection and of its dead letters.
            rich: the budget is not used up.
        """
        report_run(
            self.store, OWNER.topic_id, PROJECTION, Frontier(OWNER.topic_id), snapshot_id=7, pinned_ms=5,
            complete=True, table=None, letters=None,
        )  # fmt: skip
        self.due, self.does = [*due], Mock(side_effect=does)
        with contextlib.suppress(RepartitionError):
            maintain.maintain(self.job, Budget(0.5, working_s=3600.0 if rich else 0.0))
        return self.failed()

    def failed(self) -> list[str]:
        found = read_one(self.store, PROJECTION.key(OWNER.topic_id))
        assert found is not None
        assert found.failure is None, "that is of runs"
        return sorted(found.failed_chores)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(tmp_path, monkeypatch)


def test_a_chore_that_failed_is_known_until_it_goes_well(kept: Kept) -> None:
    assert kept.maintain(DENIED) == ["orphans"]
    for _ in range(3):
        assert kept.maintain(rich=False) == ["orphans"], "the budget is used up, and nothing is tried"
    assert kept.maintain(RepartitionError("raced", "main has moved")) == ["orphans"]
    assert kept.maintain("done") == []


def test_each_table_has_chores_of_its_own_and_what_is_not_due_any_more_is_over(kept: Kept) -> None:
    both = (["orphans"], ["orphans"])
    assert kept.maintain(DENIED, DENIED, due=both) == ["dead letters: orphans", "orphans"]
    assert kept.maintain("done", DENIED, due=both) == ["dead letters: orphans"]
    assert kept.maintain("done") == []
    assert kept.maintain(DENIED) == ["orphans"]
    assert kept.maintain(due=([], [])) == []


def test_a_table_that_cannot_be_looked_at_hides_no_failure(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.maintain(DENIED) == ["orphans"]
    with monkeypatch.context() as patched:
        away = RepartitionError("unavailable", "AccessDenied")
        patched.setattr(maintain, "_due", Mock(side_effect=away))
        assert kept.maintain(due=([], [])) == ["look", "orphans"]
    assert kept.maintain(DENIED) == ["orphans"]
