"""The command `tierberg demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tierberg.exits import USAGE, failures


def demo(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Folder for the servers and their data; emptied when a demo made it.")
    ] = Path("demo-data"),
    kafka_version: Annotated[
        str, typer.Option("--kafka-version", envvar="KAFKA_VERSION", help="Of the stock broker: 4.3.1 or 4.4.0.")
    ] = "4.3.1",
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave broker and bridge running, and say how to use them.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print every statement, column, check and figure as well.")
    ] = False,
) -> None:
    """Run the whole path on this machine: stock Kafka, real events, Iceberg, Spark. Exits 1 when a check fails."""
    from rsm_bridge.config.extras import require_extra

    with failures():
        require_extra("demo", "the demo")
    from tierberg.demo.errors import DemoError
    from tierberg.demo.main import prepared, run
    from tierberg.stack.errors import StackError

    try:
        folder = prepared(data_dir, kafka_version)
    except (DemoError, StackError) as error:
        typer.echo(f"tierberg: {error}", err=True)
        raise typer.Exit(USAGE) from error
    raise typer.Exit(run(folder, called=data_dir, kafka_version=kafka_version, keep=keep, verbose=verbose))
