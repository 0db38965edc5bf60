"""A library that is not installed is named in one sentence, at once, with the extra that brings it."""

from __future__ import annotations

import tomllib
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rsm_bridge.config import extras
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import SettingsError
from tierberg.cli import app

ROOT = Path(__file__).resolve().parents[3]
GIVEN = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PROTOBUF = "topics: [{pattern: a, value_format: protobuf, value_schema: {from: inline, text: 'message A {}'}}]"
NEEDS = {
    "aws": [
        "catalog: {properties: {type: glue}}",
        "catalog: {properties: {type: rest, uri: 'http://localhost:1', rest.sigv4-enabled: 'true'}}",
    ],
    "typed": ['schema_registry: {url: "http://localhost:8081"}', PROTOBUF],
    "postgres": ["catalog: {properties: {type: sql, uri: 'postgresql+pg8000://u@db/x'}}"],
}


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in names else find_spec(name))


@pytest.mark.parametrize(("extra", "text"), [(extra, text) for extra, texts in NEEDS.items() for text in texts])
def test_settings_that_need_an_extra_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str, text: str
) -> None:
    config = tmp_path / "tierberg.yaml"
    config.write_text(text, encoding="utf-8")
    settings = load_settings(config, {"data_dir": tmp_path})
    extras.require_extras(settings)
    gone = extras.MODULES[extra][-1]
    without(monkeypatch, gone)
    with pytest.raises(SettingsError, match=rf"needs {gone}: pip install 'tierberg\[{extra}\]'$"):
        extras.require_extras(settings)
    done = CliRunner().invoke(app, ["serve", "--config", str(config), "--data-dir", str(tmp_path / "data")])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert not (tmp_path / "data").exists(), "nothing was begun"


def test_the_demo_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "duckdb", "pandas")
    done = CliRunner().invoke(app, ["demo", "--data-dir", str(tmp_path / "demo")])
    assert done.exit_code == 2
    assert done.output == "tierberg: the demo needs duckdb and pandas: pip install 'tierberg[demo]'\n"


def test_making_a_bucket_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "boto3")
    done = CliRunner().invoke(app, ["bucket", "init"])
    assert done.exit_code == 2
    assert done.output == "tierberg: `tierberg bucket init` needs boto3: pip install 'tierberg[aws]'\n"


def test_plain_settings_need_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, *{name for names in extras.MODULES.values() for name in names})
    config = tmp_path / "tierberg.yaml"
    config.write_text("topics: [{pattern: flights, value_format: json}]", encoding="utf-8")
    extras.require_extras(load_settings(config, {"data_dir": tmp_path}))


def test_each_module_is_brought_by_its_extra() -> None:
    """Directly, by an extra of ours, or by an extra of what it lists."""
    brought = packages_distributions()
    for extra, modules in extras.MODULES.items():
        listed = " ".join([*GIVEN[extra], *(GIVEN["repartition"] + GIVEN["typed"] if extra == "demo" else [])])
        inside = " ".join(text for text in requires("confluent-kafka") or () if "schemaregistry" in text)
        for name in modules:
            assert any(one.lower() in listed or one.lower() in inside for one in brought[name]), (extra, name)


def test_all_is_all_that_a_bridge_and_its_commands_may_need() -> None:
    assert GIVEN["all"] == ["tierberg[aws,kafka,postgres,repartition,typed]"]
    assert {*GIVEN} == {"all", "aws", "demo", "kafka", "postgres", "repartition", "typed"}
