"""`tierberg config check`: what the rules make of live topics, and what is wrong; Kafka and registry from memory.

Real ones: tests/e2e/test_e2e_config_check.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import SettingsError
from rsm_bridge.metrics.progress.facts import KafkaFacts, KafkaTopic
from rsm_bridge.status.check.report import ConfigReport, TopicCheck
from rsm_bridge.status.check.rules import check
from rsm_bridge.status.check.schemas import SchemaChecks
from rsm_bridge.status.check.text import as_json, as_text
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.values.registry import protobuf_compiler
from rsm_bridge.values.registry.registry import SchemaRegistry
from rsm_bridge.values.typed.topics import opened_typed_topics
from tests.support.answering_server import AnsweringServer, answering
from tests.support.registry_answers import Schemas
from tierberg.cli import app

PLUGIN = "io.tierberg.rsm.TierbergRemoteStorageManager"
BROKER = {"remote.log.storage.system.enable": "true", "remote.log.storage.manager.class.name": PLUGIN}
TIERED = {"remote.storage.enable": "true", "cleanup.policy": "delete"}


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering() as started:
        yield started


@pytest.fixture
def schemas(server: AnsweringServer) -> Schemas:
    registered = Schemas()
    server.answers = registered.answer
    return registered


def kafka(*tiered: str, broker: dict[str, str] | None = None, **others: dict[str, str]) -> KafkaFacts:
    config = {**dict.fromkeys(tiered, TIERED), **others}
    topics = {
        name: KafkaTopic(topic=name, topic_id="00" * 16, internal=name.startswith("__"), config=values, partitions={})
        for name, values in sorted(config.items())
    }
    return KafkaFacts(topics, BROKER if broker is None else broker)


def run(
    rules: str, facts: KafkaFacts | None, names: Sequence[str] = (), registry: AnsweringServer | None = None
) -> ConfigReport:
    section = None if registry is None else {"url": registry.uri}
    settings = load_settings(None, {"topics": yaml.safe_load(rules), "schema_registry": section})
    if registry is None:
        return check(settings, facts, names, SchemaChecks(None))
    opened = SchemaRegistry(SchemaRegistrySettings(url=registry.uri))
    try:
        return check(settings, facts, names, SchemaChecks(opened))
    finally:
        opened.close()


def topic(report: ConfigReport, name: str) -> TopicCheck:
    (found,) = (each for each in report.topics if each.topic == name)
    return found


def said(report: ConfigReport, name: str | None = None) -> list[tuple[str, str]]:
    remarks = report.remarks if name is None else topic(report, name).remarks
    return [(remark.level, remark.text) for remark in remarks]


def test_each_topic_says_which_rule_and_what_becomes_of_it() -> None:
    rules = """
    - {pattern: logs-.*, value_format: string, table: "{topic}_lines", table_retention: 30d}
    - {pattern: blobs, mode: verbatim}
    - {pattern: events, value_format: json, key_format: string}
    """
    report = run(rules, kafka("logs-a", "blobs", "events", "other"))
    assert [each.topic for each in report.topics] == ["blobs", "events", "logs-a", "other"]
    logs = topic(report, "logs-a")
    assert (logs.tiered, logs.rule, logs.pattern, logs.table) == (True, 0, "logs-.*", "kafka.logs_a_lines")
    assert (logs.value.format, logs.value.origin, logs.table_retention) == ("string", None, 30 * 86400)
    assert (topic(report, "blobs").mode, topic(report, "blobs").table) == ("verbatim", None)
    assert (topic(report, "events").value.origin, topic(report, "events").key.format) == ("inferred", "string")
    assert (topic(report, "other").rule, topic(report, "other").value.format) == (None, "raw")
    assert not report.remarks
    assert not report.wrong


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"remote.storage.enable": "false"}, "remote_storage_off"),
        ({}, "remote_storage_off"),
        ({"cleanup.policy": "delete,compact", "remote.storage.enable": "false"}, "compacted"),
        ({**TIERED, "remote.log.copy.disable": "true"}, "copy_disabled"),
    ],
)
def test_why_a_topic_is_not_tiered(
    server: AnsweringServer, schemas: Schemas, config: dict[str, str], code: str
) -> None:
    rules = "[{pattern: local, value_format: avro, value_schema: {from: subject}}]"
    report = run(rules, kafka(local=config), registry=server)
    local = topic(report, "local")
    assert local.tiered is False
    assert local.why_not is not None
    assert local.why_not[0] == code
    # What it would need is nobody's trouble.
    assert not report.wrong
    assert not server.seen
    assert "  tiered     no: " in as_text(report)


def test_internal_topics_are_shown_when_named() -> None:
    facts = kafka("a", __consumer_offsets=TIERED)
    assert [each.topic for each in run("[]", facts).topics] == ["a"]
    named = topic(run("[]", facts, ["__consumer_offsets"]), "__consumer_offsets")
    assert named.why_not is not None
    assert named.why_not[0] == "internal_topic"


@pytest.mark.parametrize(
    ("broker", "code", "text"),
    [
        ({"remote.log.storage.system.enable": "false"}, "broker_not_tiering", "remote.log.storage.system.enable=false"),
        ({**BROKER, "remote.log.storage.manager.class.name": "a.B"}, "other_plugin", "the broker's plugin is a.B"),
    ],
)
def test_a_cluster_that_gives_us_nothing_is_an_error(broker: dict[str, str], code: str, text: str) -> None:
    report = run("[]", kafka("orders", broker=broker))
    assert report.wrong
    ((level, remark),) = said(report)
    assert level == "error"
    assert remark.startswith(text)
    why = topic(report, "orders").why_not
    assert why is not None
    assert why[0] == code


def test_rules_that_decide_nothing_are_named() -> None:
    rules = "[{pattern: 'a.*'}, {pattern: ab, table: x}, {pattern: zz}, {pattern: b, mode: verbatim}]"
    report = run(rules, kafka("ab", "b"))
    assert said(report) == [
        ("warning", "topics.1: 'ab' decides nothing: topics.0 matches the same topics first; check pattern and order"),
        ("warning", "topics.2: 'zz' matches no topic; check pattern and order"),
    ]
    assert not report.wrong
    # Of some topics nothing follows about the others.
    assert not said(run(rules, kafka("ab", "b"), ["b"]))
    assert not said(run(rules, None, ["b"]))


def test_topics_that_meet_in_one_table_are_named() -> None:
    report = run("[{pattern: 'x.*', table: shared}]", kafka("a-b", "a.b", "x1", "x2", "c", x3={}))
    assert said(report, "a-b")[0] == (
        "warning",
        "a.b would have the table kafka.a_b too: the first to be tiered has it, others get a suffix",
    )
    assert said(report, "x1")[0][1].startswith("x2 would have the table kafka.shared too")
    assert said(report, "c") == []
    assert [level for level, _ in said(report, "x3")] == ["note"]  # not tiered: it takes no name


def test_projections_are_shown_and_one_that_cannot_work_is_an_error() -> None:
    rules = """
    - pattern: 'x.'
      copies: [{table: fixed}, {table: "{topic}_by_day"}]
    - pattern: orders
      copies: [{table: "{topic}"}, {table: clients}]
    - pattern: twice
      copies: [{table: other.same}, {table: other.same, mode: upsert, key: [id]}]
    - pattern: elsewhere
      copies: [{table: "{topic}", catalog: {name: lake, properties: {type: rest}}}]
    """
    report = run(rules, kafka("x1", "x2", "orders", "clients", "twice", "elsewhere", x3={}))
    advice = "put {topic} into copies.table, or make a rule for each"
    assert said(report, "x1") == [("error", f"projection kafka.fixed: projections of x2 have this table too; {advice}")]
    assert said(report, "orders") == [
        ("error", "projection kafka.orders: this table is the topic's own; give the projection another name"),
        ("error", "projection kafka.clients: this table is that of topic clients; give the projection another name"),
    ]
    assert said(report, "twice") == [
        ("error", "projection other.same: two projections of the topic have this table; rename one")
    ]
    assert said(report, "elsewhere") == said(report, "clients") == []  # a table of another catalog
    assert report.wrong
    assert "  projection other.same, upsert" in as_text(report).splitlines()
    shown = {each["topic"]: each["projections"] for each in json.loads(as_json(report))["topics"]}
    assert shown["elsewhere"] == [{"catalog": "lake", "table": "kafka.elsewhere", "mode": "append"}]


def test_a_topic_that_kafka_does_not_have_is_an_error() -> None:
    report = run("[]", kafka("orders"), ["order"])
    assert said(report, "order") == [("error", "Kafka has no topic of this name; check the spelling")]
    assert report.wrong


AVRO = {"schema": '"long"'}
SUBJECT = "[{pattern: orders, value_format: avro, value_schema: {from: subject}}]"


def test_a_subject_is_looked_up_and_must_fit(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(7, "orders-value", AVRO)
    report = run(SUBJECT, kafka("orders"), registry=server)
    assert (topic(report, "orders").value.schema, said(report, "orders")) == ((7, "avro"), [])
    assert "subject orders-value: avro, id 7" in as_text(report)

    schemas.add(8, "orders-value", {"schema": "{}", "schemaType": "JSON"}, version=2)
    report = run(SUBJECT, kafka("orders"), registry=server)
    assert said(report, "orders") == [
        (
            "error",
            "value_format is avro, and the latest schema of subject orders-value is json (id 8); change one of them",
        )
    ]
    schemas.versions.clear()
    report = run(SUBJECT, kafka("orders"), registry=server)
    assert report.wrong
    assert "has none" in said(report, "orders")[0][1]
    assert "register a schema there, or change value_schema.subject" in said(report, "orders")[0][1]
    assert "subject orders-value: none" in as_text(report)


def test_a_subject_that_cannot_be_used_is_an_error(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(7, "orders-value", {"schema": "<x/>", "schemaType": "XML"})
    report = run(SUBJECT, kafka("orders"), registry=server)
    assert report.wrong
    assert "of the kind 'XML'" in said(report, "orders")[0][1]


def test_records_that_name_their_schemas_need_no_subject(server: AnsweringServer, schemas: Schemas) -> None:
    rules = "[{pattern: 'o.*', value_format: avro, key_format: avro}]"
    schemas.add(7, "other-value", {"schema": "{}", "schemaType": "JSON"})
    schemas.add(8, "other-key", AVRO)
    schemas.add(9, "auto-value", {"schema": "{}", "schemaType": "JSON"})
    report = run(rules, kafka("orders", "other", "auto", "plain"), registry=server)
    assert not report.wrong
    assert [level for level, _ in said(report, "orders")] == ["note", "note"]
    ((level, text),) = said(report, "other")
    assert level == "warning"
    assert text.startswith("value_format is avro, and the latest schema of subject other-value is json (id 7); records")
    assert topic(report, "other").key.schema == (8, "avro")
    assert (topic(report, "auto").value.format, topic(report, "auto").value.schema) == ("auto", (9, "json"))
    assert said(report, "auto") == said(report, "plain") == []


def test_a_registry_that_is_away_is_said_once(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.fail = lambda _: (503, {"message": "later"})
    report = run("[{pattern: .*, value_format: avro}]", kafka("a", "b", "c"), registry=server)
    assert len(server.seen) == 1
    ((level, text),) = said(report)
    assert level == "error"
    assert "answers 503, later" in text
    assert all(not each.remarks for each in report.topics)
    assert as_text(report).count("not known") == 3


def test_one_forbidden_subject_does_not_hide_the_others(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(1, "b-value", AVRO)
    good = schemas.versions["b-value", "latest"]
    schemas.fail = lambda request: (200, good) if "b-value" in request.path else (403, {"message": "no"})
    report = run("[{pattern: .*, value_format: avro}]", kafka("a", "b"), registry=server)
    assert "the right to read" in said(report, "a")[0][1]
    assert topic(report, "b").value.schema == (1, "avro")


def nested(depth: int) -> str:
    """Arrays within each other."""
    return '{"type": "array", "items": ' * depth + '"int"' + "}" * depth


@pytest.mark.parametrize(
    ("form", "text", "wrong"),
    [
        ("avro", '"long"', ""),
        ("json", "{}", ""),
        ("protobuf", 'syntax = "proto3"; message M { int32 a = 1; }', ""),
        ("protobuf", 'syntax = "proto3";', "value_schema: unusable_schema"),
        ("avro", '{"type": "array"}', "value_schema: unusable_schema"),
        ("avro", nested(60), "columns would have"),
        ("avro", "{", "value_schema: the text is not JSON"),
        ("json", "[" * 100_000, "value_schema: the text is not JSON"),
        ("avro", None, "No such file"),
    ],
)
def test_inline_schemas_are_read(tmp_path: Path, form: str, text: str | None, wrong: str) -> None:
    if text is not None:
        (tmp_path / "schema").write_text(text)
    source = f"{{from: inline, file: {tmp_path / 'schema'}}}"
    report = run(f"[{{pattern: a, value_format: {form}, value_schema: {source}}}]", None, ["a"])
    assert report.wrong is bool(wrong)
    assert wrong in "".join(text for _, text in said(report, "a"))
    assert topic(report, "a").tiered is None


def test_the_json_form_has_everything(server: AnsweringServer, schemas: Schemas) -> None:
    schemas.add(7, "orders-value", AVRO)
    report = run(SUBJECT, kafka("orders", local={}), registry=server)
    document = json.loads(as_json(report))
    assert (document["version"], document["errors"], document["warnings"], document["remarks"]) == (1, 0, 0, [])
    local, orders = document["topics"]
    assert orders == {
        "topic": "orders",
        "tiered": True,
        "why_not": None,
        "rule": 0,
        "pattern": "orders",
        "mode": "table",
        "value": {
            "format": "avro",
            "from": "subject",
            "subject": "orders-value",
            "answered": True,
            "schema": {"id": 7, "kind": "avro"},
        },
        "key": {"format": "raw", "from": None, "subject": None, "answered": False, "schema": None},
        "table": "kafka.orders",
        "table_retention": "follow-kafka",
        "incompatible": "new-column",
        "decode_budget": 1.0,
        "projections": [],
        "remarks": [],
    }
    assert (local["tiered"], local["why_not"], local["rule"]) == (False, "remote_storage_off", None)


def command(folder: Path, settings: dict[str, Any], *arguments: str) -> tuple[int, str, str]:
    path = folder / "tierberg.yaml"
    path.write_text(yaml.safe_dump(settings))
    done = CliRunner().invoke(app, ["config", "check", "--config", str(path), *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_works_without_kafka(tmp_path: Path, server: AnsweringServer, schemas: Schemas) -> None:
    settings = {
        "schema_registry": {"url": server.uri},
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "topics": yaml.safe_load(SUBJECT),
    }
    code, out, _ = command(tmp_path, settings, "orders", "--no-kafka")
    assert code == 1
    assert out.startswith("1 topic; 1 error, 0 warnings\n\norders\n  tiered     not known")
    schemas.add(7, "orders-value", AVRO)
    code, out, _ = command(tmp_path, settings, "orders", "--no-kafka", "--json")
    assert code == 0
    assert json.loads(out)["topics"][0]["value"]["schema"] == {"id": 7, "kind": "avro"}


def test_a_command_that_cannot_be_used_exits_2(tmp_path: Path) -> None:
    code, _, error = command(tmp_path, {})
    assert code == 2
    assert "no topics to check: name some, or say where Kafka is" in error
    code, _, error = command(tmp_path, {"topics": [{"pattern": "("}]}, "a")
    assert code == 2
    assert "topics.0.pattern: not a regular expression" in error


def test_brokers_that_do_not_answer_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Any) -> Any:
        raise OSError("connection refused")

    monkeypatch.setattr("confluent_kafka.admin.AdminClient", refused)
    code, out, _ = command(tmp_path, {}, "orders", "--bootstrap-server", "b:1")
    assert code == 1
    assert "!! the brokers at b:1 do not answer: connection refused; check kafka.bootstrap_servers" in out
    assert "\norders\n" in out


def test_protobuf_without_its_libraries_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protobuf_compiler, "find_spec", lambda _: None)
    rules = """[{pattern: a, value_format: protobuf, value_schema: {from: inline, text: 'syntax = "proto3";'}}]"""
    (remark,) = said(run(rules, None, ["a"]), "a")
    assert remark[0] == "error"
    assert remark[1].endswith("pip install 'tierberg[typed]'")
    settings = load_settings(None, {"topics": yaml.safe_load(rules)})
    opened = opened_typed_topics(settings, LocalObjectStore(tmp_path), pytest.fail)
    with pytest.raises(SettingsError, match=r"topics\.0: protobuf needs libraries that are not installed"), opened:
        pass


@pytest.mark.parametrize("name", ["bad/name", "", ".", "..", "x" * 250, "ü", "a b"])
def test_a_name_that_kafka_cannot_have_is_refused(name: str) -> None:
    done = CliRunner().invoke(app, ["config", "check", "--no-kafka", "--", "-orders", name])
    assert done.exit_code == 2
    assert f"{name!r}: Kafka has no topic of such a name" in done.output


def test_names_that_begin_with_a_dash_are_checked() -> None:
    done = CliRunner().invoke(app, ["config", "check", "--no-kafka", "--", "-orders", "--yes"])
    assert done.exit_code == 0, done.output
    assert "-orders" in done.output


def test_what_to_do_is_said_with_the_topics_name() -> None:
    report = run("[]", kafka(**{"-orders": {"remote.storage.enable": "false"}}))
    ((_, text),) = said(report, "-orders")
    assert "--entity-name=-orders --add-config" in text
    assert "TOPIC" not in text


def test_options_that_the_store_s_client_does_not_know_are_found_before_a_bridge_starts(tmp_path: Path) -> None:
    config = tmp_path / "tierberg.yaml"
    given: dict[str, Any] = {"access_key_id": "name", "secret_acces_key": "Tops3cretXYZ", "region": "none"}
    config.write_text(yaml.safe_dump({"store": {"url": "s3://bucket/prefix", "options": given}}))
    done = CliRunner().invoke(app, ["config", "check", "orders", "--no-kafka", "--config", str(config)])
    assert done.exit_code == 2, done.output
    assert "secret_acces_key" in done.output
    assert "Tops3cretXYZ" not in done.output
