"""Runs one case: prepare, order, provoke, kill at the point, start again, recover, compare."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping

from confluent_kafka import KafkaException

from iceberg_catalog.failpoints import Action, Order
from tests.faults_matrix.case_run import CaseRun, Victim
from tests.faults_matrix.cases import Case
from tests.faults_matrix.scenarios import HIT_S
from tests.faults_matrix.world import World
from tierberg.stack.waiting import wait_for

ACTIONS: Mapping[Victim, Action] = {"bridge": "kill", "broker": "stop"}


def run_case(world: World, case: Case) -> None:
    """Fails unless the point was reached, its victim killed there, and everything is right afterwards."""
    scenario = case.scenario
    run = CaseRun(world, f"{case.point}_{case.victim}".replace("-", "_"), case.point, case.victim)
    world.use(scenario.settings)
    with run.stack:
        try:
            scenario.prepare(run)
            world.faults.lay(case.point, Order(ACTIONS[case.victim], run.about, scenario.hit))
            scenario.provoke(run)
            world.faults.wait_hit(case.point, HIT_S)
            strike(run)
            scenario.recover(run)
            scenario.check(run)
        finally:
            if run.command is not None:
                run.command.kill()
            world.mend()
            forget(run)


def strike(run: CaseRun) -> None:
    """Kills the victim at the point, starts it again, and lets whoever was stopped there go on."""
    world = run.world
    if run.victim == "broker":
        world.broker.process.kill()
        world.faults.go(run.point)
        world.broker.start()
        return
    killed = run.command or world.bridge.process
    wait_for(f"{killed.name} to be gone", lambda: not killed.alive, HIT_S, 0.02)
    assert killed.returncode == -signal.SIGKILL
    if run.command is None:
        world.bridge.start()


def forget(run: CaseRun) -> None:
    """The topic goes; what is left of it is nobody's concern."""
    with contextlib.suppress(KafkaException):
        run.world.pair.admin.delete_topic(run.topic)
