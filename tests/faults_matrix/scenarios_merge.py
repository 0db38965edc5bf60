"""`tierberg maintain` that merges: the command is killed, Kafka reads everything, and the next one finishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_catalog.commit.head import LiveFiles
from tests.faults_matrix.case_run import CaseRun
from tests.faults_matrix.scenarios_command import ByCommand


class Merging(ByCommand):
    """Small files of a topic that is published become one."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"merge": {"files_min": 3, "age": "0s"}}

    def prepare(self, run: CaseRun) -> None:
        super().prepare(run)
        run.writing.segments()
        run.settle()
        run.found.append(self._files(run))

    def provoke(self, run: CaseRun) -> None:
        run.start_command("maintain", run.topic)

    def recover(self, run: CaseRun) -> None:
        run.finish_command("maintain", run.topic)
        (before,) = run.found
        assert self._files(run) < before, "nothing was merged"
        super().recover(run)

    @staticmethod
    def _files(run: CaseRun) -> int:
        """How many data files the table has."""
        with run.world.ground.catalog() as catalog:
            return len(LiveFiles().read(catalog.load_table(run.table)).files)
