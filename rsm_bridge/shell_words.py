"""Commands in texts for people, as a shell takes them when they are pasted.

Kafka allows topic names that begin with a dash, which a command would take for options: those stand behind `--`, after
all options. Commands are printed between backticks, so none is left in what stands there.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def quoted(value: object) -> str:
    """One word of a command line, without a backtick in it."""
    text = str(value)
    if "`" not in text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("`", "\\140")
    return f"$'{escaped}'"


def command_line(command: str, arguments: Sequence[str], options: Sequence[str] = ()) -> str:
    """A command of ours, whole.

    Args:
        command: `tierberg` and the words that choose the command.
        arguments: what it is about, in their order; not quoted yet.
        options: each with its value, as they are to stand there.
    """
    words = [quoted(argument) for argument in arguments]
    if any(argument.startswith("-") for argument in arguments):
        return " ".join([command, *options, "--", *words])
    return " ".join([command, *words, *options])
