"""The command `tierberg replay-dead-letters`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption, DryRunOption


def replay_dead_letters(
    topic: Annotated[str | None, typer.Option("--topic", help="Only this Kafka topic. Default: all.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Decode rows again that did not decode, after the registry, a schema or a rule was put right."""
    from rsm_bridge.storage.backend import open_backend
    from rsm_bridge.tables.maintain.replay_topics import replay as run

    with failures():
        run(open_backend(config, data_dir, made=True), topic, dry_run=dry_run, say=typer.echo)
