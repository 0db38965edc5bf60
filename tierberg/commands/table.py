"""The command `tierberg table drop`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption


def drop(
    name: Annotated[
        str,
        typer.Argument(
            help="The table's name, without or with its namespace; or the uuid of one that is no longer wanted."
        ),
    ],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    unreadable: Annotated[
        bool,
        typer.Option(
            "--unreadable", help="Drop the catalog's entry of a table whose metadata, state or columns are gone."
        ),
    ] = False,
) -> None:
    """Drop a table that has no rows and no segments left, or by its uuid one that earlier rules made beside it."""
    from rsm_bridge.storage.backend import open_backend
    from rsm_bridge.tables.maintain.by_name import drop

    with failures():
        for line in drop(open_backend(config, data_dir, made=True), name, unreadable=unreadable):
            typer.echo(line)
