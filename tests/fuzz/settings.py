"""What an operator types: the configuration file and the command line. One line of advice, never a traceback."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import yaml
from typer.main import get_command
from typer.testing import CliRunner

from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import SettingsError
from rsm_bridge.status.confirm import WATCH_SECONDS
from tests.fuzz.envelope import packed, unpacked
from tests.fuzz.mutate import TEXTS, bent, bent_json
from tests.fuzz.outcome import worded
from tests.fuzz.target import MIB, Outcome, Target, WrongError
from tierberg.cli import app

SECRET = "s3cr3t-Wert"
_TEXT_CHARS_MAX = 4000

_DOCUMENT: dict[str, Any] = {
    "data_dir": "d",
    "listen": "127.0.0.1:7410",
    "metrics_listen": "127.0.0.1:9000",
    "tls": {"certificate_file": "c.pem", "key_file": "k.pem", "client_ca_file": "ca.pem"},
    "store": {"url": "s3://b/p", "options": {"secret_access_key": SECRET, "region": "r"}, "fetch_timeout": "400ms"},
    "catalog": {"name": "n", "namespace": "kafka", "properties": {"type": "rest", "token": SECRET, "uri": "http://c"}},
    "kafka": {"bootstrap_servers": "h:1", "properties": {"sasl.password": SECRET}},
    "merge": {"small_mib": 16, "age": "60m"},
    "limits": {"copy_memory_mib": 512, "copy_workers": 4, "decompressed_batch_mib": 256},
    "schema_registry": {"url": "http://r:1", "username": "u", "password": SECRET},
    "reclaim_grace": "10m",
    "publish_interval": "1s",
    "generation": 3,
    "topics": [
        {"pattern": "a.*", "value_format": "json", "value_schema": {"from": "inline", "text": "{}"}},
        {"pattern": "b-(x|y)", "value_format": "avro", "table_retention": "7d", "mode": "verbatim"},
    ],
}


def _copied(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _copied(value) for key, value in document.items()}
    return [_copied(value) for value in document] if isinstance(document, list) else document


def _is_slow(data: bytes) -> bool:
    """What is large or deep is read for up to half a second: a few of them say as much."""
    return len(data) > 3000 or data.count(b"- ") > 100 or data.count(b"[") > 30 or data.count(b"{") > 30


#: Keys below which, or of which, a value is a secret.
_SECRET_KEYS = frozenset({"options", "properties", "password"})


def _misplaced(data: bytes) -> bool:
    """Whether a mutation has put the secret where none belongs: `listen` is quoted, whatever stands there."""
    try:
        return _outside(yaml.safe_load(data))
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def _outside(document: Any) -> bool:
    if isinstance(document, dict):
        return any(
            SECRET in str(key) or (_as_name(item) if key in _SECRET_KEYS else _outside(item))
            for key, item in document.items()
        )
    if isinstance(document, list):
        return any(map(_outside, document))
    return SECRET in str(document)


def _as_name(section: Any) -> bool:
    """Names of properties are quoted, too, as far as they look like names."""
    return isinstance(section, dict) and any(key.startswith(SECRET) for key in section if isinstance(key, str))


class Configuration(Target):
    """A configuration file: settings, or one error that keeps its secrets."""

    name = "settings-yaml"
    memory_bytes_max = 64 * MIB

    def prepare(self) -> None:
        self._open = ExitStack()
        self._path = Path(self._open.enter_context(TemporaryDirectory(prefix="tierberg-fuzz-")), "tierberg.yaml")

    def close(self) -> None:
        self._open.close()

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        data = self._file(rng, corpus)
        while _is_slow(data) and rng.random() < 0.98:
            data = self._file(rng, corpus)
        return data

    def _file(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        if corpus and rng.random() < 0.2:
            return bent(rng.choice(corpus), rng)
        whole = _copied(_DOCUMENT)
        if rng.random() < 0.7:  # the parser is slow: most files have a few of the sections
            whole = {name: whole[name] for name in rng.sample(sorted(whole), 3)}
        document = bent_json(whole, rng) if rng.random() < 0.8 else whole
        try:
            text = yaml.dump(document, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)
        except UnicodeEncodeError:  # half of a surrogate pair
            text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
        except RecursionError:
            text = "[" * 3000
        if rng.random() < 0.4:
            text = text.replace(
                SECRET, rng.choice(("%" + SECRET, "&x " + SECRET, "*" + SECRET, '"' + SECRET, "!t " + SECRET)), 1
            )
        if rng.random() < 0.1:
            odd = ("listen: 2024-99-99\n", "a: &a [*a]\n", "? [x]\n: y\n", "<<: 3\n", "1: 2\n", "- " * 3000)
            text = rng.choice(odd) + text
        data = text.encode("utf-8", "surrogatepass")
        return bent(data, rng) if rng.random() < 0.4 else data

    def run(self, data: bytes) -> Outcome:
        self._path.write_bytes(data)
        try:
            load_settings(self._path)
        except SettingsError as error:
            text = str(error)
            if SECRET in text and not _misplaced(data):
                raise WrongError(f"a secret is shown: {text[:400]}") from None
            if len(text) > _TEXT_CHARS_MAX:
                raise WrongError(f"a message of {len(text)} characters") from None
            return Outcome(worded(error))
        return Outcome("settings")


_COMMANDS = (
    ("verify",), ("status",), ("inspect", "segment"), ("inspect", "index"), ("config", "check"), ("maintain",),
    ("undelete",), ("requeue",), ("replay-dead-letters",), ("table", "drop"), ("version",), ("bucket", "init"), (),
    ("leader-epochs",), ("leader-epochs", "t", "0"), ("topic", "forget"), ("repartition",), ("advise",),
)  # fmt: skip
_OPTIONS = (
    "--config", "--data-dir", "--topic", "--json", "--deadline", "--batches", "--dry-run", "--undo", "--topic-id",
    "--accept", "--bridge", "--help", "--abandoned-days", "--", "-x", "--bootstrap-server",
    "--current", "--yes",
)  # fmt: skip


class CommandLine(Target):
    """Words after `tierberg`, in an empty folder: an exit code from 0 to 3 and no traceback."""

    name = "command-line"
    memory_bytes_max = 128 * MIB

    def prepare(self) -> None:
        self._open = ExitStack()
        self._folder = Path(self._open.enter_context(TemporaryDirectory(prefix="tierberg-fuzz-")))
        os.chdir(self._folder)
        # Made once: typer builds all commands anew for each call, which takes longer than the call.
        self._open.enter_context(patch("typer.testing._get_command", cache(get_command)))
        # No bridge listens: `status` would look again after three seconds, with the same words.
        self._open.enter_context(patch.dict(WATCH_SECONDS, dict.fromkeys(WATCH_SECONDS, 0.01)))
        (self._folder / "good.yaml").write_text("data_dir: d\n", encoding="utf-8")
        (self._folder / "bad.yaml").write_text("data_dir: [\n", encoding="utf-8")
        self._runner = CliRunner()
        for command in _COMMANDS:
            self._runner.invoke(app, [*command, "--data-dir", "d", "x"])

    def close(self) -> None:
        self._open.close()

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        words = [*rng.choice(_COMMANDS)]
        values = (
            "good.yaml",
            "bad.yaml",
            "none.yaml",
            "d",
            ".",
            "/dev/null",
            "0",
            "-1",
            "1e9",
            "nan",
            "a" * 32,
            "none",
            *TEXTS,
        )
        if rng.random() < 0.8:
            words += ["--data-dir", "d"]
        for _ in range(rng.randrange(4)):
            words.append(rng.choice(_OPTIONS) if rng.random() < 0.5 else rng.choice(values))
        words = [word for word in words if "\0" not in word and not any("\ud800" <= sign <= "\udfff" for sign in word)]
        return packed({"words": words}, [])

    def run(self, data: bytes) -> Outcome:
        words = unpacked(data)[0]["words"]
        result = self._runner.invoke(app, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code not in (0, 1, 2, 3):
            raise WrongError(f"{words} exits with {result.exit_code}")
        return Outcome(f"{words[:1]} {result.exit_code} {result.output[:40]}")
