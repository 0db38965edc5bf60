"""A script can tell damage from a typo, and both from a store that is away: one table of exit codes for all."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import typer
from pyiceberg.exceptions import RESTError
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

from converter.errors import SegmentError, SegmentErrorKind
from iceberg_catalog.errors import CatalogError, CatalogErrorKind
from repartition.errors import RepartitionErrorKind
from rsm_bridge.errors import BridgeError, ErrorKind, SettingsError
from rsm_bridge.tables.publish.table_run import RetryRunError
from tierberg.cli import _COMMANDS, _GROUPS, app
from tierberg.exits import FAILURE, FINDING, USAGE, exit_code, failures
from tierberg.stack.ports import free_ports

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("verify",),
    ("status",),
    ("config", "check", "orders"),
    ("inspect", "index", "index/none"),
    ("inspect", "segment", "index/none"),
    ("maintain",),
    ("undelete", "orders"),
    ("requeue",),
    ("replay-dead-letters",),
    ("table", "drop", "orders"),
    ("bucket", "init"),
    ("leader-epochs", "orders", "0"),
    ("topic", "forget", "orders"),
    ("repartition", "orders"),
    ("serve",),
)
#: What these two are asked is what is wrong, so a store that is away is their finding.
REPORTERS = {"status", "config"}
#: What these do first does not need the store of the case.
STORE_LATER = {"serve", "table", "topic", "repartition"}
#: It reads its questions before the settings.
SETTINGS_LATER = {"advise"}


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, done.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_settings_that_cannot_be_used_are_exit_code_two(tmp_path: Path, command: tuple[str, ...]) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text("no_such_key: 1\n")
    code, said = run(*command, "--config", str(config))
    assert (code, "no_such_key" in said) == (USAGE, True)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_typo_in_a_flag_is_exit_code_two(command: tuple[str, ...]) -> None:
    assert run(*command, "--no-such-flag")[0] == USAGE


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] not in REPORTERS | STORE_LATER], ids=" ".join)
def test_a_store_that_is_away_is_exit_code_three(tmp_path: Path, command: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "away.yaml"
    config.write_text(
        f"data_dir: {tmp_path}\n"
        "store:\n  url: s3://bucket\n  upload_timeout: 500ms\n"
        f"  options: {{endpoint: 'http://127.0.0.1:{port}', allow_http: 'true', region: x, access_key_id: a,"
        " secret_access_key: b}\n"
    )
    code, said = run(*command, "--config", str(config))
    assert code == FAILURE, said


@pytest.mark.parametrize("target", ["index/none", "no/such/file"])
def test_something_that_is_not_there_is_exit_code_two(tmp_path: Path, target: str) -> None:
    assert run("inspect", "index", target, "--data-dir", str(tmp_path))[0] == USAGE


def test_every_command_with_settings_has_a_case() -> None:
    names = [*_COMMANDS, *(f"{group} {name}" for group, (_, members) in _GROUPS.items() for name in members)]
    configured = {name for name in names if "--config" in run(*name.split(), "--help")[1]}
    assert len(configured) > 15
    assert [name for name in configured - SETTINGS_LATER if not any(begins(case, name) for case in COMMANDS)] == []


def begins(case: tuple[str, ...], name: str) -> bool:
    return f"{' '.join(case)} ".startswith(f"{name} ")


def test_every_kind_of_error_has_a_code() -> None:
    kinds = {
        word
        for literal in (ErrorKind, CatalogErrorKind, SegmentErrorKind, RepartitionErrorKind)
        for word in flat(literal)
    }
    found = {kind: exit_code(BridgeError(kind, "")) for kind in sorted(kinds)}  # type: ignore[arg-type]
    assert {kind for kind, code in found.items() if code == FAILURE} >= {"store_unavailable", "unavailable", "spark"}
    assert {kind for kind, code in found.items() if code == FINDING} >= {"corrupt_object", "owner_mismatch", "rewound"}
    assert exit_code(SegmentError("corrupt_object", "")) == FINDING
    assert exit_code(CatalogError("bad_settings", "")) == USAGE
    assert exit_code(SettingsError("")) == USAGE
    assert exit_code(RetryRunError("", conflict=False)) == FAILURE


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OperationalError("x", {}, Exception("locked")), RESTError("502")]
)
def test_what_store_and_catalog_raise_on_the_way_is_a_line_and_exit_code_three(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, failures():
        raise error
    assert ended.value.exit_code == FAILURE
    said = capsys.readouterr().err
    assert said.startswith("tierberg: store or catalog failed on the way, run it again: ")
    assert said.count("\n") == 1


def test_a_bug_is_a_traceback() -> None:
    with pytest.raises(ZeroDivisionError), failures():
        raise ZeroDivisionError


def flat(literal: object) -> list[str]:
    words: list[str] = []
    for part in get_args(literal):
        words += [part] if isinstance(part, str) else flat(part)
    return words
