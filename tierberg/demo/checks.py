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


@dataclass(slots=True)
class Summary:
    """Figures, step times and checks, in the order they came."""

    console: Console
    figures: list[tuple[str, str]] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

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
        """Note one check and show it at once."""
        self.checks.append(Check(promise, held, figures))
        self.console.print(f"{_mark(held)} {escape(promise)}: {escape(figures)}", highlight=False)

    @property
    def passed(self) -> bool:
        """Whether there were checks and all held."""
        return bool(self.checks) and all(check.held for check in self.checks)

    def show(self) -> None:
        """Print the table."""
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
        self.console.print(table)


def _mark(held: bool) -> str:
    return "[green]✓[/green]" if held else "[bold red]✗[/bold red]"


def mib(size: float) -> str:
    """Bytes as MiB with one decimal."""
    return f"{size / 2**20:,.1f} MiB"
