"""The command `tierberg serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption


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
    from rsm_bridge.serving.serve import serve_forever

    overrides = {
        "data_dir": data_dir,
        "listen": listen,
        "insecure": insecure or None,
        "metrics_listen": metrics_listen,
    }
    with failures():
        serve_forever(config, overrides, log_level)
