"""The commands that `tierberg status` prints work as they are pasted."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from rsm_bridge.config.settings import Settings
from rsm_bridge.metrics.progress.facts import Facts, KafkaTopic, Problem
from rsm_bridge.shell_words import command_line
from rsm_bridge.status import gather
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.cures import Called, advice, filled
from rsm_bridge.status.report import Finding
from rsm_bridge.status.text import as_json, as_text
from tests.support.status_facts import HOUR, NOW, beside, facts, kafka, kafka_topic, stored, stored_partition, table
from tests.worlds.maintain_support import World, make_world, published
from tierberg.cli import app

RUNNER = CliRunner()
CALLED = Called(Path("/etc/a b.yaml"), None, "b:1,c:2", "b:1,c:2")


def place(code: CauseCode, **changes: Any) -> Finding:
    return replace(
        Finding(code=code, level=Level.PERSON, said="said", topic="a.b-c", partition=7, topic_id="ab" * 16), **changes
    )


@pytest.mark.parametrize("code", list(CauseCode))
def test_every_command_names_its_topic(code: CauseCode) -> None:
    for text in (advice(place(code), CALLED), advice(place(code, topic_id=None), CALLED)):
        assert not re.search(r"\b(TOPIC|PARTITION|SERVERS)\b", text)
    assert advice(place(code, topic=None)) == CAUSES[code].advice


#: What a finding of the cause names, where it can.
NAMED = {
    CauseCode.TOPIC_GONE: "NAME",
    CauseCode.STATE_MISSING: "NAME",
    CauseCode.STATE_DAMAGED: "NAME",
    CauseCode.TABLE_MISMATCH: "NAME",
    CauseCode.TABLE_UNREADABLE: "NAME",
    CauseCode.TABLE_LOST: "UUID",
    CauseCode.ANOTHER_TABLE: "UUID",
    CauseCode.QUARANTINED: "KEY",
    CauseCode.CONFLICTING_SEGMENT: "KEY",
}


@pytest.mark.parametrize("of_deleted", [False, True])
@pytest.mark.parametrize("code", list(CauseCode))
def test_no_command_is_left_with_capitals_that_the_finding_can_fill(code: CauseCode, of_deleted: bool) -> None:
    """`NAMED` is what findings of the cause are made with: test_findings_name_what_their_advice_asks_for."""
    named = ((NAMED[code], "x/y"),) if code in NAMED else ()
    text = advice(place(code, named=named, of_deleted=of_deleted), CALLED)
    for command in re.findall(r"`(tierberg [^`]*)`", text):
        assert not re.search(r"\b[A-Z]{3,}\b", command), command
        assert command in {"tierberg status", "tierberg repartition"} or "--config '/etc/a b.yaml'" in command


def test_findings_name_what_their_advice_asks_for() -> None:
    other, there = beside()
    kinds = ("state_missing", "corrupt_state", "table_unreadable", "schema_mismatch")
    found: dict[CauseCode, dict[str, str]] = {}
    for item in (
        facts(stored(), other, kafka=kafka(there)),
        facts(stored(table=None, lost_tables=(("u-u", "kafka.old"),)), other, kafka=kafka(there)),
        *(facts(stored(table=None, table_problem=Problem(kind, "m", "kafka.orders"))) for kind in kinds),
        facts(stored(others=(("u-u", "kafka.old"),), quarantined={"bad_crc": 1}, quarantined_key="index/q")),
        facts(stored(stored_partition(conflict="index/c", publishable_end=80), table=table(frontiers={0: 80}))),
    ):
        found |= {one.code: dict(one.named) for one in assess(item).all_findings() if one.named}
    assert {code: list(named) for code, named in found.items()} == {code: [word] for code, word in NAMED.items()}
    values = {value for named in found.values() for value in named.values()}
    assert values == {"kafka.orders", "u-u", "index/q", "index/c"}


def parsed(command: str) -> dict[str, Any]:
    """What a command makes of its line, by parameter; with one that it does not have, it would be no cure."""
    at: Any = get_command(app)
    words = shlex.split(command)
    while hasattr(at, "commands"):
        at, words = at.commands[words[0]], words[1:]
    return dict(at.make_context("tierberg", words).params)


@pytest.mark.parametrize("topic", ["a.b-c", "-orders", "--yes", "--config"])
@pytest.mark.parametrize("of_deleted", [False, True])
@pytest.mark.parametrize("code", list(CauseCode))
def test_every_command_is_one_that_there_is(code: CauseCode, of_deleted: bool, topic: str) -> None:
    """Also with a name that looks like an option: Kafka allows it."""
    named = ((NAMED[code], "x/y"),) if code in NAMED else ()
    found = place(code, topic=topic, named=named, of_deleted=of_deleted)
    text = advice(found, Called(config=Path("/c.yaml"), data_dir=Path("/no where"), bootstrap_server="b:1"))
    for command in re.findall(r"`tierberg ([^`]+)`", text):
        if command in {"status", "repartition"}:
            continue
        given = parsed(command)
        assert given["config"] == Path("/c.yaml"), command
        assert given["data_dir"] == Path("/no where"), command
        about = [given[word] for word in ("topic", "topics", "name", "target") if given.get(word) is not None]
        assert about in ([topic], [[topic]], [(topic,)], ["x/y"], []), command
        assert given.get("partition", 7) == 7
    for command in re.findall(r"`kafka-configs\.sh ([^`]+)`", text):
        assert f"--entity-name={topic} --add" in command or not topic.startswith("-")


def test_a_command_has_no_backtick_within(tmp_path: Path) -> None:
    """They are printed between backticks; the shell puts it back."""
    folder = tmp_path / "it's`a `folder"
    text = advice(place(CauseCode.MASS_DELETE), Called(data_dir=folder))
    (command,) = re.findall(r"`tierberg (undelete [^`]*--data-dir [^`]*)`", text)
    said = subprocess.run(["bash", "-c", f"printf '%s|' {command}"], capture_output=True, text=True, check=True)
    assert said.stdout.split("|")[-2] == str(folder)


def test_a_topic_whose_name_is_an_option_is_cured_as_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path, topic="--yes")
    segments = published(world, (3,) * 4)
    world.delete(*segments[1:])
    world.publish()
    world.delete(segments[0])
    other = World(world.store, world.catalog, topic="other")
    published(other)
    monkeypatch.setattr(gather, "_kafka", lambda _, found: replace(found, kafka=kafka(there_of(other))))
    text, needed = status(StatusOptions(data_dir=tmp_path, bridge="none", patience=0.0))
    assert needed, text
    (command,) = re.findall(r"`tierberg (undelete [^`]*)`", text)
    done = RUNNER.invoke(app, shlex.split(command))
    assert done.exit_code == 0, done.output
    assert world.offsets() == list(range(12))
    Path(world.store.uri(world.stored("index")[0]).removeprefix("file://")).write_bytes(b"damaged")
    text, _ = status(StatusOptions(data_dir=tmp_path, bridge="none", patience=0.0))
    (command,) = re.findall(r"`tierberg (verify [^`]*)`", text)
    done = RUNNER.invoke(app, shlex.split(command))
    assert done.exit_code == 1, done.output
    assert world.stored("index")[0] in done.output


def there_of(world: World) -> KafkaTopic:
    return kafka_topic(topic=world.topic, topic_id=world.topic_id.hex())


def test_a_command_that_was_printed_whole_gets_the_options_too() -> None:
    """A job of projections has written it, and does not know how status was called."""
    again = command_line("tierberg repartition", ["-orders"], ["--repair"])
    said = filled(f"x (`{again}`)", place(CauseCode.COPY_FAILED, topic="-orders", topic_id=None), CALLED)
    assert said == "x (`tierberg repartition --repair --config '/etc/a b.yaml' -- -orders`)"


def test_only_commands_that_act_on_one_id_get_it_and_forget_gets_the_brokers() -> None:
    own = f"--topic-id {'ab' * 16} --config '/etc/a b.yaml'"
    assert f"`tierberg undelete a.b-c {own}`" in advice(place(CauseCode.MASS_DELETE), CALLED)
    assert f"`tierberg topic forget a.b-c {own} --bootstrap-server b:1,c:2`" in advice(
        place(CauseCode.TOPIC_LEFT), CALLED
    )
    assert f"`tierberg leader-epochs a.b-c 7 {own}`" in advice(place(CauseCode.EPOCHS_CUT), CALLED)
    assert "`tierberg verify --topic a.b-c --config '/etc/a b.yaml'`" in advice(place(CauseCode.OBJECTS_LOST), CALLED)
    assert "--bootstrap-server b:1,c:2 --alter --entity-type topics --entity-name a.b-c" in advice(
        place(CauseCode.REMOTE_STORAGE_OFF), CALLED
    )
    assert "`tierberg undelete a.b-c`" in advice(place(CauseCode.MASS_DELETE, topic_id=None))


def test_what_a_projections_job_said_is_made_whole_too() -> None:
    said = filled("x (run `tierberg repartition TOPIC --repair`)", place(CauseCode.COPY_FAILED))
    assert said == f"x (run `tierberg repartition a.b-c --repair --topic-id {'ab' * 16}`)"


def test_the_same_cause_of_two_topics_has_a_command_for_each() -> None:
    left: dict[str, Any] = {"left": 2, "deleted_ms": NOW - HOUR}
    topics = [stored(topic=name, topic_id=digit * 32, **left) for name, digit in (("x", "1"), ("y", "2"))]
    there = stored(topic="z", topic_id="3" * 32), kafka_topic(topic="z", topic_id="3" * 32)
    report = assess(facts(*topics, there[0], kafka=kafka(there[1])))
    text = as_text(report)
    assert "TOPIC" not in text
    assert "`tierberg topic forget x` says what would go" in text
    assert "        and: `tierberg topic forget y`\n" in text
    (x, y) = json.loads(as_json(report))["topics"][:2]
    assert "`tierberg topic forget x`" in x["findings"][0]["advice"]
    assert "`tierberg topic forget y`" in y["findings"][0]["advice"]


def test_the_cure_of_a_topic_that_was_made_again_works_as_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two topic ids have its name, which alone is refused."""
    world = make_world(tmp_path)
    segments = published(world)
    world.delete(*segments)
    world.publish()
    again = World(world.store, world.catalog)
    published(again)
    there = kafka(kafka_topic(topic_id=again.topic_id.hex()))

    def asked_for(_: Settings, found: Facts) -> Facts:
        return replace(found, kafka=there)

    monkeypatch.setattr(gather, "_kafka", asked_for)
    text, needed = status(StatusOptions(data_dir=tmp_path, bridge="none", patience=0.0))
    assert needed
    (command,) = re.findall(r"`tierberg (undelete [^`]*)`", text)
    assert world.offsets() == []
    done = RUNNER.invoke(app, shlex.split(command))
    assert done.exit_code == 0, done.output
    assert world.offsets() == list(range(9))


def test_a_name_that_several_have_is_refused_with_ids_and_clusters(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    namesake = World(world.store, world.catalog, cluster="west")
    for item in (world, namesake):
        published(item)
    for command in (["undelete", "orders"], ["leader-epochs", "orders", "0"]):
        done = RUNNER.invoke(app, [*command, "--data-dir", str(tmp_path)])
        assert done.exit_code == 1
        for item in (world, namesake):
            assert f"{item.topic_id.hex()} (cluster {item.cluster})" in done.output
