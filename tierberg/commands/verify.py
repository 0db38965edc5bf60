"""The command `tierberg verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import FAILURE, FINDING, failures
from tierberg.options import ConfigOption, DataDirOption


def verify(
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
) -> None:
    """Read every live segment again; prove it against stored checksums and the table.

    Exits 1 on any damage, 3 when some of it could not be read.
    """
    from rsm_bridge.status.verify.store import verify_store

    with failures():
        report = verify_store(config, data_dir, topic)
    for line in report.lines():
        typer.echo(line)
    if report.damages:
        raise typer.Exit(FINDING)
    if report.unread:
        raise typer.Exit(FAILURE)
