"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _not_empty(value: str | None) -> str | None:
    """A script's empty variable is no server, and must not stand for those of the file either."""
    if value is not None and not value.strip():
        raise typer.BadParameter("it is empty")
    return value


ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Configuration file (YAML); see docs/configuration.md.")
]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the embedded store and catalog. Overrides `data_dir` of the file."),
]
TopicIdOption = Annotated[
    str | None, typer.Option("--topic-id", help="Which one, 32 hex digits, when a topic was created again.")
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        help="Brokers to ask. Overrides `kafka.bootstrap_servers` of the file.",
        callback=_not_empty,
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")]
