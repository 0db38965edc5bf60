"""The command `advise`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from tierberg.exits import failures
from tierberg.options import ConfigOption, DataDirOption, TopicIdOption


def advise(
    topic: Annotated[str, typer.Argument(help="The Kafka topic whose table and projections to ask.")],
    queries: Annotated[
        Path, typer.Option("--queries", help="SQL, statements parted by `;`; `{table}` stands for the table.")
    ],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_id: TopicIdOption = None,
    run: Annotated[
        bool, typer.Option("--run/--plan", help="Run the queries and time them, or only plan them.")
    ] = False,
    deadline: Annotated[float, typer.Option("--deadline", min=1.0, help="Seconds that one run may take.")] = 300.0,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Where the picture goes. Default: advise-<topic>.png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what queries need of a topic's table and of each projection: files, bytes, seconds; with a picture."""
    from repartition.advise.advise import AdviseOptions
    from repartition.advise.advise import advise as ask
    from repartition.advise.picture import check_place, draw
    from repartition.advise.report import as_json as document
    from repartition.advise.text import as_text

    place = picture or Path(f"advise-{topic}.png")
    with failures():
        check_place(place)
        options = AdviseOptions(topic=topic, queries=queries, topic_id=topic_id, run=run, deadline_s=deadline)
        report = ask(config, data_dir, options, lambda line: typer.echo(line, err=True))
        width = shutil.get_terminal_size((120, 24)).columns
        typer.echo(document(report) if as_json else as_text(report, width, colour=sys.stdout.isatty()))
        draw(report, place)
        typer.echo(f"picture: {place}", err=True)
