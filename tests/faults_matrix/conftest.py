"""Servers of the matrix, its table at the end of a run, and a failure for each case that was skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults_matrix.cases import Case
from tests.faults_matrix.grounds import EmbeddedGround, LakeGround
from tests.faults_matrix.matrix_table import Outcome, Result, later, lines
from tests.faults_matrix.world import World

_OUTCOMES: dict[str, Outcome] = {"passed": "passed", "failed": "FAILED", "skipped": "SKIPPED"}
_results: dict[Case, Result] = {}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """On an S3 server and a REST catalog."""
    folder = tmp_path_factory.mktemp("matrix")
    started = World(folder, LakeGround(folder / "lake"))
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """On the embedded store and catalog."""
    folder = tmp_path_factory.mktemp("sample")
    started = World(folder, EmbeddedGround(folder / "bridge"))
    started.start()
    yield started
    started.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each report of a case says which one it is, also when it never began."""
    for item in items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if isinstance(case, Case):
            item.user_properties.append(("fault", (case.point, case.victim)))  # plain: may come from another process


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == "fault" and isinstance(value, tuple):
            case = Case(*value)
            around = report.passed and report.when != "call"
            _results[case] = later(_results.get(case), None if around else _OUTCOMES[report.outcome], report.duration)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and any(item.outcome != "passed" for item in _results.values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _results:
        terminalreporter.section("fail points")
        for line in lines(_results):
            terminalreporter.write_line(line)
