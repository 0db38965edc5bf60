"""What `tierberg repartition` shows: bars in a terminal, elsewhere one line per step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from repartition.reading import Reading
from repartition.watching import Began, CopyName, Ended, Event, Failed, Maintained, Planned, Raced, Watcher, lines

#: Spark needs the cores more.
_FRAMES_PER_SECOND: Final = 4
_DONE: Final = "has everything"


@dataclass(frozen=True, slots=True)
class Shown:
    """`watchers`: to be told of the copies; `say`: for a line of another kind."""

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


@contextmanager
def with_bars(console: Console) -> Iterator[Shown]:
    """A bar for each copy, which has its present step; lines scroll above."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    with Progress(*columns, console=console, refresh_per_second=_FRAMES_PER_SECOND) as progress:
        yield Shown((lines(say, steps=False), Bars(progress)), say)


@dataclass(slots=True)
class _Bar:
    """One copy's. `read`: bytes of the data files that runs have read since it last had everything."""

    task: TaskID
    read: int = 0
    complete: bool = False


@dataclass(slots=True)
class Bars:
    """A watcher: bytes of data files that a copy has read, of those that it has to read to have everything."""

    progress: Progress
    _bars: dict[CopyName, _Bar] = field(default_factory=dict, init=False)

    def __call__(self, copy: CopyName, event: Event) -> None:
        """Moves the copy's bar."""
        if copy not in self._bars:
            self._bars[copy] = _Bar(self.progress.add_task(copy.table, total=None, note=""))
        bar = self._bars[copy]
        match event:
            case Planned(reading):
                self._planned(bar, reading)
            case Began(step):
                self.progress.update(bar.task, note=step)
            case Ended(ran):
                bar.read, bar.complete = bar.read + ran.reading.size_bytes, ran.complete
                note = _DONE if ran.complete else ""
                self.progress.update(bar.task, completed=bar.read, total=bar.read + ran.reading.left_bytes, note=note)
            case Raced():
                self.progress.update(bar.task, note="once more")
            case Failed():
                self.progress.update(bar.task, note="failed")
            case Maintained():
                self.progress.update(bar.task, note=_DONE)

    def _planned(self, bar: _Bar, reading: Reading) -> None:
        if bar.complete:
            bar.read, bar.complete = 0, False
            self.progress.reset(bar.task)
        total = bar.read + reading.size_bytes + reading.left_bytes
        self.progress.update(bar.task, completed=bar.read, total=total, note="")
