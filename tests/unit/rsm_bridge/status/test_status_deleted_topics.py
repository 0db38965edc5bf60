"""What `tierberg status` says of a topic that Kafka has no more ends by pasting what it prints, in that order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from converter.types import SegmentMetadata
from iceberg_catalog.commit.foreign import foreign_commits
from rsm_bridge.config.settings import Settings
from rsm_bridge.metrics.progress.facts import Facts, KafkaFacts
from rsm_bridge.status import gather
from rsm_bridge.status.causes import CauseCode, Level
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.cures import Called, commands
from rsm_bridge.status.report import Finding, Report
from rsm_bridge.storage.segments.known import read_segments
from rsm_bridge.tables.maintain import topic_forget
from rsm_bridge.tables.reclaim.reclaimer import Graces
from tests.support.status_facts import kafka
from tests.worlds import foreign_support as engine
from tests.worlds.catalog_support import Place
from tests.worlds.maintain_support import DAY, World, make_world, published
from tests.worlds.status_support import in_kafka, looked, of, persons
from tierberg.cli import app

HOUR = 3600


@dataclass
class Deleted:
    """A topic of two partitions that was published and then deleted in Kafka; another one lives there."""

    folder: Path
    world: World
    other: World
    segments: list[SegmentMetadata]
    again: World | None = None
    lives: bool = False
    asked: bool = True

    def in_kafka(self) -> list[World]:
        return [self.other, *([] if self.again is None else [self.again]), *([self.world] if self.lives else [])]

    def run(self, command: str) -> tuple[int, str]:
        """A whole command line, as pasted."""
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        return done.exit_code, done.output

    def status(self) -> tuple[str, bool]:
        return status(StatusOptions(data_dir=self.folder, bridge="none", patience=0.0))

    def report(self) -> Report:
        return looked(self.folder)

    def finding(self, code: CauseCode) -> Finding:
        (found,) = of(self.report(), code)
        return found

    def publish(self) -> None:
        """A bridge's next run."""
        for world in (self.world, self.other, *([] if self.again is None else [self.again])):
            world.new_publisher().run()

    def forget(self, ends: int = 0) -> str:
        code, told = self.run(f"tierberg topic forget orders --yes --data-dir {self.folder}")
        assert code == ends, told
        return told


@pytest.fixture
def deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deleted:
    world = make_world(tmp_path, graces=Graces(600, DAY))
    segments = [*published(world, (3,) * 4), world.copy(3, 1), world.copy(3, 1)]
    world.publish()
    other = World(world.store, world.catalog, topic="other")
    published(other)
    made = Deleted(tmp_path, world, other, segments)

    def answer() -> KafkaFacts:
        return kafka(*(in_kafka(item) for item in made.in_kafka()))

    def asked(_: Settings, facts: Facts) -> Facts:
        return replace(facts, kafka=answer() if made.asked else None)

    monkeypatch.setattr(gather, "_kafka", asked)
    monkeypatch.setattr(topic_forget, "kafka_of", lambda *_: lambda _topic: answer())
    monkeypatch.setattr(topic_forget, "FORGET_WATCH_SECONDS", 0.0)
    return made


def mass_delete(it: Deleted) -> None:
    """Kafka's own, of most of the table, before it stopped deleting."""
    it.world.ahead_ms = -2 * HOUR * 1000
    it.world.delete(*it.segments[:-1])
    it.world.ahead_ms = 0
    it.world.publish()


def all_deleted(it: Deleted) -> None:
    """All of it, as Kafka does with a deleted topic while a bridge answers."""
    it.world.ahead_ms = -2 * HOUR * 1000
    it.world.delete(*it.segments)
    it.world.ahead_ms = 0
    it.world.publish()


def withdraw(it: Deleted) -> None:
    """The reply to the last copy was lost."""
    it.world.ahead_ms = -2 * HOUR * 1000
    it.world.withdraw(it.segments[-1])
    it.world.ahead_ms = 0
    it.world.publish()


def insert(it: Deleted) -> None:
    engine.insert(it.world.loaded(), range(9_000, 9_003))


def rewrite(it: Deleted) -> None:
    engine.rewrite(it.world.loaded())


def lose_manifests(it: Deleted) -> None:
    head = it.world.loaded().current_snapshot()
    assert head is not None
    Path(head.manifest_list.removeprefix("file://")).unlink()


def lose_states(it: Deleted) -> None:
    for path in (it.folder / "store" / "state" / str(it.world.loaded().metadata.table_uuid)).rglob("*.json"):
        path.unlink()


