"""What `tierberg repartition` shows: bars in a terminal, elsewhere one line per step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from repartition.jobs.events import (
    Began,
    Ended,
    Event,
    Failed,
    Maintained,
    Planned,
    ProjectionName,
    Raced,
    Watcher,
    lines,
)
from repartition.run.read_plan import Reading
from repartition.spark.session import running_tasks

#: Spark needs the cores more.
_FRAMES_PER_SECOND: Final = 4
_DONE: Final = "has everything"


@dataclass(frozen=True, slots=True)
class Shown:
    """`watchers`: to be told of the projections; `say`: for a line of another kind."""

    watchers: tuple[Watcher, ...]
    say: Callable[[str], None]


@contextmanager
def shown(console: Console) -> Iterator[Shown]:
    """Shows on standard output until the block ends."""
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        yield Shown((lines(typer.echo, steps=True),), typer.echo)
        return
    with with_bars(console) as found:
        yield found


class _Step(ProgressColumn):
    """The present step of a projection, and how many of the tasks that Spark runs for it are done."""

    def __init__(self, tasks: Callable[[str], tuple[int, int] | None]) -> None:
        super().__init__()
        self._tasks = tasks

    def render(self, task: Task) -> Text:
        note = str(task.fields["note"])
        found = self._tasks(task.description) if task.fields["busy"] else None
        return Text(note if found is None else f"{note}, {found[0]} of {found[1]} tasks")


@contextmanager
def with_bars(console: Console, tasks: Callable[[str], tuple[int, int] | None] = running_tasks) -> Iterator[Shown]:
    """A bar for each projection, which has its present step; lines scroll above.

    Args:
        console: a terminal.
        tasks: how many Spark has done of those it runs for a projection's table; asked with every frame, in the bars'
            own thread.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
        _Step(tasks),
    )

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    with Progress(*columns, console=console, refresh_per_second=_FRAMES_PER_SECOND) as progress:
        yield Shown((lines(say, steps=False), Bars(progress)), say)


@dataclass(slots=True)
class _Bar:
    """One projection's. `read`: bytes of the data files that runs have read since it last had everything."""

    task: TaskID
    read: int = 0
    complete: bool = False


@dataclass(slots=True)
class Bars:
    """A watcher: bytes of data files that a projection has read, of those that it has to read to have everything."""

    progress: Progress
    _bars: dict[ProjectionName, _Bar] = field(default_factory=dict, init=False)

    def __call__(self, projection: ProjectionName, event: Event) -> None:
        """Moves the projection's bar."""
        if projection not in self._bars:
            self._bars[projection] = _Bar(self.progress.add_task(projection.table, total=None, note="", busy=False))
        bar = self._bars[projection]
        match event:
            case Planned(reading):
                self._planned(bar, reading)
            case Began(step):
                self.progress.update(bar.task, note=step, busy=True)
            case Ended(ran):
                bar.read, bar.complete = bar.read + ran.reading.size_bytes, ran.complete
                self.progress.update(bar.task, completed=bar.read, total=bar.read + ran.reading.left_bytes)
                self._note(bar, _DONE if ran.complete else "")
            case Raced():
                self._note(bar, "once more")
            case Failed():
                self._note(bar, "failed")
            case Maintained():
                self._note(bar, _DONE if bar.complete else "")

    def _planned(self, bar: _Bar, reading: Reading) -> None:
        if bar.complete:
            bar.read, bar.complete = 0, False
            self.progress.reset(bar.task)
        total = bar.read + reading.size_bytes + reading.left_bytes
        self.progress.update(bar.task, completed=bar.read, total=total)
        self._note(bar, "")

    def _note(self, bar: _Bar, said: str) -> None:
        self.progress.update(bar.task, note=said, busy=False)
