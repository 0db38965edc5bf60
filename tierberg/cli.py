"""The `tierberg` command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tierberg.commands import advise, config_check, leader_epochs, repair, repartition
from tierberg.commands.exits import FAILURE, FINDING, failures
from tierberg.commands.options import ConfigOption, DataDirOption

app = typer.Typer(
    name="tierberg",
    help="Tiered storage for Apache Kafka that keeps a topic's history once, as an Apache Iceberg table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
inspect_app = typer.Typer(help="Look into stored objects.", no_args_is_help=True)
app.add_typer(inspect_app, name="inspect")
bucket_app = typer.Typer(help="Prepare the bucket of an S3 store.", no_args_is_help=True)
app.add_typer(bucket_app, name="bucket")

repair.register(app)
config_check.register(app)
repartition.register(app)
advise.register(app)
leader_epochs.register(app)


#: Commands that choose their kernels' folder themselves, or touch none.
_WITHOUT_KERNELS = ("serve", "warmup", "demo", "version", "bucket", "config")


@app.callback()
def _kernels(context: typer.Context) -> None:
    # Read when numba is loaded: before the command imports what it needs.
    if context.invoked_subcommand in _WITHOUT_KERNELS or "NUMBA_CACHE_DIR" in os.environ:
        return
    from rsm_bridge.serving.kernel_cache import command_kernels

    with failures():
        folder = command_kernels(lambda line: typer.echo(f"tierberg: {line}", err=True))
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


@app.command()
def serve(
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    listen: Annotated[
        str | None, typer.Option("--listen", help="`HOST:PORT` or `unix:PATH` to serve brokers on. Port 0: a free one.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow listening beyond loopback without client authentication.")
    ] = False,
    metrics_listen: Annotated[
        str | None, typer.Option("--metrics-listen", help="`HOST:PORT` of the Prometheus page, loopback only.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve brokers until SIGTERM. Prints one line to standard output once calls are answered."""
    from tierberg.commands.serve import serve_forever

    overrides = {
        "data_dir": data_dir,
        "listen": listen,
        "insecure": insecure or None,
        "metrics_listen": metrics_listen,
    }
    with failures():
        serve_forever(config, overrides, log_level)


@app.command()
def warmup() -> None:
    """Compile kernels into this installation, so that no bridge of it compiles when it starts. Half a minute, once."""
    from rsm_bridge.serving.kernel_cache import installed_kernels

    folder = installed_kernels()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        typer.echo(f"tierberg: {folder}: {error.strerror}; run it as who installs, bridges only read", err=True)
        raise typer.Exit(FAILURE) from error
    os.environ["NUMBA_CACHE_DIR"] = str(folder)  # read when numba is loaded
    from converter.segment.warmup import warm
    from converter.values.proof.warmup import warm_values

    warm()
    warm_values()
    typer.echo(f"kernels are in {folder}")


@app.command()
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
) -> None:
    """Run the whole path on this machine: stock Kafka, real events, Iceberg, Spark. Exits 1 when a check fails."""
    from tierberg.demo.main import run

    raise typer.Exit(run(data_dir, kafka_version=kafka_version, keep=keep))


@inspect_app.command("segment")
def inspect_segment(
    target: Annotated[str, typer.Argument(help="A segment index: a file, or a key of the store.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    batches: Annotated[int, typer.Option("--batches", min=0, help="How many batches to list.")] = 20,
) -> None:
    """Show a segment's batches: offsets, producers, how each is stored and why."""
    _inspect(target, config, data_dir, batches)


@inspect_app.command("index")
def inspect_index(
    target: Annotated[str, typer.Argument(help="A segment index: a file, or a key of the store.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show what a segment index says: metadata, objects, summary, sections, blocks."""
    _inspect(target, config, data_dir, None)


def _inspect(target: str, config: Path | None, data_dir: Path | None, batches: int | None) -> None:
    from rsm_bridge.status.verify.inspection import describe

    with failures():
        typer.echo(describe(target, config, data_dir, batches))


@app.command()
def verify(
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
) -> None:
    """Read every live segment again; prove it against stored checksums and the table.

    Exits 1 on any damage, 3 when some of it could not be read.
    """
    from rsm_bridge.status.verify.store import verify_store

    with failures():
        report = verify_store(config, data_dir, topic)
    for line in report.lines():
        typer.echo(line)
    if report.damages:
        raise typer.Exit(FINDING)
    if report.unread:
        raise typer.Exit(FAILURE)


@bucket_app.command("init")
def bucket_init(
    config: ConfigOption = None,
    abandoned_days: Annotated[
        int, typer.Option("--abandoned-days", min=1, help="Age in days at which an unfinished upload ends.")
    ] = 2,
) -> None:
    """Make the bucket of `store.url` and the rule that ends abandoned uploads. Run again, it changes nothing.

    Exits 1 when another lifecycle rule of the bucket would delete history.
    """
    from rsm_bridge.config.settings import load_settings
    from rsm_bridge.storage.bucket import init_bucket

    with failures():
        report = init_bucket(load_settings(config), abandoned_days)
    for line in report.done:
        typer.echo(line)
    if report.dangers:
        typer.echo(f"tierberg: {'; '.join(report.dangers)}", err=True)
        raise typer.Exit(FINDING)


@app.command()
def status(
    topic: Annotated[str | None, typer.Argument(help="Only this topic, with every partition.")] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; its schema is docs/status.schema.json.")
    ] = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", help="Brokers to ask. Overrides `kafka.bootstrap_servers` of the file."),
    ] = None,
    bridge: Annotated[
        str | None,
        typer.Option(
            "--bridge", help="Address of the bridge to ask for its health; `none`: do not. Default: `listen`."
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            help="A cause that is known and must not make the exit code 1, as `CODE` or `CODE:TOPIC`. Repeatable.",
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", min=1.0, help="Seconds to spend on reading indexes from the store.")
    ] = 30.0,
    every: Annotated[
        bool, typer.Option("--all", help="Every place of every cause and every partition, not the first ones.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", min=0.0, help="Longest pause in seconds before an alarm that may pass is looked at again."
        ),
    ] = 60.0,
) -> None:
    """Say how far every partition has come, why no further, and what to do. Exits 1 when somebody is needed."""
    from tierberg.commands.status import StatusOptions
    from tierberg.commands.status import status as report

    options = StatusOptions(
        config=config,
        data_dir=data_dir,
        topic=topic,
        bootstrap_server=bootstrap_server,
        bridge=bridge,
        accept=tuple(accept or ()),
        deadline=deadline,
        json=as_json,
        every=every,
        patience=patience,
    )
    with failures():
        text, needed = report(options, lambda line: typer.echo(line, err=True))
    typer.echo(text)
    if needed:
        raise typer.Exit(FINDING)


@app.command()
def version() -> None:
    """Print the release."""
    from importlib.metadata import version as release

    typer.echo(f"tierberg {release('tierberg')}")


def main() -> None:
    """Entry point of the `tierberg` command. What it writes is for its own user alone, whoever else is on the machine.

    Kernels of `warmup` are for all bridges of the installation.
    """
    if sys.argv[1:2] != ["warmup"]:
        os.umask(0o077)
    app()


if __name__ == "__main__":
    main()
