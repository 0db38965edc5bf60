"""The command `tierberg bucket init`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import FINDING, failures
from tierberg.options import ConfigOption


def init(
    config: ConfigOption = None,
    abandoned_days: Annotated[
        int, typer.Option("--abandoned-days", min=1, help="Age in days at which an unfinished upload ends.")
    ] = 2,
) -> None:
    """Make the bucket of `store.url` and the rule that ends abandoned uploads. Run again, it changes nothing.

    Exits 1 when another lifecycle rule of the bucket would delete history.
    """
    from rsm_bridge.config.extras import require_extra
    from rsm_bridge.config.settings import load_settings

    with failures():
        require_extra("aws", "`tierberg bucket init`")
        from rsm_bridge.storage.bucket import init_bucket

        report = init_bucket(load_settings(config), abandoned_days)
    for line in report.done:
        typer.echo(line)
    if report.dangers:
        typer.echo(f"tierberg: {'; '.join(report.dangers)}", err=True)
        raise typer.Exit(FINDING)
