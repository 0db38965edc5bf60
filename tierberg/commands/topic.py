"""The command `tierberg topic forget`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import BootstrapOption, ConfigOption, DataDirOption


def forget(
    topic: Annotated[str, typer.Argument(help="The Kafka topic's name.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Only this one, 32 hex digits. Default: all that are gone.")
    ] = None,
    bootstrap_server: BootstrapOption = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            help="The topic's cluster, by its `cluster.name`. Say it only if the Kafka that is asked is that cluster, "
            "or if that one is gone for good. Repeatable: a cluster may have had several names.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without, it only says what would go.")] = False,
) -> None:
    """Delete what a topic that Kafka has deleted left in the store, and its rows. Kafka is asked whether it is gone."""
    from rsm_bridge.storage.backend import open_backend
    from rsm_bridge.tables.maintain.topic_forget import Wish, kafka_of
    from rsm_bridge.tables.maintain.topic_forget import forget as run

    with failures():
        backend = open_backend(config, data_dir, made=True)
        ask = kafka_of(backend.settings, bootstrap_server)
        run(backend, Wish(topic, topic_id, yes, frozenset(cluster or ())), ask, typer.echo, time.sleep)
