"""`tierberg status` beside a running pair, as a command and as a document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rsm_bridge.status_command import StatusOptions
from rsm_bridge.status_command import status as command
from tests.e2e.e2e_support import Pair


def ask(pair: Pair, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output of the command, run as an operator would."""
    config = str(pair.bridge.folder / "tierberg.yaml")
    tierberg = str(Path(sys.executable).with_name("tierberg"))
    argv = [tierberg, "status", *arguments, "--config", config, "--bootstrap-server", pair.broker.bootstrap]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def status(pair: Pair, topic: str) -> dict[str, Any]:
    """The JSON form, in this process: a start of the command costs seconds."""
    options = StatusOptions(
        config=pair.bridge.folder / "tierberg.yaml", topic=topic, bootstrap_server=pair.broker.bootstrap, json=True
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
