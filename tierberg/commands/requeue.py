"""The command `tierberg requeue`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption, DryRunOption


def requeue(
    topic: Annotated[str | None, typer.Argument(help="Only this Kafka topic. Default: all.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Give rows to segments that were stored as they are, where the topic's rule says `mode: table`.

    With TOPIC the table also gets what else its live segments have and it lacks.
    """
    from rsm_bridge.storage.backend import open_backend
    from rsm_bridge.tables.maintain.requeue_topics import requeue as run

    with failures():
        run(open_backend(config, data_dir, made=True), topic, dry_run=dry_run, say=typer.echo)
