"""`tierberg maintain`, `undelete`, `table drop` as an operator runs them, and maintenance in the background."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rsm_bridge.logs import logger
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.serving.maintainer import Maintainer
from rsm_bridge.storage.lease import Lease, lease_key
from rsm_bridge.storage.local import FolderLock
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.support.bridge_process import test_settings
from tests.unit.rsm_bridge.storage.test_maintain_sweep import age
from tests.worlds.maintain_support import World, make_world, published
from tierberg.cli import app


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "data")


def run(tmp_path: Path, *arguments: str, grace: str = "0s") -> Result:
    config = tmp_path / "tierberg.yaml"
    config.write_text(f"data_dir: {tmp_path / 'data'}\nreclaim_grace: {grace}\n")
    return CliRunner().invoke(app, [*arguments, "--config", str(config)])


def test_maintain_says_what_it_did_by_kind(world: World, tmp_path: Path) -> None:
    first, *_ = published(world)
    world.delete(first)
    world.publish()
    told = run(tmp_path, "maintain", "--dry-run")
    assert told.exit_code == 0, told.output
    assert "orders (dry run)" in told.output
    assert "data files: 1, " in told.output
    assert len(world.stored("index")) == 3
    done = run(tmp_path, "maintain", "orders")
    assert done.exit_code == 0, done.output
    assert "tombstones: 1, " in done.output
    assert "snapshots expired: 1\n" in done.output
    assert len(world.stored("index")) == 2
    assert "nothing to do" in run(tmp_path, "maintain").output
    world.check()


def test_maintain_sweeps(world: World, tmp_path: Path) -> None:
    published(world)
    world.log().write(3)
    before = set(world.stored("data", "kept"))
    world.copy_range(9, 11, indexed=False)
    left = set(world.stored("data", "kept")) - before
    age(world, COPY_IS_OVER_SECONDS + 60, *left)
    assert "data files: 1, " in run(tmp_path, "maintain").output
    assert set(world.stored("data", "kept")) == before


def test_maintain_of_an_unknown_table_says_so(world: World, tmp_path: Path) -> None:
    published(world)
    result = run(tmp_path, "maintain", "elsewhere")
    assert result.exit_code == 2
    assert "nothing of a topic or table elsewhere" in result.output


def test_maintain_leaves_an_embedded_store_to_its_bridge(world: World, tmp_path: Path) -> None:
    published(world)
    lock = FolderLock(tmp_path / "data")
    try:
        refused = run(tmp_path, "maintain")
        assert refused.exit_code == 3
        assert "in use by another bridge" in refused.output
        assert run(tmp_path, "maintain", "--dry-run").exit_code == 0
    finally:
        lock.close()


def test_undelete_beside_a_running_bridge(world: World, tmp_path: Path) -> None:
    world.delete(*published(world))
    world.publish()
    lock = FolderLock(tmp_path / "data")
    try:
        result = run(tmp_path, "undelete", "orders")
    finally:
        lock.close()
    assert result.exit_code == 0, result.output
    assert "3 segments with 9 rows are back" in result.output
    assert "partition 0: from offset 0" in result.output
    assert world.offsets() == list(range(9))
    undone = run(tmp_path, "undelete", "orders", "--undo")
    assert "3 segments are deleted again" in undone.output
    world.publish()
    assert world.offsets() == []


def test_undelete_of_a_topic_created_again_asks_which(world: World, tmp_path: Path) -> None:
    world.delete(*published(world))
    world.publish()
    again = World(world.store, world.catalog)
    published(again)
    asked = run(tmp_path, "undelete", "orders")
    assert asked.exit_code == 1
    assert world.topic_id.hex() in asked.output
    assert again.topic_id.hex() in asked.output
    assert run(tmp_path, "undelete", "orders", "--topic-id", world.topic_id.hex()).exit_code == 0
    assert world.offsets() == list(range(9))


@pytest.mark.parametrize("name", ["nothing", "orders"])
def test_undelete_of_nothing_says_so(world: World, tmp_path: Path, name: str) -> None:
    published(world)
    result = run(tmp_path, "undelete", name)
    assert result.exit_code == 2
    assert "tierberg: " in result.output


def test_table_drop(world: World, tmp_path: Path) -> None:
    world.delete(*published(world))
    world.publish()
    refused = run(tmp_path, "table", "drop", "orders")
    assert refused.exit_code == 1
    assert "can be brought back" in refused.output
    assert run(tmp_path, "maintain").exit_code == 0
    dropped = run(tmp_path, "table", "drop", "orders")
    assert dropped.exit_code == 0, dropped.output
    assert "kafka.orders dropped" in dropped.output
    assert world.table() is None


def maintainer(world: World, folder: Path, **changes: object) -> Maintainer:
    settings = test_settings(folder, **changes)
    return Maintainer(
        settings=settings, store=world.store, catalog=lambda: world.catalog, metrics=Metrics(), log=logger("test")
    )


def leave_behind(world: World) -> list[str]:
    """A crashed copy's objects, old enough to go."""
    before = set(world.stored("data", "kept"))
    world.log().write(3)
    world.copy_range(world.log().end - 3, world.log().end - 1, indexed=False)
    left = sorted(set(world.stored("data", "kept")) - before)
    age(world, COPY_IS_OVER_SECONDS + 60, *left)
    return left


def test_the_background_does_it_too_and_counts(world: World, tmp_path: Path) -> None:
    published(world)
    left = leave_behind(world)
    service = maintainer(world, tmp_path / "data", maintain_interval="100ms")
    service.start()
    try:
        end = time.monotonic() + 20
        while set(left) & set(world.stored("data", "kept")):
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        service.stop()
    assert service.metrics.registry.get_sample_value("tierberg_reclaimed_bytes_total", {"kind": "data"})
    world.check()


def test_one_bridge_at_a_time(world: World, tmp_path: Path) -> None:
    published(world)
    left = leave_behind(world)
    other = Lease(store=world.store, key=lease_key(world.topic_id.hex()), holder="another bridge")
    assert other.acquire()
    service = maintainer(world, tmp_path / "data")
    service.run_once()
    assert set(left) <= set(world.stored("data", "kept"))
    other.release()
    service.run_once()
    assert not set(left) & set(world.stored("data", "kept"))


def test_one_table_in_trouble_does_not_hold_up_the_others(world: World, tmp_path: Path) -> None:
    published(world)
    other = World(world.store, world.catalog, topic="payments", topic_id=b"\0" * 16)
    published(other)
    broken = other.stored("index")[0]
    other.store.delete_many([broken])
    assert other.store.put_if_absent(broken, b"damaged")
    left = leave_behind(world)
    maintainer(world, tmp_path / "data").run_once()
    assert not set(left) & set(world.stored("data", "kept"))
    assert len(other.stored("data")) == 3


def test_an_interval_of_zero_is_never(world: World, tmp_path: Path) -> None:
    service = maintainer(world, tmp_path / "data", maintain_interval="0s")
    service.start()
    assert service._thread is None
    service.stop()


def test_leases_of_topics_that_are_gone_go(world: World, tmp_path: Path) -> None:
    published(world)
    gone = lease_key("f" * 32)
    assert world.store.put_if_absent(gone, b"{}")
    maintainer(world, tmp_path / "data").run_once()
    assert [listed.key for listed in world.store.list_after("lease/")] == [lease_key(world.topic_id.hex())]
