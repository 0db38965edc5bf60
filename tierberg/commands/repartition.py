"""The command `repartition`."""

from __future__ import annotations

from typing import Annotated

import typer

from tierberg.exits import FAILURE, failures
from tierberg.options import ConfigOption, DataDirOption, TopicIdOption


def repartition(
    topic: Annotated[str | None, typer.Argument(help="The Kafka topic whose projections to bring up to date.")] = None,
    all_topics: Annotated[bool, typer.Option("--all", help="Every topic that has `copies`.")] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_id: TopicIdOption = None,
    continuous: Annotated[
        bool, typer.Option("--continuous/--once", help="Go on until interrupted, or end when all is read.")
    ] = False,
    max_mib: Annotated[
        int | None, typer.Option("--max-mib", min=1, help="How much of a topic one run reads, in MiB.")
    ] = None,
    maintenance_budget: Annotated[
        float, typer.Option("--maintenance-budget", min=0, max=0.9, help="Share of the running time that it may take.")
    ] = 0.2,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read again what an unclean election took back from a topic's table.")
    ] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Make rows of dead letters that the rule has one for by now.")
    ] = False,
) -> None:
    """Bring the projections of topics up to date with Spark. Exits 3 when one failed."""
    from rich.console import Console

    from repartition.jobs.command import RepartitionOptions
    from repartition.jobs.command import repartition as run
    from repartition.jobs.progress_bars import shown
    from rsm_bridge.limits import MIB

    if (topic is None) != all_topics:
        raise typer.BadParameter("name a topic, or say --all")
    if all_topics and topic_id is not None:
        raise typer.BadParameter("--topic-id chooses between topics of one name: name it, without --all")
    limit = None if max_mib is None else max_mib * MIB
    options = RepartitionOptions(
        topic=topic,
        topic_id=topic_id,
        continuous=continuous,
        max_bytes=limit,
        repair=repair,
        replay=replay,
        maintenance=maintenance_budget,
    )
    with failures(), shown(Console()) as view:
        failed = run(config, data_dir, options, view)
    raise typer.Exit(FAILURE if failed else 0)
