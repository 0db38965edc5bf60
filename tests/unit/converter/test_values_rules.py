"""Rules of typed topics: the forms, their defaults, and every wrong combination named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rsm_bridge.config import topics
from rsm_bridge.config.secrets import settings_secrets
from rsm_bridge.config.settings import Settings, convert_options, load_settings
from rsm_bridge.config.topics import matching
from rsm_bridge.errors import SettingsError

REGISTRY = {"url": "http://127.0.0.1:8081"}


def load(text: str, registry: bool = True) -> Settings:
    return load_settings(None, {"topics": yaml.safe_load(text), "schema_registry": REGISTRY if registry else None})


def test_a_registry_makes_topics_without_a_rule_typed_by_themselves() -> None:
    assert load_settings(None).rule("orders").value_format == "raw"
    settings = load_settings(None, {"schema_registry": REGISTRY})
    assert settings.rule("orders").value_format == "auto"
    assert settings.rule("orders").key_format == "raw"
    # A rule that says nothing of formats keeps what it always meant.
    assert load("[{pattern: orders, table_retention: keep}]").rule("orders").value_format == "raw"


@pytest.mark.parametrize(
    ("form", "origin"),
    [("json", "inferred"), ("avro", "registry-id"), ("protobuf", "registry-id"), ("auto", "registry-id")],
)
def test_where_schemas_come_from_when_nothing_is_said(form: str, origin: str) -> None:
    rule = load(f"[{{pattern: a, value_format: {form}, key_format: {form}}}]").rule("a")
    for part in ("value", "key"):
        source = rule.source_of(part)
        assert source is not None
        assert source.origin == origin
    assert rule.needs_registry() == (() if origin == "inferred" else ("value", "key"))


def test_bytes_and_texts_have_no_schema() -> None:
    rule = load("[{pattern: a, value_format: string}]", registry=False).rule("a")
    assert rule.source_of("value") is rule.source_of("key") is None
    assert rule.needs_registry() == ()


def test_subjects_follow_the_topic() -> None:
    rules = """
    - {pattern: a.*, value_format: avro, value_schema: {from: subject}, key_format: avro, key_schema: {from: subject}}
    - {pattern: b.*, value_format: json, value_schema: {from: subject, subject: "corp.{topic}"}}
    - {pattern: c.*, value_format: protobuf, value_schema: {from: subject, subject: shared, message: shop.v1.Order}}
    """
    settings = load(rules)
    assert settings.rule("a1").subject_of("value", "a1") == "a1-value"
    assert settings.rule("a1").subject_of("key", "a1") == "a1-key"
    assert settings.rule("b1").subject_of("value", "b1") == "corp.b1"
    assert settings.rule("c1").subject_of("value", "c1") == "shared"
    assert settings.rule("c1").value_schema.message == "shop.v1.Order"  # type: ignore[union-attr]


def test_inline_schemas_come_from_here_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "größe.avsc"
    path.write_text('"größe"', encoding="utf-8")
    source = f"{{from: inline, file: {path}}}"
    rules = f"""
    - {{pattern: a, value_format: avro, value_schema: {source}}}
    - {{pattern: b, value_format: json, value_schema: {{from: inline, text: '{{}}'}}}}
    """
    settings = load(rules, registry=False)
    here, there = settings.rule("b").source_of("value"), settings.rule("a").source_of("value")
    assert here is not None
    assert there is not None
    assert here.inline_text() == "{}"
    assert there.inline_text() == '"größe"'
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=r"größe\.avsc.*utf-8"):
        there.inline_text()
    monkeypatch.setattr(topics, "SCHEMA_BYTES_MAX", 3)
    path.write_bytes(b"four")
    with pytest.raises(SettingsError, match="larger than 3 bytes"):
        there.inline_text()
    path.unlink()
    with pytest.raises(SettingsError, match="No such file"):
        there.inline_text()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("value_format: xml", "topics.0.value_format: it must be 'raw', 'string', 'json', 'avro', 'protobuf'"),
        ("value_bytes: proven", "value_bytes: proven goes by columns, and value_format raw has none"),
        ("value_format: avro, value_schema: {from: wire}", "topics.0.value_schema.from: it must be 'registry-id'"),
        ("value_format: avro, value_schema: {subject: a}", "topics.0.value_schema.from: it is needed, and not there"),
        ("value_format: avro, value_schema: {from: registry-id, subject: a}", "registry-id takes no subject"),
        ("value_format: avro, value_schema: {from: subject, text: a}", "subject takes no text"),
        ("value_format: json, value_schema: {from: inferred, file: a, text: b}", "takes no file and no text"),
        ("value_format: avro, value_schema: {from: inline}", "inline takes either text or file"),
        ("value_format: avro, value_schema: {from: inline, text: a, file: b}", "inline takes either text or file"),
        ("value_format: avro, value_schema: {from: inferred}", "value_schema: from: inferred is for json; avro values"),
        ("value_format: auto, value_schema: {from: subject}", "value_format auto goes by the wire format; name json"),
        ("value_format: raw, value_schema: {from: inferred}", "value_schema: value_format raw has no schema"),
        ("key_format: string, key_schema: {from: inferred}", "key_schema: key_format string has no schema"),
        ("key_schema: {from: registry-id}", "key_schema: key_format raw has no schema"),
        ("value_format: avro, value_schema: {from: subject, message: a.B}", "message is for protobuf, not for avro"),
        ("value_format: protobuf, value_schema: {from: registry-id, message: a.B}", "registry-id takes no message"),
        ("value_format: protobuf, value_schema: {from: inline, text: a, message: 'a b'}", "value_schema.message"),
        ("value_format: avro, value_schema: {from: subject, subject: '{table}-value'}", "only {topic} may stand in"),
        ("mode: verbatim, value_format: avro", "mode: verbatim stores no rows, so it takes no value_format"),
        ("mode: verbatim, table: a, key_format: json", "it takes no table and no key_format"),
        ("table: Orders", "topics.0.table: use lower-case letters, digits and _"),
        ("table: a.b", "topics.0.table: use lower-case"),
        ("table: ''", "topics.0.table: use lower-case"),
        ("table: 'x{name}'", "topics.0.table: use lower-case"),
        (f"table: {'a' * 201}", "topics.0.table: longer than 200"),
        ("incompatible: stop", "topics.0.incompatible: it must be 'new-column' or 'dead-letter'"),
        ("decode_budget: -1", "topics.0.decode_budget"),
        ("decode_budget: .nan", "topics.0.decode_budget"),
        ("decode_budget: much", "topics.0.decode_budget"),
    ],
)
def test_what_does_not_go_together_is_named(rule: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(f"[{{pattern: a, {rule}}}]")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "rule", ["value_format: avro", "key_format: protobuf", "value_format: json, value_schema: {from: subject}"]
)
def test_schemas_of_a_registry_need_one(rule: str) -> None:
    load(f"[{{pattern: b}}, {{pattern: a, {rule}}}]")
    with pytest.raises(SettingsError, match=r"topics\.1: (value|key)_format .* no schema_registry; set it, or"):
        load(f"[{{pattern: b}}, {{pattern: a, {rule}}}]", registry=False)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "schema_registry.url: it is needed, and not there"),
        ({"url": "registry:8081"}, "schema_registry.url: use https://host:port"),
        ({"url": "http://a,ftp://b"}, "schema_registry.url: use https://host:port"),
        ({"url": "https://me:hunter2@a"}, "schema_registry.url: no user, ? or #"),
        ({"url": "https://a?b=c"}, "schema_registry.url: no user, ? or #"),
        ({"url": "http://a", "username": "me"}, "schema_registry: username and password belong together"),
        ({"url": "http://a", "password": "hunter2"}, "username and password belong together"),
        ({"url": "http://a", "username": "m:e", "password": "hunter2"}, "allows no colon in username"),
        (
            {"url": "http://a", "username": "me", "password": "hunter2", "bearer_token": "hunter2"},
            "use either bearer_token or",
        ),
        ({"url": "http://a", "logical_cluster": "lsrc-1"}, "logical_cluster belongs to bearer_token"),
        ({"url": "http://a", "tls": {"key_file": "k"}}, "a key needs certificate_file"),
        ({"url": "http://a", "request_timeout": "0s"}, "schema_registry.request_timeout"),
        ({"url": "http://a", "request_timeout": "2m"}, "schema_registry.request_timeout"),
        ({"url": "http://a", "bearer_token": ["hunter2"]}, "schema_registry.bearer_token"),
    ],
)
def test_a_wrong_registry_is_named_without_its_secrets(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {"schema_registry": values})
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_credentials_of_the_registry_are_secrets() -> None:
    given = {**REGISTRY, "username": "someone", "password": "hunter2-hunter2"}
    settings = load_settings(None, {"schema_registry": given})
    assert "hunter2" not in repr(settings)
    assert "hunter2-hunter2" in settings_secrets(settings)


@pytest.mark.parametrize(
    ("table", "topic", "name"),
    [
        (None, "My.Topic-1", "my_topic_1"),
        ("sales", "My.Topic-1", "sales"),
        ("eu_{topic}", "My.Topic-1", "eu_my_topic_1"),
        ("{topic}_v2", "x" * 249, "x" * 200),
    ],
)
def test_the_name_of_the_table(table: str | None, topic: str, name: str) -> None:
    settings = load_settings(None, {"topics": [{"pattern": ".*", "table": table}]})
    assert settings.rule(topic).table_of(topic) == name


def test_the_first_rule_that_matches_the_whole_name() -> None:
    rules = load("[{pattern: a}, {pattern: 'a.*'}, {pattern: ab}]").topics
    assert [matching(rules, topic) for topic in ("a", "ab", "b", "ba")] == [0, 1, None, None]


@pytest.mark.parametrize(("form", "begins"), [("raw", "raw"), ("string", "string"), ("avro", "raw"), ("auto", "raw")])
def test_typed_tables_begin_as_bytes(form: str, begins: str) -> None:
    settings = load(f"[{{pattern: a, value_format: {form}}}]")
    assert convert_options(settings, "a").value_format == begins


def test_rules_have_a_generation() -> None:
    assert load_settings(None).generation == 0
    assert load_settings(None, {"generation": 7}).generation == 7
    with pytest.raises(SettingsError, match="generation"):
        load_settings(None, {"generation": -1})
