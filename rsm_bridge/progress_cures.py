"""What to do about a finding, with commands that can be pasted: of this very topic, for the settings that were read.

Advice names what it is about by capital letters (`tierberg undelete TOPIC`), as docs/operations.md shows it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from rsm_bridge.progress_report import Finding

_COMMAND = re.compile(r"`([^`]*\bTOPIC\b[^`]*)`")
#: They act on one topic id, and refuse a name that several have. Others act on every topic of the name.
_OF_ONE_ID = ("tierberg undelete ", "tierberg topic forget ", "tierberg repartition ", "tierberg leader-epochs ")


@dataclass(frozen=True, slots=True)
class Called:
    """The options that commands printed by `tierberg status` need, as it was given them itself.

    config, data_dir: of the settings. bootstrap_server: named by option. servers: those that were asked.
    """

    config: Path | None = None
    data_dir: Path | None = None
    bootstrap_server: str | None = None
    servers: str | None = None

    def options(self, command: str) -> str:
        """What a command is to end with, with a blank before each."""
        given: list[tuple[str, object]] = [("--config", self.config), ("--data-dir", self.data_dir)]
        if command.startswith("tierberg topic forget "):
            given.append(("--bootstrap-server", self.bootstrap_server))
        return "".join(f" {name} {shlex.quote(str(value))}" for name, value in given if value is not None)


PLAINLY = Called()


def advice(finding: Finding, called: Called = PLAINLY) -> str:
    """What to do about it."""
    return filled(finding.advice, finding, called)


def commands(finding: Finding, called: Called = PLAINLY) -> list[str]:
    """Those of the advice that are about the finding's topic."""
    return [_command(found[1], finding, called) for found in _COMMAND.finditer(finding.advice)]


def filled(text: str, finding: Finding, called: Called = PLAINLY) -> str:
    """A text of advice with its commands made whole."""
    return _COMMAND.sub(lambda found: f"`{_command(found[1], finding, called)}`", text)


def _command(pattern: str, finding: Finding, called: Called) -> str:
    if finding.topic is None:
        return pattern
    command = re.sub(r"\bTOPIC\b", finding.topic, pattern)
    if finding.partition is not None:
        command = re.sub(r"\bPARTITION\b", str(finding.partition), command)
    if called.servers is not None:
        command = re.sub(r"\bSERVERS\b", shlex.quote(called.servers), command)
    if not command.startswith("tierberg "):
        return command
    if finding.topic_id is not None and command.startswith(_OF_ONE_ID):
        command = f"{command} --topic-id {finding.topic_id}"
    return command + called.options(command)
