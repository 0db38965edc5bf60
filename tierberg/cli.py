"""The `tierberg` command: its subcommands and groups. What each does is in its file below `commands/`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import typer

from tierberg.commands import (
    advise,
    bucket,
    config,
    demo,
    inspect,
    jar,
    leader_epochs,
    maintain,
    repartition,
    replay,
    requeue,
    serve,
    status,
    table,
    topic,
    undelete,
    verify,
    version,
    warmup,
)
from tierberg.exits import failures

#: In the order of the help.
_COMMANDS: dict[str, Callable[..., None]] = {
    "serve": serve.serve,
    "status": status.status,
    "verify": verify.verify,
    "maintain": maintain.maintain,
    "undelete": undelete.undelete,
    "requeue": requeue.requeue,
    "replay-dead-letters": replay.replay_dead_letters,
    "leader-epochs": leader_epochs.leader_epochs,
    "repartition": repartition.repartition,
    "advise": advise.advise,
    "demo": demo.demo,
    "jar": jar.jar,
    "warmup": warmup.warmup,
    "version": version.version,
}
#: Groups: what they are about, and their commands.
_GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "config": ("Look at the configuration.", {"check": config.check}),
    "table": ("Tables as a whole.", {"drop": table.drop}),
    "topic": ("Kafka topics as the store knows them.", {"forget": topic.forget}),
    "inspect": ("Look into stored objects.", {"segment": inspect.segment, "index": inspect.index}),
    "bucket": ("Prepare the bucket of an S3 store.", {"init": bucket.init}),
}
#: Commands that choose their kernels' folder themselves, or touch none.
_WITHOUT_KERNELS = ("serve", "warmup", "demo", "version", "bucket", "config", "jar")

app = typer.Typer(
    name="tierberg",
    help="Tiered storage for Apache Kafka that keeps a topic's history once, as an Apache Iceberg table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
for _name, (_help, _commands) in _GROUPS.items():
    _group = typer.Typer(help=_help, no_args_is_help=True)
    _group.callback()(lambda: None)  # a group, also while it has one command alone
    for _member, _command in _commands.items():
        _group.command(_member)(_command)
    app.add_typer(_group, name=_name)


@app.callback()
def _kernels(context: typer.Context) -> None:
    # Read when numba is loaded: before the command imports what it needs.
    if context.invoked_subcommand in _WITHOUT_KERNELS or "NUMBA_CACHE_DIR" in os.environ:
        return
    from rsm_bridge.serving.kernel_cache import command_kernels

    with failures():
        folder = command_kernels(lambda line: typer.echo(f"tierberg: {line}", err=True))
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


def main() -> None:
    """Entry point of the `tierberg` command. What it writes is for its own user alone, whoever else is on the machine.

    Kernels of `warmup` are for all bridges of the installation.
    """
    if sys.argv[1:2] != ["warmup"]:
        os.umask(0o077)
    try:
        app()
    except SystemExit as end:
        if sys.argv[1:2] == ["status"]:
            _leave(end.code)
        raise


def _leave(code: str | int | None) -> None:
    """Ends at once where threads still wait for a server: their pools would be waited for. They only read."""
    if threading.active_count() == 1 or isinstance(code, str):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main()
