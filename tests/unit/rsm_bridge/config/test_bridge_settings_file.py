"""The configuration file as operators really write it: a slip is named by its place, and nothing of it is quoted."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from rsm_bridge.config.settings import load_settings
from rsm_bridge.config.settings_file import read_settings_file
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import SETTINGS_FILE_BYTES_MAX, SETTINGS_VALUES_MAX

SECRET = "hunter2-abc"


def refusal(folder: Path, text: str) -> str:
    path = folder / "tierberg.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SettingsError) as refused:
        load_settings(path)
    shown = "".join(traceback.format_exception(refused.value))
    assert SECRET not in shown
    assert str(refused.value).startswith(str(path))
    return str(refused.value).removeprefix(str(path))


@pytest.mark.parametrize(
    "slip",
    [
        "%{}",
        "&{}",
        "*{}",
        "!{}",
        "@{}",
        "`{}",
        "'{}",
        '"{}',
        "{{{}",
        "[{}",
        "a: {}",
        "%{} # ]",
        "!!int {}",
        "!!python/x {}",
    ],
)
def test_a_slip_beside_a_password_is_named_by_its_place_alone(tmp_path: Path, slip: str) -> None:
    text = f"store:\n  url: s3://b/p\n  options:\n    secret_access_key: {slip.format(SECRET)}\n"
    assert refusal(tmp_path, text)


def test_where_a_slip_is(tmp_path: Path) -> None:
    assert refusal(tmp_path, f"listen: 127.0.0.1:1\ntls: %{SECRET}\n").startswith(
        ", line 2, column 6: not YAML; a value"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen: 2024-99-99", ": configuration: listen: '2024-99-99' is neither host:port nor unix:path"),
        ("listen: " + "[" * 5000, ": nested too deep"),
        ("a: " + "{a: " * 300 + "1" + "}" * 300, ": "),
        ("generation: 0b_", ": a number, tag or key that YAML cannot hold"),
        ("generation: 1\ngeneration: 2", ", line 2, column 1: a key that comes twice"),
        ("a: &a [*a]", ", line 1, column 4: an anchor within itself"),
        ("? [x]\n: y", ", line 1, column 3: not YAML"),
        ("\ud800", ": not UTF-8 from byte 0 on"),
        ("a: \x01", ": a character that YAML does not allow"),
        ("- 1", ": must be a mapping of keys"),
        ("topics: [{pattern: a, table_retention: [1]}]", ": topics.0.table_retention: table_retention is follow-kafka"),
        ("x: 1", ": x: no such setting; "),
        (f"store:\n\turl: {SECRET}", ", line 2, column 1: not YAML; a tab stands where spaces belong"),
        (f"store:\n  url: {SECRET}\n\tx: y", ", line 3, column 1: not YAML; a tab stands where spaces belong"),
        (f"listen: {SECRET}\n  x: y", ", line 2, column 4: not YAML; keys of one section begin in the same column"),
        (f"store:\n    url: {SECRET}\n  x: y", ", line 3, column 3: not YAML; keys of one section begin in the same"),
        (f"{SECRET}\nx: y", ", line 2, column 2: not YAML; keys of one section begin in the same column"),
        (f"x: {SECRET}\n---\ny: 1", ", line 2, column 1: a second document (---) begins here; the file must be one"),
    ],
)
def test_what_is_said(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text).startswith(message)


def test_anchors_do_not_unfold_a_short_file_into_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert f"more than {SETTINGS_VALUES_MAX} values" in refusal(tmp_path, "\n".join(lines))


def test_a_file_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "tierberg.yaml"
    path.write_text("#" * SETTINGS_FILE_BYTES_MAX, encoding="utf-8")
    assert read_settings_file(path) == {}
    path.write_text("#" * (SETTINGS_FILE_BYTES_MAX + 1), encoding="utf-8")
    with pytest.raises(SettingsError, match="larger than"):
        read_settings_file(path)


def test_many_problems_are_said_in_few_words(tmp_path: Path) -> None:
    message = refusal(tmp_path, "\n".join(f"key{n}: {'x' * 5000}" for n in range(100)))
    assert message.endswith("; and 92 more")
    assert len(message) < 4000


def test_a_date_and_anchors_are_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "tierberg.yaml"
    path.write_text("a: 2024-01-02\nb: &b {c: 1}\nd: *b\n", encoding="utf-8")
    assert read_settings_file(path) == {"a": "2024-01-02", "b": {"c": 1}, "d": {"c": 1}}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "none.yaml")
