"""The report of `tierberg advise` for a terminal."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from repartition.advise_report import Answer, Report
from repartition.advise_words import files, headline, seconds
from rsm_bridge.progress_words import size

_WIDTH_MIN = 80


def as_text(report: Report, width: int, *, colour: bool = False) -> str:
    """The report as lines of at most `width` characters. `colour`: with escapes."""
    out = io.StringIO()
    console = Console(file=out, width=max(width, _WIDTH_MIN), force_terminal=colour, highlight=False)
    console.print(Text(headline(report), style="bold"))
    console.print(_tables(report))
    console.print(_queries(report))
    for table, said in report.suggestions:
        console.print(Text.assemble((f"{table}: ", "bold"), said))
    return out.getvalue().rstrip("\n")


def _tables(report: Report) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("TABLE", "KIND", "PARTITION BY", "SORT BY"):
        table.add_column(name, overflow="fold")
    for name in ("FILES", "BYTES", "ROWS"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in report.tables:
        by = [Text(item.name), Text(item.kind), Text(", ".join(item.partition_by)), Text(", ".join(item.sort_by))]
        if item.whole is None:
            table.add_row(*by, "", "", Text("none", style="red"))
        else:
            table.add_row(*by, files(item.whole), size(item.whole.size_bytes), f"{item.whole.rows:,}")
    return table


def _queries(report: Report) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("QUERY", overflow="fold")
    table.add_column("TABLE", overflow="fold")
    for name in ("FILES", "BYTES", "ROWS READ" if report.ran else "ROWS IN FILES"):
        table.add_column(name, justify="right", no_wrap=True)
    if report.ran:
        for name in ("RESULT", "MEDIAN", "FIRST"):
            table.add_column(name, justify="right", no_wrap=True)
    if _errors(report):
        table.add_column("ERROR", style="red", overflow="fold")
    for query in report.queries:
        for number, answer in enumerate(query.answers):
            names = [Text("" if number else query.name), Text(answer.table)]
            said = [Text(answer.error or "")] if _errors(report) else []
            table.add_row(*names, *_cells(report, answer), *said)
        table.add_section()
    return table


def _cells(report: Report, answer: Answer) -> list[str]:
    found = answer.figures
    if found is None:
        return [""] * (6 if report.ran else 3)
    cells = [files(found), size(found.size_bytes), f"{found.rows:,}"]
    if found.result_rows is not None and found.median_s is not None and found.first_s is not None:
        cells += [f"{found.result_rows:,}", seconds(found.median_s), seconds(found.first_s)]
    return cells


def _errors(report: Report) -> bool:
    return any(answer.error is not None for query in report.queries for answer in query.answers)
