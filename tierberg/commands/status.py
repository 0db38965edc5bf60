"""The command `tierberg status`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import FINDING, failures
from tierberg.options import BootstrapOption, ConfigOption, DataDirOption


def status(
    topic: Annotated[str | None, typer.Argument(help="Only this topic, with every partition.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; its schema is docs/status.schema.json.")
    ] = False,
    bootstrap_server: BootstrapOption = None,
    bridge: Annotated[
        str | None,
        typer.Option(
            "--bridge", help="Address of the bridge to ask for its health; `none`: do not. Default: `listen`."
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            help="A cause that is known and must not make the exit code 1, as `CODE` or `CODE:TOPIC`. Repeatable.",
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", min=1.0, help="Seconds to spend on reading indexes from the store.")
    ] = 30.0,
    every: Annotated[
        bool, typer.Option("--all", help="Every place of every cause and every partition, not the first ones.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", min=0.0, help="Longest pause in seconds before an alarm that may pass is looked at again."
        ),
    ] = 60.0,
) -> None:
    """Say how far every partition has come, why no further, and what to do. Exits 1 when somebody is needed."""
    from rsm_bridge.status.command import StatusOptions
    from rsm_bridge.status.command import status as report

    options = StatusOptions(
        config=config,
        data_dir=data_dir,
        topic=topic,
        bootstrap_server=bootstrap_server,
        bridge=bridge,
        accept=tuple(accept or ()),
        deadline=deadline,
        json=as_json,
        every=every,
        patience=patience,
    )
    with failures():
        text, needed = report(options, lambda line: typer.echo(line, err=True))
    typer.echo(text)
    if needed:
        raise typer.Exit(FINDING)
