"""The command `tierberg config check`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import FINDING, failures
from tierberg.options import BootstrapOption, ConfigOption, DataDirOption


def check(
    topics: Annotated[
        list[str] | None, typer.Argument(help="Only these topics. Default: all that Kafka has.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    bootstrap_server: BootstrapOption = None,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Ask no broker; name topics instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what the rules make of each topic, and why one is not tiered. Exits 1 when something will not work."""
    from rsm_bridge.status.check.command import CheckOptions, check_config

    options = CheckOptions(
        config=config,
        data_dir=data_dir,
        topics=tuple(topics or ()),
        bootstrap_server=bootstrap_server,
        ask_kafka=not no_kafka,
        json=as_json,
    )
    with failures():
        text, wrong = check_config(options)
    typer.echo(text)
    if wrong:
        raise typer.Exit(FINDING)
