"""Fail points: every call in the product is in the table and the other way round, and orders are carried out."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_catalog import failpoints
from iceberg_catalog.failpoints import POINTS, InjectedFaultError, Order, hit, hit_async
from tierberg.stack.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("converter", "iceberg_catalog", "rsm_bridge")
HITS = ("hit", "hit_async")


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of `failpoints.hit` and its twin."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in HITS:
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "failpoints":
                yield node


def points_in_the_source() -> Counter[str]:
    found: Counter[str] = Counter()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for call in calls(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            name = call.args[0]
            assert isinstance(name, ast.Constant), f"{where}: the point is no literal"
            assert isinstance(name.value, str), f"{where}: the point is no text"
            assert len(call.args) == 2, f"{where}: does not say what it is about"
            found[name.value] += 1
    return found


def test_the_table_and_the_calls_are_the_same() -> None:
    found = points_in_the_source()
    assert found.keys() - POINTS.keys() == set(), "not in iceberg_catalog/failpoints.py"
    assert POINTS.keys() - found.keys() == set(), "nowhere in the source"


def test_nobody_takes_the_functions_under_another_name() -> None:
    # The walk above would not see such calls.
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "iceberg_catalog.failpoints":
                names = {alias.name for alias in node.names}
                assert not names & set(HITS), path
            if isinstance(node, ast.ImportFrom) and node.module == "iceberg_catalog":
                assert all(alias.asname is None for alias in node.names if alias.name == "failpoints"), path


@pytest.mark.parametrize("text", ["nowhere=kill", "before-index=explode", "before-index"])
def test_an_unknown_point_or_action_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a known point and action"):
        failpoints.parse(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(failpoints, "_folder", tmp_path)
    monkeypatch.setattr(failpoints, "_reached", {})
    return tmp_path


def lay(folder: Path, point: str, order: Order) -> None:
    (folder / f"{point}.fault").write_text(order.encode())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_order_is_carried_out_once_and_leaves_its_mark(folder: Path) -> None:
    lay(folder, "before-index", Order("raise"))
    hit("before-commit", "x")
    with pytest.raises(InjectedFaultError, match="before-index"):
        hit("before-index", "x")
    assert names(folder) == {"before-index.hit"}
    hit("before-index", "x")


def test_an_order_about_something_leaves_the_rest_alone(folder: Path) -> None:
    lay(folder, "listed", Order("raise", about=("aa11", "kafka.t")))
    hit("listed", "bb22")
    hit("listed")
    with pytest.raises(InjectedFaultError):
        hit("listed", "index/aa11/0/x")


def test_an_order_for_the_third_time(folder: Path) -> None:
    lay(folder, "listed", Order("raise", about=("aa",), hit=3))
    for about in ("aa", "bb", "aa", "bb"):
        hit("listed", about)
    with pytest.raises(InjectedFaultError):
        hit("listed", "aa")


def test_a_stopped_thread_waits_for_its_go(folder: Path) -> None:
    lay(folder, "listed", Order("stop"))
    stopped = threading.Thread(target=hit, args=("listed",))
    stopped.start()
    wait_for("the mark", (folder / "listed.hit").exists, 10, 0.01)
    hit("listed")  # only the first one stops
    time.sleep(0.1)
    assert stopped.is_alive()
    (folder / "listed.go").touch()
    stopped.join(10)
    assert not stopped.is_alive()


def test_the_event_loop_goes_on_while_a_call_is_stopped(folder: Path) -> None:
    async def both() -> None:
        lay(folder, "after-answer", Order("stop"))
        stopped = asyncio.create_task(hit_async("after-answer", "x"))
        async with asyncio.timeout(10):
            await asyncio.to_thread(wait_for, "the mark", (folder / "after-answer.hit").exists, 10, 0.01)
            assert not stopped.done()
            (folder / "after-answer.go").touch()
            await stopped

    asyncio.run(both())


def test_a_process_kills_itself_at_the_point(tmp_path: Path) -> None:
    lay(tmp_path, "before-swap", Order("kill"))
    program = "from iceberg_catalog import failpoints; failpoints.hit('before-swap', 't'); print('alive')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TIERBERG_FAULT_FOLDER": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""
    assert names(tmp_path) == {"before-swap.hit"}
