"""What a refused setting is told: our words alone, whatever is wrong, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from rsm_bridge.config.reference import setting_names
from rsm_bridge.config.refusals import WORDS, explain
from rsm_bridge.config.section import inner_section, is_list
from rsm_bridge.config.settings import Settings, load_settings
from rsm_bridge.errors import SettingsError

SECRET: Final = "hunter2-abc"
#: One of each kind that YAML has, and what is too small, too large, or empty.
WRONG: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    -1.5,
    float("inf"),
    float("nan"),
    "",
    SECRET,
    "$x",
    "0s",
    "99d",
    [],
    [SECRET],
    [None],
    [[1]],
    [{}],
    {},
    {SECRET: [1]},
    {SECRET: {SECRET: [1]}},
    {1: 1},
    {"a": {1: [1]}},
)
#: Of a section that has needed keys: those, right.
NEEDED: Final[dict[str, dict[str, Any]]] = {
    "store": {"url": "memory://"},
    "tls": {"certificate_file": "c", "key_file": "k", "client_ca_file": "a"},
    "tls.clients": {"names": ["CN=a"], "clusters": ["*"], "may": "read"},
    "schema_registry": {"url": "http://r"},
    "topics": {"pattern": "a"},
    "topics.copies": {"table": "t"},
    "topics.copies.catalog": {"name": "c", "properties": {}},
    "topics.value_schema": {"from": "inferred"},
    "topics.key_schema": {"from": "inferred"},
}
#: Words of pydantic's that say nothing to whoever writes a file.
FOREIGN: Final = re.compile(
    r"tuple|dict|instance|input|extra|permitted|\bvalid\b|field|string|integer|boolean|parse|pydantic|validat|\bNone\b",
    re.IGNORECASE,
)


def _files(names: list[str], value: Any, way: str = "") -> dict[str, Any]:
    """The file that gives a setting this value, with what its sections need."""
    name, *rest = names
    plain = name.removesuffix("[]")
    way = f"{way}.{plain}".strip(".")
    if not rest:
        return {plain: value}
    inner = NEEDED.get(way, {}) | _files(rest, value, way)
    return {plain: [inner] if name.endswith("[]") else inner}


def _sections() -> list[str]:
    return sorted({name.rpartition(".")[0] for name in setting_names()} - {""})


def _problems() -> Iterator[tuple[dict[str, Any], ValidationError]]:
    for name in [*setting_names(), *(section.removesuffix("[]") for section in _sections())]:
        for wrong in WRONG:
            values = _files(name.split("."), wrong)
            try:
                Settings.model_validate(values)
            except ValidationError as error:
                yield values, error
    for key in (1, SECRET):
        with pytest.raises(ValidationError) as refused:
            Settings.model_validate({key: 1})
        yield {}, refused.value


def test_no_kind_of_mistake_is_told_in_words_of_the_library() -> None:
    kinds = set()
    for values, error in _problems():
        said = explain(error, Settings, "f")
        ours = [problem for problem in error.errors() if problem["type"] != "value_error"]
        kinds |= {problem["type"] for problem in ours}
        if ours and len(ours) == len(error.errors()):
            assert SECRET not in re.sub(rf"\.{SECRET}|f: {SECRET}", "", said), (values, said)
            words = re.sub(r"there are [\w, ]+|'\w+'|`[^`]+`|\S+: |\^\S+", "", said)  # without names of the file's
            assert not FOREIGN.search(words), (values, said)
    assert kinds - {"extra_forbidden", "model_type"} == set(WORDS), "a kind has no words, or words have no kind"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data_dri: x", "data_dri: no such setting; did you mean data_dir?"),
        ("topic: []", "topic: no such setting; did you mean topics?"),
        ("topics: [{pattern: a, value_fromat: json}]", "no such setting; did you mean value_format?"),
        ("catalog: {uri: 'https://c'}", "catalog.uri: no such setting; keys that are not Tierberg's own belong"),
        ("catalog: {type: rest}", "belong into `catalog.properties`"),
        ("repartition: {spark.jars: a}", "belong into `repartition.spark`"),
        ("topics: {pattern: orders}", "topics: it must be a list, each entry on a line that begins with -"),
        ("topics: [orders]", "topics.0: it must be a mapping of keys, such as `- {pattern: …}`"),
        ("store: s3://b/p", "store: it must be a mapping of keys, such as `store: {url: …}`"),
        ("listen:", "listen: nothing is there; write a value, or leave the line out"),
        ("topics: [{pattern: a, mode: fast}]", "topics.0.mode: it must be 'table' or 'verbatim'"),
        ("catalog: {properties: {auth: {x: [1]}}}", "catalog.properties.auth: it must be a text, or a mapping"),
        ("kafka: {properties: {a: 1}}", "kafka.properties.a: it must be a text; a number"),
    ],
)  # fmt: skip
def test_what_would_be_right(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_a_list_whose_entries_are_wrong_is_not_called_empty(tmp_path: Path) -> None:
    rule = "{names: [x], clusters: ['*'], may: read}"
    said = refusal(tmp_path, f"tls: {{certificate_file: c, key_file: k, client_ca_file: a, clients: [{rule}]}}")
    assert "tls.clients.0.names.0: it must have the form" in said
    assert "an entry" not in said


def test_a_section_that_is_left_empty_is_as_if_absent(tmp_path: Path) -> None:
    path = tmp_path / "tierberg.yaml"
    nested = [name for name, field in Settings.keys().items() if inner_section(field.annotation) or is_list(field)]
    assert len(nested) > 5
    path.write_text("".join(f"{name}:\n" for name in nested))
    assert load_settings(path) == load_settings(None)
    path.write_text("catalog:\n  properties:\ntopics:\n  - pattern: a\n    copies:\n")
    assert load_settings(path).topics[0].copies == ()


@pytest.mark.parametrize("name", [".", "a..b", " kafka ", "a/b", "", ".a", "a.", "ä", "a b", "a\n"])
def test_a_namespace_that_catalogs_do_not_take_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"catalog\.namespace: use letters, digits, _ and -, dots between levels"):
        load_settings(None, {"catalog": {"namespace": name}})


@pytest.mark.parametrize("name", ["kafka", "lake.kafka", "K-1.b_2"])
def test_a_namespace_has_levels(name: str) -> None:
    assert load_settings(None, {"catalog": {"namespace": name}}).catalog.namespace == name


PATHS: Final = [
    "data_dir",
    "tls.certificate_file",
    "tls.key_file",
    "tls.client_ca_file",
    "schema_registry.tls.ca_file",
    "schema_registry.tls.certificate_file",
    "schema_registry.tls.key_file",
    "topics[].value_schema.file",
    "topics[].key_schema.file",
]


@pytest.mark.parametrize("setting", PATHS)
def test_paths_are_written_out(setting: str) -> None:
    for wrong, said in (
        ("", "it is empty"),
        (" ", "it is empty"),
        ("$HOME/x", "no $ may be in it"),
        ("/x/${env:Y}", "no $ may be in it"),
        ("~nobody-of-this-name/x", "nobody knows the home folder"),
    ):
        where = re.escape(setting.replace("[]", ".0"))
        with pytest.raises(SettingsError, match=rf"{where}: {re.escape(said)}"):
            load_settings(None, _files(setting.split("."), wrong))


def test_the_home_folder_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    settings = load_settings(None, {"data_dir": "~/tierberg", "tls": {"certificate_file": "~/c", "key_file": "~"}})
    assert settings.data_dir == Path("/home/somebody/tierberg")
    assert settings.tls is not None
    assert (settings.tls.certificate_file, settings.tls.key_file) == (Path("/home/somebody/c"), Path("/home/somebody"))


def refusal(folder: Path, text: str) -> str:
    path = folder / "tierberg.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_settings(path)
    return str(refused.value)
