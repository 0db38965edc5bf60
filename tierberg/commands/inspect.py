"""The command `tierberg inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption


def segment(
    target: Annotated[str, typer.Argument(help="A segment index: a file, or a key of the store.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    batches: Annotated[int, typer.Option("--batches", min=0, help="How many batches to list.")] = 20,
) -> None:
    """Show a segment's batches: offsets, producers, how each is stored and why."""
    _inspect(target, config, data_dir, batches)


def index(
    target: Annotated[str, typer.Argument(help="A segment index: a file, or a key of the store.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show what a segment index says: metadata, objects, summary, sections, blocks."""
    _inspect(target, config, data_dir, None)


def _inspect(target: str, config: Path | None, data_dir: Path | None, batches: int | None) -> None:
    from rsm_bridge.status.verify.inspection import describe

    with failures():
        typer.echo(describe(target, config, data_dir, batches))
