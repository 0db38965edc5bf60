"""A record of an undelete that cannot be read: status names it, `topic forget` keeps away, and the manual's remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rsm_bridge.errors import BridgeError
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.storage.segments.undelete_record import UndeleteRecord, undelete_key
from rsm_bridge.tables.maintain.topic_forget import Wish, forget
from tests.support.status_facts import kafka
from tests.worlds.maintain_support import World, make_world, published
from tests.worlds.status_support import in_kafka, looked, of, persons
from tierberg.cli import app

RUNNER = CliRunner()


@dataclass
class Rescued:
    """Six segments of a topic that Kafka deleted two hours ago, brought back; another topic that lives."""

    folder: Path
    world: World
    other: World

    @property
    def record(self) -> Path:
        """The record's object."""
        return self.folder / "store" / undelete_key(self.world.topic_id)

    def run(self, *arguments: str) -> tuple[int, str]:
        result = RUNNER.invoke(app, [*arguments, "--data-dir", str(self.folder)])
        return result.exit_code, result.output

    def forget(self, *, yes: bool = True) -> None:
        asked = kafka(in_kafka(self.other))
        wish = Wish("orders", None, yes)
        forget(open_backend(None, self.folder), wish, lambda _: asked, lambda _: None, lambda _: None)


@pytest.fixture
def rescued(tmp_path: Path) -> Rescued:
    world = make_world(tmp_path)
    world.ahead_ms = -7_200_000
    world.delete(*published(world, (3,) * 6))
    world.publish()
    world.ahead_ms = 0
    other = World(world.store, world.catalog, topic="other")
    published(other)
    made = Rescued(tmp_path, world, other)
    assert made.run("undelete", "orders")[0] == 0
    return made


def test_it_is_named_and_what_came_back_is_not_called_left(rescued: Rescued) -> None:
    assert persons(looked(rescued.folder, in_kafka(rescued.other))) == set()
    rescued.record.write_bytes(b'{"x')
    report = looked(rescued.folder, in_kafka(rescued.other))
    assert persons(report) == {("undelete_damaged", None)}
    (finding,) = of(report, CauseCode.UNDELETE_DAMAGED)
    assert undelete_key(rescued.world.topic_id) in finding.said
    assert persons(looked(rescued.folder)) == {("undelete_damaged", None)}  # Kafka is not asked for it


def test_nothing_is_forgotten_while_it_cannot_be_read(rescued: Rescued) -> None:
    rescued.record.write_bytes(b'{"x')
    for yes in (False, True):
        with pytest.raises(BridgeError, match=r"undelete/.*does not parse.*A damaged record of an undelete"):
            rescued.forget(yes=yes)
    assert all(known.live for known in rescued.world.observe().segments)
    assert rescued.world.offsets() == list(range(18))


def test_without_it_what_is_deleted_can_be_brought_back_again(rescued: Rescued) -> None:
    rescued.record.write_bytes(b'{"x')
    for words in (["undelete", "orders"], ["undelete", "orders", "--undo"], ["maintain", "orders"]):
        code, said = rescued.run(*words)
        assert (code, "does not parse" in said) == (1, True), words
    rescued.record.unlink()
    assert rescued.run("maintain", "orders")[0] == 0
    assert persons(looked(rescued.folder, in_kafka(rescued.other))) == {("topic_left", None)}
    assert rescued.world.offsets() == list(range(18))
    rescued.forget()
    assert rescued.world.offsets() == []
    assert rescued.run("undelete", "orders")[0] == 0
    assert rescued.world.offsets() == list(range(18))
    assert len(UndeleteRecord(rescued.world.store, rescued.world.topic_id).read().restored) == 6
    assert persons(looked(rescued.folder, in_kafka(rescued.other))) == set()


def test_without_it_a_topic_that_lives_goes_on(tmp_path: Path) -> None:
    """What came back leaves the table with what Kafka deletes above it, and its objects stay."""
    world = make_world(tmp_path)
    segments = published(world, (3,) * 6)
    world.delete(*segments[:2])
    world.publish()
    lives = Rescued(tmp_path, world, world)
    assert lives.run("undelete", "orders")[0] == 0
    lives.record.unlink()
    world.delete(segments[2])
    world.publish()
    assert world.offsets() == list(range(9, 18))
    assert persons(looked(tmp_path, in_kafka(world, {0: {"log_start": 9}}, **{"retention.ms": "-1"}))) == set()
    assert lives.run("undelete", "orders")[0] == 0
    assert world.offsets() == list(range(6, 18))
