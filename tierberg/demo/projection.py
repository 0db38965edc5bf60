"""A projection of the flights: made by `tierberg repartition`; `tierberg advise` compares it with the topic's table."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from iceberg_catalog.errors import CatalogError
from repartition.advise.advise import AdviseOptions, advise
from repartition.advise.picture import draw
from repartition.advise.report import AdviceReport
from repartition.advise.text import as_text
from repartition.errors import RepartitionError
from rsm_bridge.errors import BridgeError, SettingsError
from tierberg.demo.checks import DemoSummary
from tierberg.demo.errors import DemoError
from tierberg.demo.queries import QUERIES, queries_file
from tierberg.demo.servers import PROJECTION, SPARK_FOLDER, TOPIC, Servers, config_file
from tierberg.demo.tier import record_progress
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

#: The job takes 15 to 30 s.
_REPARTITION_S = 600.0
#: Of one run of one query.
_QUERY_S = 120.0
#: What the command's own lines begin with; Spark writes its log between them.
_OURS = (f"{PROJECTION}: ", "tierberg: ")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `tierberg advise` found, and the picture of it: where it is, and its width and height in pixels."""

    report: AdviceReport
    picture: Path
    pixels: tuple[int, int]


def own_lines(output: str) -> list[str]:
    """What the command itself has said: its finished lines, without Spark's."""
    finished = output[: output.rfind("\n") + 1]
    return [line for line in finished.splitlines() if line.startswith(_OURS)]


def make_projection(servers: Servers, folder: Path, summary: DemoSummary) -> None:
    """Run `tierberg repartition flights` to its end, and show its lines as they come.

    Args:
        servers: the bridge's settings declare the projection.
        folder: of the demo; Spark's log goes there.
        summary: its details get the lines.

    Raises:
        DemoError: it failed.
        StackError: it took longer than ten minutes.
    """
    arguments = ["repartition", TOPIC, "--config", str(config_file(servers))]
    summary.detail.print(f"$ tierberg {' '.join(arguments)}", highlight=False, soft_wrap=True)
    argv = [str(Path(sys.executable).with_name("tierberg")), *arguments]
    job = ServerProcess("tierberg repartition", argv, folder / SPARK_FOLDER / "repartition.log", cwd=folder)
    shown = 0

    def ended() -> bool:
        nonlocal shown
        running = job.alive
        lines = own_lines(job.output())
        for line in lines[shown:]:
            summary.detail.print(f"  {line}", markup=False, highlight=False)
        shown = len(lines)
        return not running

    job.start()
    try:
        wait_for("`tierberg repartition` to end", ended, _REPARTITION_S)
    finally:
        job.stop()
    if job.returncode:
        raise DemoError(f"`tierberg repartition` ended with code {job.returncode}; {job.log} ends:\n{job.log_tail()}")


def compare_layouts(servers: Servers, folder: Path, summary: DemoSummary) -> Comparison:
    """Do what `tierberg advise flights --run` does with the questions about columns of the value.

    Prints its tables and draws its picture. Spark's Java side is the one that has answered questions before.

    Args:
        servers: the bridge's settings declare the projection.
        folder: of the demo; file of questions and picture go there.
        summary: its details get the tables.

    Raises:
        DemoError: there is no report, or no place for the picture.
    """
    queries, picture = folder / "queries.sql", folder / f"advise-{TOPIC}.png"
    queries.write_text(queries_file())
    asked = sum(query.of_values for query in QUERIES)
    arguments = f"{TOPIC} --queries {queries} --run --picture {picture} --config {config_file(servers)}"
    summary.detail.print(f"$ tierberg advise {arguments}", highlight=False, soft_wrap=True)
    interrupted = signal.getsignal(signal.SIGINT)
    options = AdviseOptions(topic=TOPIC, queries=queries, run=True, deadline_s=_QUERY_S)
    try:
        with record_progress(summary, "questions to both tables, run six times", 2 * asked) as progress:

            def say(_line: str) -> None:
                # Spark runs by now; its own handler calls Java from inside the call it interrupts, and fails.
                signal.signal(signal.SIGINT, interrupted)
                progress(1)

            report = advise(config_file(servers), None, options, say)
        pixels = draw(report, picture)
    except (RepartitionError, BridgeError, CatalogError, SettingsError) as error:
        raise DemoError(f"`tierberg advise` failed: {error}") from error
    finally:
        signal.signal(signal.SIGINT, interrupted)
    console = summary.console
    text = Text.from_ansi(as_text(report, console.width, colour=console.is_terminal))
    summary.detail.print(text, soft_wrap=True)
    summary.detail.print(f"picture: {picture}", highlight=False, soft_wrap=True)
    return Comparison(report, picture, pixels)
