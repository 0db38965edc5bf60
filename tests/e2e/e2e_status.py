"""`tierberg status` beside a running pair, as a command and as a document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rsm_bridge.status.command import StatusOptions
from rsm_bridge.status.command import status as command
from tests.e2e.e2e_support import Pair


def ask(pair: Pair, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output of the command, run as an operator would."""
    config = str(pair.bridge.folder / "tierberg.yaml")
    tierberg = str(Path(sys.executable).with_name("tierberg"))
    argv = [tierberg, "status", *arguments, "--config", config, "--bootstrap-server", pair.broker.bootstrap]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not [line for line in done.stderr.splitlines() if "looking again" not in line], done.stderr
    return done.returncode, done.stdout


def tierberg(pair: Pair, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and error of another command on the bridge's settings."""
    config = str(pair.bridge.folder / "tierberg.yaml")
    argv = [str(Path(sys.executable).with_name("tierberg")), *arguments, "--config", config]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def status(pair: Pair, topic: str, patience: float = 60.0) -> dict[str, Any]:
    """The JSON form, in this process: a start of the command costs seconds."""
    options = StatusOptions(
        config=pair.bridge.folder / "tierberg.yaml",
        topic=topic,
        bootstrap_server=pair.broker.bootstrap,
        json=True,
        patience=patience,
    )
    text, needed = command(options)
    document: dict[str, Any] = json.loads(text)
    assert document["needs_person"] == needed
    return document


def causes(document: Mapping[str, Any]) -> set[str]:
    return {finding["code"] for finding in document["findings"]}


def only_partition(document: Mapping[str, Any]) -> dict[str, Any]:
    (topic,) = document["topics"]
    (partition,) = topic["partitions"]
    found: dict[str, Any] = partition
    return found
