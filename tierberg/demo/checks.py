"""What the demo promises, checked one by one, and the table it ends with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Check:
    """One promise and whether it held, with the figures that decided."""

    promise: str
    held: bool
    figures: str


@dataclass(slots=True, kw_only=True)
class DemoSummary:
    """Figures, step times and checks, in the order they came.

    Attributes:
        console: gets what everybody wants to see.
        verbose: everything else is printed too.
        figures: name and value of each.
        steps: name and seconds of each.
        checks: all that were made.
    """

    console: Console
    verbose: bool = False
    figures: list[tuple[str, str]] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def detail(self) -> Console:
        """Where everything else goes: the console, or nowhere."""
        return self.console if self.verbose else Console(quiet=True)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step and time it."""
        self.console.rule(f"[bold]{len(self.steps) + 1}. {name}", align="left")
        started = time.monotonic()
        try:
            yield
        finally:
            self.steps.append((name, time.monotonic() - started))

    def figure(self, name: str, value: str) -> None:
        """Note one figure for the table."""
        self.figures.append((name, value))

    def check(self, promise: str, held: bool, figures: str) -> None:
        """Note one check; show it at once when it failed."""
        self.checks.append(Check(promise, held, figures))
        (self.detail if held else self.console).print(
            f"{_mark(held)} {escape(promise)}: {escape(figures)}", highlight=False
        )

    @property
    def passed(self) -> bool:
        """Whether there were checks and all held."""
        return bool(self.checks) and all(check.held for check in self.checks)

    def show(self) -> None:
        """Print the table of everything, and how many checks held."""
        self.detail.print(self._table())
        held, seconds = sum(check.held for check in self.checks), sum(seconds for _, seconds in self.steps)
        line = f"{held} of {len(self.checks)} checks held, {seconds:.0f} s"
        self.console.print(f"{_mark(self.passed)} [bold]{line}", highlight=False)

    def _table(self) -> Table:
        table = Table(title="Summary", title_justify="left", show_header=False)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for name, value in self.figures:
            table.add_row(name, value)
        table.add_section()
        for name, seconds in self.steps:
            table.add_row(name, f"{seconds:.1f} s")
        table.add_row("all steps", f"{sum(seconds for _, seconds in self.steps):.1f} s")
        table.add_section()
        for check in self.checks:
            table.add_row(check.promise, f"{_mark(check.held)} {escape(check.figures)}")
        return table


def _mark(held: bool) -> str:
    return "[green]✓[/green]" if held else "[bold red]✗[/bold red]"


def mib(size: float) -> str:
    """Bytes as MiB with one decimal."""
    return f"{size / 2**20:,.1f} MiB"
