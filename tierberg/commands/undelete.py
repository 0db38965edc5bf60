"""The command `tierberg undelete`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption, TopicIdOption


def undelete(
    topic: Annotated[str, typer.Argument(help="The Kafka topic's name.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_id: TopicIdOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Delete again what earlier undeletes brought back.")] = False,
    without_lost: Annotated[
        bool,
        typer.Option("--without-lost", help="Give up for good deleted segments whose data files are not in the store."),
    ] = False,
) -> None:
    """Bring back the rows of everything Kafka deleted of a topic and that is still in the store."""
    from rsm_bridge.storage.backend import open_backend
    from rsm_bridge.tables.maintain.by_name import restore

    with failures():
        backend = open_backend(config, data_dir, made=True)
        for line in restore(backend, topic, topic_id, undo=undo, without_lost=without_lost):
            typer.echo(line)
