"""The commands that change what is stored.

`maintain`, `undelete`, `requeue`, `replay-dead-letters`, `table drop`, `topic forget`.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tierberg.commands.exits import failures
from tierberg.commands.options import ConfigOption, DataDirOption

table_app = typer.Typer(help="Tables as a whole.", no_args_is_help=True)

topic_app = typer.Typer(help="Kafka topics as the store knows them.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(maintain)
    app.command()(undelete)
    app.command()(requeue)
    app.command("replay-dead-letters")(replay_dead_letters)
    app.add_typer(table_app, name="table")
    app.add_typer(topic_app, name="topic")


def maintain(
    table: Annotated[str | None, typer.Argument(help="Only this table or topic. Default: all.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")] = False,
) -> None:
    """Remove what is due: deleted segments after their grace, old snapshots, leftovers of crashes."""
    from rsm_bridge.storage.backend import open_backend
    from tierberg.commands.maintain import maintain as run

    with failures():
        run(open_backend(config, data_dir, made=True), table, dry_run=dry_run, say=typer.echo)


def undelete(
    topic: Annotated[str, typer.Argument(help="The Kafka topic's name.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Which one, 32 hex digits, when a topic was created again.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Delete again what earlier undeletes brought back.")] = False,
    without_lost: Annotated[
        bool,
        typer.Option("--without-lost", help="Give up for good deleted segments whose data files are not in the store."),
    ] = False,
) -> None:
    """Bring back the rows of everything Kafka deleted of a topic and that is still in the store."""
    from rsm_bridge.storage.backend import open_backend
    from tierberg.commands.maintain import restore

    with failures():
        backend = open_backend(config, data_dir, made=True)
        for line in restore(backend, topic, topic_id, undo=undo, without_lost=without_lost):
            typer.echo(line)


def requeue(
    topic: Annotated[str | None, typer.Argument(help="Only this Kafka topic. Default: all.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")] = False,
) -> None:
    """Give rows to segments that were stored as they are, where the topic's rule says `mode: table`."""
    from rsm_bridge.storage.backend import open_backend
    from tierberg.commands.requeue import requeue as run

    with failures():
        run(open_backend(config, data_dir, made=True), topic, dry_run=dry_run, say=typer.echo)


def replay_dead_letters(
    topic: Annotated[str | None, typer.Option("--topic", help="Only this Kafka topic. Default: all.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")] = False,
) -> None:
    """Decode rows again that did not decode, after the registry, a schema or a rule was put right."""
    from rsm_bridge.storage.backend import open_backend
    from tierberg.commands.replay import replay as run

    with failures():
        run(open_backend(config, data_dir, made=True), topic, dry_run=dry_run, say=typer.echo)


@table_app.command("drop")
def table_drop(
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
        typer.Option("--unreadable", help="Drop the catalog's entry of a table whose metadata or state is gone."),
    ] = False,
) -> None:
    """Drop a table that has no rows and no segments left, or by its uuid one that earlier rules made beside it."""
    from rsm_bridge.storage.backend import open_backend
    from tierberg.commands.maintain import drop

    with failures():
        for line in drop(open_backend(config, data_dir, made=True), name, unreadable=unreadable):
            typer.echo(line)


@topic_app.command("forget")
def topic_forget(
    topic: Annotated[str, typer.Argument(help="The Kafka topic's name.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Only this one, 32 hex digits. Default: all that are gone.")
    ] = None,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", help="Brokers to ask. Overrides `kafka.bootstrap_servers` of the file."),
    ] = None,
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
    from rsm_bridge.tables.maintain.topic_forget import Wish, forget, kafka_of

    with failures():
        backend = open_backend(config, data_dir, made=True)
        ask = kafka_of(backend.settings, bootstrap_server)
        forget(backend, Wish(topic, topic_id, yes, frozenset(cluster or ())), ask, typer.echo, time.sleep)
