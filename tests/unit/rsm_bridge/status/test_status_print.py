"""The report as people and programs get it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from rsm_bridge.errors import SettingsError
from rsm_bridge.metrics.progress.facts import Facts, Problem, UnfinishedTransaction
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.report import Accepted
from rsm_bridge.status.text import as_json, as_text
from rsm_bridge.words import age, moment, plural
from tests.support.status_facts import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    facts,
    kafka,
    kafka_partition,
    kafka_topic,
    pending,
    stored,
    stored_partition,
    table,
)

SCHEMA = json.loads((Path(__file__).resolve().parents[4] / "docs" / "status.schema.json").read_text())
AWAY = Problem("unavailable", "connection refused")


def broken() -> Facts:
    """A catalog that is away, a quarantined batch, nothing closed, and a topic that is not tiered."""
    cluster = kafka(
        kafka_topic(kafka_partition(end=110, stable_end=110, pending_ms=NOW - 60_000, newest_ms=NOW - 1000)),
        kafka_topic(topic="clicks", topic_id="cd" * 16, config={"remote.storage.enable": "false"}),
    )
    topic = stored(stored_partition(publishable_end=None), table=None, quarantined={"bad_crc": 1})
    return facts(topic, catalog_problem=AWAY, kafka=cluster)


def waiting() -> Facts:
    open_ = UnfinishedTransaction(90, 7, NOW - 30_000)
    part = stored_partition(publishable_end=80, unpublished_ms=NOW - 30_000, open=open_)
    return facts(stored(part, table=table(frontiers={0: 80})))


def test_what_needs_somebody_comes_first_with_what_to_do() -> None:
    lines = as_text(assess(broken())).splitlines()
    assert lines[0] == "somebody is needed: 2 findings in 1 tiered topic, 1 partition"
    causes = [line for line in lines if line[:2] in ("!!", "..", " i")]
    assert [line.split(":")[0] for line in causes[:4]] == [
        "!! catalog_away",
        "!! quarantined",
        ".. nothing_closed",
        " i remote_storage_off",
    ]
    at = lines.index(causes[0])
    assert lines[at + 1].strip() == "connection refused"
    assert lines[at + 2].strip().startswith("-> Mend the catalog.")


def test_topics_that_stay_local_take_one_line() -> None:
    text = as_text(assess(broken()))
    assert "     clicks\n" in text
    assert "clicks-0" not in text


def test_the_table_shows_every_stage() -> None:
    head, row = as_text(assess(waiting())).splitlines()[-2:]
    assert head.split() == ["PARTITION", "PRODUCED", "CLOSED", "TIERED", "(AGE)", "PUBLISHED", "BEHIND", "CAUSE"]
    assert row.split() == ["..", "orders-0", "100", "100", "100", "1", "h", "80", "30", "s", "waiting_transaction"]
    assert head.index("CAUSE") == row.index("waiting_transaction")


def test_a_healthy_cluster_is_short() -> None:
    lines = as_text(assess(facts())).splitlines()
    assert lines[0] == "nobody is needed: 1 tiered topic, 1 partition"
    assert len(lines) == 4
    assert lines[-1].endswith("published")


def test_many_partitions_show_the_worst() -> None:
    parts = {number: stored_partition() for number in range(20)}
    parts[13] = stored_partition(publishable_end=100, unpublished_ms=NOW - HOUR)
    frontiers = dict.fromkeys(range(20), 100) | {13: 50}
    topic = stored(partitions=parts, table=table(frontiers=frontiers))
    report = assess(facts(topic, kafka=None))
    rows = [line for line in as_text(report).splitlines() if "orders-" in line and "published" in line]
    assert "orders-13" in as_text(report).split("PARTITION")[1].splitlines()[1]
    assert len(rows) == 4
    assert "orders: 15 more, none worse than `ok`" in as_text(report)
    every = as_text(report, every_partition=True).split("PARTITION")[1]
    assert all(f"orders-{number} " in every for number in range(20))


def many_quarantined() -> Facts:
    """Nine topics; the one in the middle of the alphabet has had it since a minute, the others for days."""
    times = {number: NOW - (10 + number) * DAY for number in range(9)} | {5: NOW - MINUTE}
    topics = [
        stored(topic=f"t{number}", topic_id=f"{number:032x}", quarantined={"bad_crc": 1}, withheld_ms=times[number])
        for number in range(9)
    ]
    return facts(*topics, kafka=None)


def test_the_same_cause_at_many_places_is_said_once_the_newest_first() -> None:
    text = as_text(assess(many_quarantined()))
    assert text.count("quarantined:") == 1
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if "!! quarantined" in line)
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["t5:", "t0:", "t1:"]
    assert lines[at + 4].strip() == "and at 6 places more, older ones: --all shows them"


def test_all_shows_every_place() -> None:
    text = as_text(assess(many_quarantined()), every_place=True)
    assert "more" not in text
    assert all(f" t{number}: " in text for number in range(9))
    assert len([item for item in json.loads(as_json(assess(many_quarantined())))["topics"] if item["findings"]]) == 9


def test_accepted_causes_are_shown_and_do_not_count() -> None:
    report = assess(facts(stored(quarantined={"bad_crc": 1})))
    assert as_text(report).startswith("somebody is needed")
    for topic in (None, "orders"):
        known = Accepted(frozenset({(CauseCode.QUARANTINED, topic)}))
        text = as_text(report, known)
        assert text.startswith("nobody is needed")
        assert "!! (accepted) quarantined" in text
        assert json.loads(as_json(report, known))["needs_person"] is False


@pytest.mark.parametrize("word", ["quarantined:", "x", "", ":orders", "Quarantined"])
def test_what_is_accepted_names_a_cause_and_after_a_colon_a_topic(word: str) -> None:
    with pytest.raises(SettingsError, match="--accept"):
        status(StatusOptions(accept=(word,)))


def test_what_is_accepted_of_one_topic_calls_for_another() -> None:
    other = replace(stored(quarantined={"bad_crc": 2}), topic="payments", topic_id="cd" * 16)
    report = assess(facts(stored(quarantined={"bad_crc": 1}), other, kafka=None))
    text = as_text(report, Accepted(frozenset({(CauseCode.QUARANTINED, "orders")})))
    assert text.startswith("somebody is needed: 1 finding")
    assert text.index("!! quarantined") < text.index("payments: 2 batches") < text.index("!! (accepted) quarantined")


@pytest.mark.parametrize("make", [broken, waiting, facts, lambda: facts(kafka=pending()), lambda: facts(wanted="x")])
def test_json_follows_its_schema(make: Callable[[], Facts]) -> None:
    document = json.loads(as_json(assess(make())))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA)


def test_json_says_everything() -> None:
    document = json.loads(as_json(assess(waiting())))
    (topic,) = document["topics"]
    (partition,) = topic["partitions"]
    assert document["level"] == "waits"
    assert not document["needs_person"]
    assert partition["cause"] == "waiting_transaction"
    assert partition["waiting"] == {"first_offset": 90, "producer_id": 7, "since_ms": NOW - 30_000}
    assert (partition["produced_end"], partition["closed_end"]) == (100, 100)
    assert (partition["tiered_end"], partition["published_end"]) == (100, 80)
    assert partition["lag_s"] == 30
    assert partition["findings"][0]["advice"]


def test_every_field_is_in_the_schema() -> None:
    document = json.loads(as_json(assess(waiting())))
    definitions = SCHEMA["$defs"]
    assert document.keys() == SCHEMA["properties"].keys()
    assert document["topics"][0].keys() == definitions["topic"]["properties"].keys()
    assert document["topics"][0]["partitions"][0].keys() == definitions["partition"]["properties"].keys()
    finding = document["topics"][0]["partitions"][0]["findings"][0]
    assert finding.keys() == definitions["finding"]["properties"].keys()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (3, "3 s"),
        (59.6, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (788_400, "9 d 3 h"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_moments() -> None:
    assert moment(NOW, NOW) == "22:13:20 UTC"
    assert moment(NOW - 48 * HOUR, NOW) == "2023-11-12 22:13 UTC"
    assert moment(2**62, NOW) == f"{2**62} ms"


def test_counts() -> None:
    assert plural(1, "batch", "batches") == "1 batch"
    assert plural(1234, "batch", "batches") == "1,234 batches"