def drop_it(it: Deleted) -> None:
    """By an engine."""
    it.world.catalog.drop_table(it.world.loaded().name())


def drop_and_publish(it: Deleted) -> None:
    """A bridge had made the table anew from what is left."""
    drop_it(it)
    it.publish()


def create_again(it: Deleted) -> None:
    """A topic of the same name, which has a table of its own."""
    it.again = World(it.world.store, it.world.catalog)
    published(it.again)


#: What happens to a topic beside its being deleted while no bridge answered, in an order in which it can.
TROUBLES: dict[str, Callable[[Deleted], None]] = {
    "mass_delete": mass_delete,
    "all_deleted": all_deleted,
    "withdrawn": withdraw,
    "made_anew": drop_and_publish,
    "insert": insert,
    "rewrite": rewrite,
    "manifests": lose_manifests,
    "states": lose_states,
    "dropped": drop_it,
    "created_again": create_again,
}
DELETES, WRITES = {"mass_delete", "all_deleted"}, {"insert", "rewrite"}
#: No two of one kind; and of a table without rows nothing is rewritten, nor is it made anew.
APART = (
    {*DELETES, "withdrawn"},
    WRITES,
    {"manifests", "states", "dropped"},
    {"all_deleted", "rewrite"},
    {"all_deleted", "made_anew"},
)
PAIRS = [pair for pair in combinations(TROUBLES, 2) if not any(set(pair) <= both for both in APART)]


def urgent(text: str) -> Iterator[tuple[str, str]]:
    """(cause, command) in the order of a printed status, of what needs a person; a command may be empty."""
    cause = None
    for line in text.splitlines():
        if head := re.match(r"(!!|\.\.| i|ok) (\w+):", line):
            cause = head[2] if head[1] == "!!" else None
        if cause is not None:
            yield from ((cause, command) for command in re.findall(r"`(tierberg [^`]+)`", line))
            if line.startswith("     -> "):
                yield cause, ""


def paste(it: Deleted, text: str) -> list[str]:
    """Does what a printed status says, each once and in its order; returns the commands and how they ended."""
    done: list[str] = []
    for cause, command in dict.fromkeys(urgent(text)):
        table = it.world.table()
        if cause == "foreign_commits" and not command and table is not None:
            commits = foreign_commits(table)
            assert commits is not None
            assert commits.since is not None
            engine.roll_back(Place(it.world.catalog, table, it.folder), commits.since)
        elif command:
            assert not re.search(r"\b[A-Z]{3,}\b", command), command
            done.append(f"{command} -> {it.run(command)}")
    it.publish()
    return done


@pytest.mark.parametrize("troubles", [*((name,) for name in TROUBLES), *PAIRS], ids="+".join)
def test_what_is_printed_ends_it_as_pasted(deleted: Deleted, troubles: tuple[str, ...]) -> None:
    for name in troubles:
        TROUBLES[name](deleted)
    text, needed = deleted.status()
    assert needed
    pasted = paste(deleted, text)
    text, needed = deleted.status()
    if needed and "made_anew" in troubles:  # nobody knows which of two tables the unreadable one was
        pasted += paste(deleted, text)
        text, needed = deleted.status()
    assert not needed, "\n".join([*pasted, text])
    assert deleted.other.offsets() == list(range(9))
    if deleted.again is not None:
        assert deleted.again.offsets() == list(range(9))
    if set(troubles) & DELETES:
        return  # what Kafka deleted is brought back by `undelete`, which status names for it
    if {"withdrawn", "rewrite"} <= set(troubles):
        return  # rows of it were in the engine's files, and come back with the rollback: `topic_left` in ten minutes
    assert deleted.world.table() is None or deleted.world.offsets() == deleted.world.offsets(1) == []
    assert not any(known.live for known in deleted.world.observe().segments)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "created_again"])
def test_after_a_lost_table_was_ended_all_of_a_forgotten_topic_goes_when_its_grace_is_over(
    deleted: Deleted, again: bool
) -> None:
    drop_it(deleted)
    if again:
        create_again(deleted)
    text, _ = deleted.status()
    paste(deleted, text)
    world = deleted.world
    stored = world.stored()
    world.later(DAY - 60)
    assert not world.reclaim().objects
    world.maintain()
    assert world.stored() == stored
    world.later(120)
    world.reclaim()
    world.maintain()
    assert world.stored() == []
    report = deleted.report()
    assert not persons(report)
    assert world.topic_id.hex() not in {topic.topic_id for topic in report.topics}


