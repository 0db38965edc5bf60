"""Settings: defaults, refusals in plain words, and the generated page."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from iceberg_catalog.plan.types import Follow, Keep, KeepUntil
from rsm_bridge.config.durations import parse_duration
from rsm_bridge.config.reference import DOC, render
from rsm_bridge.config.retention import policy_at
from rsm_bridge.config.settings import is_local, load_settings, parse_listen
from rsm_bridge.config.tls_pair import require_pair
from rsm_bridge.config.topics import TopicRule, matching
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import DURATION_SECONDS_MAX


def write(folder: Path, text: str) -> Path:
    path = folder / "tierberg.yaml"
    path.write_text(text)
    return path


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "")) == load_settings(None)
    assert load_settings(None).reclaim_grace == 600
    assert load_settings(None).metrics_listen is None


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "listen: 127.0.0.1:1\ndata_dir: /from/file\n")
    settings = load_settings(path, {"listen": "127.0.0.1:2", "data_dir": None})
    assert settings.listen == "127.0.0.1:2"
    assert settings.data_dir == Path("/from/file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unknown_key: 1", "unknown_key: no such setting; there are data_dir, listen, "),
        ("limits: {copy_workers: 0}", "limits.copy_workers: it must be at least 1"),
        ("reclaim_grace: 10", "reclaim_grace: a duration is a number and a unit"),
        ("reclaim_grace: -1s", "reclaim_grace: a duration is a number and a unit"),
        ("listen: nowhere", "'nowhere' is neither host:port nor unix:path"),
        ("listen: 127.0.0.1:99999", "neither host:port nor unix:path"),
        ("listen: 'unix:'", "unix: needs a path"),
        ("topics: [{pattern: '('}]", "topics.0.pattern: not a regular expression"),
        ("topics: [{pattern: 'a)|(b'}]", "topics.0.pattern: not a regular expression of Rust's: unopened group"),
        ("topics: [{pattern: '(?!x).*'}]", "look-around, including look-ahead and look-behind, is not supported"),
        ("topics: [{pattern: '(x{1000}){1000}'}]", "topics.0.pattern: not a regular expression of Rust's: Compiled"),
        (f"topics: [{{pattern: '{'(' * 5000}{')' * 5000}'}}]", "topics.0.pattern: not a regular expression"),
        ("topics: [{pattern: a, mode: fast}]", "topics.0.mode"),
        ("topics: [{pattern: a, table_retention: forever}]", "table_retention is follow-kafka, keep, or a duration"),
        ("topics: [{pattern: a, table_retention: 30}]", "table_retention is follow-kafka, keep, or a duration"),
        ("tls: {certificate_file: a}", "tls.key_file: it is needed, and not there"),
        ("store: {url: ftp://x}", "store.url"),
        ("- a\n- b", "must be a mapping"),
        ("a: [", "tierberg.yaml"),
        ("metrics_listen: 0.0.0.0:9100", "is not host:port on loopback"),
        ("metrics_listen: unix:/x", "is not host:port on loopback"),
        (
            "repartition: {metrics: '0.0.0.0:9100'}",
            "repartition.metrics: 0.0.0.0:9100 is not host:port on loopback",
        ),
        ("repartition: {metrics: '9100'}", "repartition.metrics: '9100' is neither host:port"),
        ("metrics_listen: nowhere", "metrics_listen: 'nowhere' is neither host:port"),
        ("listen: '127.0.0.1:²'", "listen: '127.0.0.1:²' is neither host:port nor unix:path"),
        ("listen: '127.0.0.1:٣'", "neither host:port nor unix:path"),
        ("metrics_listen: '127.0.0.1:²'", "metrics_listen: '127.0.0.1:²' is neither host:port"),
        ('data_dir: "a\\0b"', "data_dir: it has a NUL character in it"),
        ('listen: "unix:/a\\0b"', "listen: it has a NUL character in it"),
        ('tls: {certificate_file: "a\\0b", key_file: k}', "tls.certificate_file: it has a NUL character in it"),
        (f"mass_delete_grace: {'9' * 400}d", "mass_delete_grace: a duration is at most 36500d"),
        (f"reclaim_grace: {'9' * 400}s", "reclaim_grace: a duration is at most 36500d"),
        (f"topics: [{{pattern: a, table_retention: {'9' * 400}d}}]", "table_retention: a duration is at most 36500d"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=r"tierberg\.yaml") as refused:
        load_settings(write(tmp_path, text))
    assert said in str(refused.value)


def test_a_topic_rule_says_how_long_rows_stay(tmp_path: Path) -> None:
    rules = [f"{{pattern: {name}, table_retention: {value}}}" for name, value in (("a", "keep"), ("b", "30d"))]
    settings = load_settings(write(tmp_path, f"topics: [{', '.join(rules)}]"))
    assert policy_at(settings.rule("a").table_retention, 0) == Keep()
    assert policy_at(settings.rule("b").table_retention, 86_400_000 * 31) == KeepUntil(86_400_000)
    assert policy_at(settings.rule("c").table_retention, 0) == Follow()


def test_all_wrong_keys_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(write(tmp_path, "a: 1\nlimits: {fetch_workers: 0}"))
    assert "a: " in str(refused.value)
    assert "limits.fetch_workers" in str(refused.value)


def test_secrets_stay_out_of_errors_and_reprs(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, "store: {url: 's3://b', options: {secret_access_key: hunter2}}"))
    assert "hunter2" not in repr(settings)
    with pytest.raises(SettingsError) as refused:
        load_settings(write(tmp_path, "store: {url: 's3://b', options: {secret_access_key: [hunter2]}}"))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("slip", ["kafka: {properties: {sasl.password=hunter2}}", "{kafka.password=hunter2}"])
def test_a_line_of_a_properties_file_is_one_key_and_quoted_up_to_its_secret(tmp_path: Path, slip: str) -> None:
    with pytest.raises(SettingsError, match=r"password…: ") as refused:
        load_settings(write(tmp_path, slip))
    assert "hunter2" not in str(refused.value)


TLS = {"certificate_file": "c", "key_file": "k"}


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({"listen": "127.0.0.1:1"}, True),
        ({"listen": "localhost:1"}, True),
        ({"listen": "[::1]:1"}, True),
        ({"listen": "unix:/run/t.sock"}, True),
        ({"listen": "0.0.0.0:1"}, False),
        ({"listen": "[::]:1"}, False),
        ({"listen": "bridge.example:1"}, False),
        ({"listen": "0.0.0.0:1", "insecure": True}, True),
        ({"listen": "0.0.0.0:1", "tls": TLS}, False),
        ({"listen": "0.0.0.0:1", "tls": {**TLS, "client_ca_file": "a"}}, True),
    ],
)
def test_beyond_loopback_clients_must_be_authenticated(values: dict[str, object], allowed: bool) -> None:
    if allowed:
        load_settings(None, values)
    else:
        with pytest.raises(SettingsError, match="nothing authenticates clients"):
            load_settings(None, values)


def test_no_pattern_takes_long_for_any_name() -> None:
    """By backtracking this one would take days for the name, and nothing else would run meanwhile."""
    rules = (TopicRule(pattern="([a-z]+-?)+[0-9]"), TopicRule(pattern=".*"))
    began = time.process_time()
    assert matching(rules, "a" * 249) == 1
    assert matching(rules, "a" * 248 + "7") == 0
    assert matching(rules, "x\n") is None
    assert time.process_time() - began < 5


def test_the_first_matching_rule_decides() -> None:
    rules = [
        {"pattern": "logs-.*", "value_format": "string"},
        {"pattern": "logs-raw", "value_format": "raw", "mode": "verbatim"},
        {"pattern": "big", "mode": "verbatim"},
    ]
    settings = load_settings(None, {"topics": rules})
    assert settings.rule("logs-raw").value_format == "string"
    assert settings.rule("big").mode == "verbatim"
    assert settings.rule("bigger").mode == "table"  # whole names only
    assert settings.rule("other").value_format == "raw"


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("500ms", 0.5), ("10m", 600), ("2h", 7200), ("1.5s", 1.5), ("7d", 604800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


def test_no_duration_is_longer_than_waits_can_take() -> None:
    assert parse_duration(f"{DURATION_SECONDS_MAX:.0f}s") == DURATION_SECONDS_MAX
    assert threading.TIMEOUT_MAX > DURATION_SECONDS_MAX
    for text in (f"{DURATION_SECONDS_MAX + 1:.0f}s", "36501d", f"{'9' * 400}ms"):
        with pytest.raises(ValueError, match="at most 36500d"):
            parse_duration(text)


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "5w", "1e3s", None, 5, 5.0])
def test_durations_without_a_unit_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a number and a unit"):
        parse_duration(text)


def test_listen_forms() -> None:
    assert parse_listen("[::1]:80") == ("::1", 80)
    assert parse_listen("unix:/a b/c") == Path("/a b/c")
    assert is_local("unix:rel.sock")
    assert not is_local("10.0.0.1:1")


def test_the_committed_page_is_current() -> None:
    assert DOC.read_text(encoding="utf-8") == render(), "run python -m rsm_bridge.config.reference"


def test_only_sections_are_called_so() -> None:
    page = render()
    sections = re.findall(r"^\| `(\S+)` \| section \|", page, re.MULTILINE)
    assert "topics[].copies[].catalog" in sections
    assert [name for name in sections if f"\n## `{name}`\n" not in page] == []


@pytest.mark.parametrize("there", [False, True])
def test_which_file_of_a_pair_is_not_there(tmp_path: Path, there: bool) -> None:
    own, key = tmp_path / "own.pem", tmp_path / "key.pem"
    if there:
        key.write_text("a key, perhaps")
    settings = load_settings(write(tmp_path, f"tls: {{certificate_file: {own}, key_file: {key}}}"))
    said = f": {own} is not there" if there else f": {own} and {key} are not there"
    with pytest.raises(SettingsError, match=re.escape(said)):
        require_pair(settings)
