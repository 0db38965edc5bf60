"""The command `tierberg maintain`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption, DryRunOption


def maintain(
    table: Annotated[str | None, typer.Argument(help="Only this table or topic. Default: all.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Remove what is due: deleted segments after their grace, old snapshots, leftovers of crashes."""
    from rsm_bridge.storage.backend import open_backend
    from rsm_bridge.tables.maintain.by_name import maintain as run

    with failures():
        run(open_backend(config, data_dir, made=True), table, dry_run=dry_run, say=typer.echo)
