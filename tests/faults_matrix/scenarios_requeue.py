"""`tierberg requeue` of a topic that was tiered as it is: the command is killed, and the next one finishes."""

from __future__ import annotations

from tests.e2e.e2e_support import wait_tiered
from tests.faults_matrix.case_run import GONE_S, TIER_S, CaseRun
from tests.faults_matrix.comparing import table_rows
from tests.faults_matrix.scenarios_command import ByCommand
from tierberg.stack.waiting import wait_for

_AS_IT_IS = {"topics": [{"pattern": ".*", "mode": "verbatim"}]}
_AS_ROWS: dict[str, object] = {"topics": []}


class Requeueing(ByCommand):
    """Segments without rows lie below others that have some, so that rows come below the frontier."""

    def prepare(self, run: CaseRun) -> None:
        run.world.use(_AS_IT_IS)
        run.create()
        run.writing.segments()
        wait_tiered(run.world.pair, run.topic, timeout_s=TIER_S)
        run.world.use(_AS_ROWS)
        run.writing.segments()
        wait_tiered(run.world.pair, run.topic, timeout_s=TIER_S)
        with run.world.ground.catalog() as catalog:
            wait_for("the later rows", lambda: len(table_rows(catalog, run.table)) > 0, GONE_S, 0.3)

    def provoke(self, run: CaseRun) -> None:
        run.start_command("requeue", run.topic)

    def recover(self, run: CaseRun) -> None:
        run.finish_command("requeue", run.topic)
        super().recover(run)
