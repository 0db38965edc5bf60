"""The command `tierberg leader-epochs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption, TopicIdOption


def leader_epochs(
    topic: Annotated[str, typer.Argument(help="The Kafka topic's name.")],
    partition: Annotated[int, typer.Argument(min=0, help="The partition's number.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_id: TopicIdOption = None,
    current: Annotated[
        Path | None,
        typer.Option("--current", help="The broker's own `leader-epoch-checkpoint`, whose newer epochs are joined on."),
    ] = None,
) -> None:
    """Print the leader-epoch checkpoint of a partition, out of its tiered segments. Needs the store alone.

    Standard output is the file; standard error says how sure it is. Exits 1 when what is stored does not tell one.
    """
    from rsm_bridge.errors import SettingsError
    from rsm_bridge.limits import CHECKPOINT_BYTES_MAX
    from rsm_bridge.local_files import read_local
    from rsm_bridge.storage.segments.leader_epochs import history_of, joined, said
    from rsm_bridge.storage.segments.topic_segments import segments_of

    with failures():
        history = history_of(segments_of(config, data_dir, topic, topic_id), partition)
        if current is not None:
            try:
                content = read_local(current, CHECKPOINT_BYTES_MAX)
            except (OSError, ValueError) as error:
                raise SettingsError(f"--current {current}: {getattr(error, 'strerror', None) or error}") from error
            history = joined(history, content)
    for line in said(history, with_current=current is not None):
        typer.echo(line, err=True)
    typer.echo(history.checkpoint(), nl=False)
