"""The commands that `tierberg status` prints work as they are pasted."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rsm_bridge import progress_gather
from rsm_bridge.cli import app
from rsm_bridge.progress import assess
from rsm_bridge.progress_causes import CAUSES, CauseCode, Level
from rsm_bridge.progress_cures import Called, advice, filled
from rsm_bridge.progress_facts import Facts
from rsm_bridge.progress_print import as_json, as_text
from rsm_bridge.progress_report import Finding
from rsm_bridge.settings import Settings
from rsm_bridge.status_command import StatusOptions, status
from tests.support.status_facts import HOUR, NOW, facts, kafka, kafka_topic, stored
from tests.unit.maintain_support import World, make_world, published

RUNNER = CliRunner()
CALLED = Called(Path("/etc/a b.yaml"), None, "b:1,c:2", "b:1,c:2")


def place(code: CauseCode, **changes: Any) -> Finding:
    return replace(Finding(code, Level.PERSON, "said", "a.b-c", 7, topic_id="ab" * 16), **changes)


@pytest.mark.parametrize("code", list(CauseCode))
def test_every_command_names_its_topic(code: CauseCode) -> None:
    for text in (advice(place(code), CALLED), advice(place(code, topic_id=None), CALLED)):
        assert not re.search(r"\b(TOPIC|PARTITION|SERVERS)\b", text)
    assert advice(place(code, topic=None)) == CAUSES[code].advice


@pytest.mark.parametrize("code", list(CauseCode))
def test_every_command_is_one_that_there_is(code: CauseCode) -> None:
    """With an option that the command does not have, it would be no cure."""
    text = advice(place(code), Called(data_dir=Path("/nowhere"), bootstrap_server="b:1"))
    for command in re.findall(r"`tierberg ([^`]*a\.b-c[^`]*)`", text):
        done = RUNNER.invoke(app, [*shlex.split(command), "--help"])
        assert done.exit_code == 0, command
        for option in re.findall(r"--[a-z-]+", command):
            assert option in re.sub(r"\s+", "", done.output), command


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


def test_what_a_copys_job_said_is_made_whole_too() -> None:
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

    monkeypatch.setattr(progress_gather, "_kafka", asked_for)
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