def test_until_a_lost_table_is_ended_nothing_of_the_topic_is_reclaimed(deleted: Deleted) -> None:
    drop_it(deleted)
    deleted.forget()
    assert persons(deleted.report()) == {("table_lost", None)}
    (command,) = commands(deleted.finding(CauseCode.TABLE_LOST), Called(data_dir=deleted.folder))
    deleted.world.later(2 * DAY)
    assert not deleted.world.reclaim().objects
    assert deleted.run(command)[0] == 0
    assert deleted.world.reclaim().objects
    assert not persons(deleted.report())


def test_a_lost_table_is_ended_for_no_topic_that_may_live(deleted: Deleted) -> None:
    """Kafka has it, was not asked and nobody has forgotten it, or the whole catalog is away."""

    def advised(report: Report) -> str:
        return next(item for item in of(report, CauseCode.TABLE_LOST) if item.topic == "orders").advice

    drop_it(deleted)
    assert "table drop UUID" in advised(deleted.report())
    deleted.asked = False
    assert "table drop" not in advised(deleted.report())
    deleted.asked = deleted.lives = True
    assert "table drop" not in advised(deleted.report())
    deleted.lives = False
    deleted.forget()
    for deleted.asked in (False, True):
        assert "table drop UUID" in advised(deleted.report())
    deleted.world.catalog.drop_table(deleted.other.loaded().name())
    for deleted.asked in (False, True):
        assert "table drop" not in advised(deleted.report())


def test_both_advices_of_a_cause_are_printed(deleted: Deleted) -> None:
    third = World(deleted.world.store, deleted.world.catalog, topic="third")
    published(third)
    for world in (deleted.world, deleted.other):
        world.catalog.drop_table(world.loaded().name())
    text, _ = deleted.status()
    told = [line for line in text.splitlines() if "table_lost" in line or "table drop" in line or "undelete" in line]
    assert [bool(re.search("table drop [0-9a-f-]{36}", line)) for line in told].count(True) == 1
    assert sum("tierberg undelete other" in line for line in told) == 1
    assert not any("undelete orders" in line for line in told)


def test_what_was_forgotten_is_a_note_that_says_how_it_comes_back(deleted: Deleted) -> None:
    deleted.forget()
    for deleted.asked in (False, True):
        found = deleted.finding(CauseCode.MASS_DELETE)
        assert found.level is Level.NOTE
        assert found.said.startswith("18 rows in 6 segments were deleted by topic forget up to ")
        assert re.search(r", kept (1 d|23 h 59 min) more$", found.said)
        assert not persons(deleted.report())
    (command,) = commands(deleted.finding(CauseCode.MASS_DELETE), Called(data_dir=deleted.folder))
    assert deleted.run(command)[0] == 0
    assert (deleted.world.offsets(), deleted.world.offsets(1)) == (list(range(12)), list(range(6)))
    assert not persons(deleted.report())


def test_a_topic_that_was_forgotten_and_that_kafka_has_needs_somebody(deleted: Deleted) -> None:
    """As with a wrong word for its cluster: consumers get `not_found`."""
    deleted.forget()
    deleted.lives = True
    found = deleted.finding(CauseCode.MASS_DELETE)
    assert found.level is Level.PERSON
    assert found.said.endswith(" more; Kafka has the topic, and its consumers miss them")


def test_a_forget_does_not_silence_what_kafka_had_deleted(deleted: Deleted) -> None:
    mass_delete(deleted)
    assert ("mass_delete", None) in persons(deleted.report())
    deleted.forget()
    found = of(deleted.report(), CauseCode.MASS_DELETE)
    assert [item.level for item in found] == [Level.PERSON, Level.NOTE]
    assert found[0].said.startswith("15 rows in 5 segments, over half of the table's, were deleted up to")
    assert found[1].said.startswith("3 rows in 1 segment were deleted by topic forget up to")


def test_it_says_what_stays_in_files_of_other_engines(deleted: Deleted) -> None:
    rewrite(deleted)
    told = deleted.forget()
    assert "0 files left the table" in told
    assert "orders: left in the table 2 files not written by Tierberg, with 18 rows: see `foreign_files`" in told


def test_it_says_nothing_of_other_engines_where_there_are_none(deleted: Deleted) -> None:
    assert "left in the table" not in deleted.forget()


@pytest.mark.parametrize("lose", [lose_manifests, lose_states])
def test_a_table_that_cannot_be_read_does_not_hide_that_segments_were_deleted(
    deleted: Deleted, lose: Callable[[Deleted], None]
) -> None:
    lose(deleted)
    assert "orders: 6 segments deleted, and the table cannot be read" in deleted.forget(ends=1)
    assert not any(known.live for known in read_segments(deleted.world.store, deleted.world.topic_id))
