"""Scenarios whose point is reached by a command: it is the command that is killed in place of the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.faults_matrix.case_run import GONE_S, CaseRun
from tests.faults_matrix.comparing import table_rows
from tests.faults_matrix.scenarios import Deleting, Prepared, Scenario
from tierberg.stack.waiting import wait_for

#: Older than any copy can be, with clocks that differ: rsm_bridge/tables/maintain/sweep.py.
_LONG_AGO_S = 3 * 3600
_MANIFEST = "left-by-a-crash-m0.avro"


class ByCommand(Prepared):
    """A command does it, on a topic that is tiered and published."""

    @property
    def by_command(self) -> bool:
        return True


class Maintaining(ByCommand):
    """`tierberg maintain` on a topic in whose folders a crash of hours ago left a data file and a manifest."""

    def prepare(self, run: CaseRun) -> None:
        super().prepare(run)
        ground = run.world.ground
        original = ground.keys(f"data/{run.topic_id}/0/")[0]
        data = original[: -len(".parquet") - 32] + "f" * 32 + ".parquet"
        ground.plant(data, ground.read(original), _LONG_AGO_S)
        ground.plant_metadata(run.topic, _MANIFEST, b"never finished", _LONG_AGO_S)
        run.found.append(data)

    def provoke(self, run: CaseRun) -> None:
        run.start_command("maintain", run.topic)

    def recover(self, run: CaseRun) -> None:
        run.finish_command("maintain", run.topic)
        super().recover(run)

    def check(self, run: CaseRun) -> None:
        super().check(run)
        ground = run.world.ground
        (data,) = run.found
        assert data not in ground.keys(f"data/{run.topic_id}/"), "the left data file is still there"
        assert _MANIFEST not in ground.metadata_names(run.topic), "the left manifest is still there"


class DeletingDerived(Deleting):
    """A derived file that no table names and no tombstone leads to is what maintenance is for."""

    def check(self, run: CaseRun) -> None:
        Prepared.check(self, run)
        run.start_command("maintain", run.topic)
        run.wait_command("maintain")
        run.wait_reclaimed()


class Undeleting(ByCommand):
    """`tierberg undelete` after Kafka has deleted the first segments: their rows come back."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"reclaim_grace": "10m", "mass_delete_grace": "1h"}

    def prepare(self, run: CaseRun) -> None:
        super().prepare(run)
        run.delete_below_the_last_segment()
        run.wait_tombstones()
        run.settle()

    def provoke(self, run: CaseRun) -> None:
        run.start_command("undelete", run.topic)

    def recover(self, run: CaseRun) -> None:
        run.finish_command("undelete", run.topic)
        run.rows_from = 0
        super().recover(run)


class Undoing(Undeleting):
    """`tierberg undelete --undo`: what came back goes again."""

    def prepare(self, run: CaseRun) -> None:
        super().prepare(run)
        run.start_command("undelete", run.topic)
        run.wait_command("undelete")
        start, run.rows_from = run.rows_from, 0
        run.settle()
        run.rows_from = start

    def provoke(self, run: CaseRun) -> None:
        run.start_command("undelete", run.topic, "--undo")

    def recover(self, run: CaseRun) -> None:
        run.finish_command("undelete", run.topic, "--undo")
        run.writing.more()

    def check(self, run: CaseRun) -> None:
        Scenario.check(self, run)
        run.wait_tombstones()


class Dropping(ByCommand):
    """`tierberg table drop` of a deleted topic's table; then the topic is made again and has its own rows only."""

    def prepare(self, run: CaseRun) -> None:
        super().prepare(run)
        admin = run.world.pair.admin
        admin.delete_topic(run.topic)
        wait_for("the name to be free", lambda: run.topic not in admin.topic_names(), GONE_S)
        with run.world.ground.catalog() as catalog:
            wait_for("rows to leave", lambda: not table_rows(catalog, run.table), GONE_S, 0.3)
        wait_for("objects to leave", lambda: not self._objects(run), GONE_S, 0.3)

    def provoke(self, run: CaseRun) -> None:
        run.start_command("table", "drop", run.topic)

    def recover(self, run: CaseRun) -> None:
        run.finish_command("table", "drop", run.topic)
        with run.world.ground.catalog() as catalog:
            assert not catalog.table_exists(run.table)
        assert not run.world.ground.metadata_names(run.topic)
        assert not run.world.ground.keys("drop/")
        run.create()
        run.writing.segments()

    @staticmethod
    def _objects(run: CaseRun) -> list[str]:
        return [key for root in ("index", "data", "kept") for key in run.world.ground.keys(f"{root}/{run.topic_id}/")]
