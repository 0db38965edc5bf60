"""What to do about a finding, with commands that can be pasted: of this very topic, for the settings that were read.

Advice names what it is about by capital letters (`tierberg undelete TOPIC`), as docs/operations.md shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rsm_bridge.shell_words import command_line, quoted
from rsm_bridge.status.report import Finding

_COMMAND = re.compile(r"`((?:tierberg|kafka-configs\.sh) [^`]+)`")
#: They act on one topic id, and refuse a name that several have. Others act on every topic of the name.
_OF_ONE_ID = frozenset({"undelete", "topic forget", "repartition", "leader-epochs"})
_OF_KAFKA = frozenset({"topic forget", "config check", "status"})
#: What the advice only speaks of: by themselves they are no commands, or not those that are meant.
_MENTIONED = frozenset({"tierberg repartition", "tierberg status"})
_GROUPS = frozenset({"topic", "table", "config", "inspect"})
#: What capitals of advice stand for beside the topic is named by the finding.
_CAPITALS = re.compile(r"\b(?:TOPIC|PARTITION|SERVERS|UUID|NAME|KEY)\b")


@dataclass(frozen=True, slots=True)
class Called:
    """The options that commands printed by `tierberg status` need, as it was given them itself.

    config, data_dir: of the settings. bootstrap_server: named by option. servers: those that were asked.
    """

    config: Path | None = None
    data_dir: Path | None = None
    bootstrap_server: str | None = None
    servers: str | None = None

    def options(self, command: str) -> Iterator[str]:
        """Those of a command, `undelete` or `topic forget`, each with its value."""
        given: list[tuple[str, object]] = [("--config", self.config), ("--data-dir", self.data_dir)]
        if command in _OF_KAFKA:
            given.append(("--bootstrap-server", self.bootstrap_server))
        return (f"{name} {quoted(value)}" for name, value in given if value is not None)


PLAINLY = Called()


def advice(finding: Finding, called: Called = PLAINLY) -> str:
    """What to do about it."""
    return filled(finding.advice, finding, called)


def commands(finding: Finding, called: Called = PLAINLY) -> list[str]:
    """Those of the advice that are about the finding's topic, or something of it."""
    found = (item[1] for item in _COMMAND.finditer(finding.advice))
    return [_command(pattern, finding, called) for pattern in found if _CAPITALS.search(pattern)]


def filled(text: str, finding: Finding, called: Called = PLAINLY) -> str:
    """A text of advice with its commands made whole."""
    return _COMMAND.sub(lambda found: f"`{_command(found[1], finding, called)}`", text)


def _command(pattern: str, finding: Finding, called: Called) -> str:
    if pattern in _MENTIONED or "'" in pattern:  # one that was made whole already
        return pattern
    if finding.topic is None and "TOPIC" in pattern:
        return pattern
    names = _names(finding, called)
    if not pattern.startswith("tierberg "):
        return " ".join(_options(pattern.split(" "), names))
    before, behind, after = pattern.partition(" -- ")
    words = before.split(" ")[1:]
    named = 2 if words[0] in _GROUPS else 1
    command, rest = " ".join(words[:named]), words[named:]
    split = next((number for number, word in enumerate(rest) if word.startswith("-")), len(rest))
    given = rest[:split] if not behind else after.split(" ")
    arguments = [names.get(word, word) for word in given]
    options = _options(rest[split:], names)
    if finding.topic_id is not None and command in _OF_ONE_ID and "--topic-id" not in words:
        options.append(f"--topic-id {finding.topic_id}")
    return command_line(f"tierberg {command}", arguments, [*options, *called.options(command)])


def _options(words: list[str], names: dict[str, str]) -> list[str]:
    """Words with their capitals filled in; a value that begins with a dash is tied to its option."""
    found: list[str] = []
    for word in words:
        value = names.get(word)
        if value is not None and value.startswith("-") and found:
            found[-1] = f"{found[-1]}={quoted(value)}"
        else:
            found.append(word if value is None else quoted(value))
    return found


def _names(finding: Finding, called: Called) -> dict[str, str]:
    """What the capitals stand for."""
    names = dict(finding.named)
    for capitals, value in (("TOPIC", finding.topic), ("PARTITION", finding.partition), ("SERVERS", called.servers)):
        if value is not None:
            names[capitals] = str(value)
    return names
