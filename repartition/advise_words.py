"""Figures of `tierberg advise` as people read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from repartition.advise_report import Figures, Report


def seconds(value: float) -> str:
    """`0.004 s`, `0.25 s`, `3.10 s`, `12.5 s`, `125 s`."""
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} s"


def files(figures: Figures) -> str:
    """`3`, and with delete files `3 + 2 deletes`."""
    more = f" + {figures.delete_files} deletes" if figures.delete_files else ""
    return f"{figures.files}{more}"


def spelled(figures: Figures) -> str:
    """`1 file`, `40 files + 2 deletes`."""
    count, _, more = files(figures).partition(" ")
    return f"{count} file{'' if figures.files == 1 else 's'} {more}".rstrip()


def headline(report: Report) -> str:
    """Topic, date, and how many rows its own table has."""
    day = datetime.fromtimestamp(report.at_ms / 1000, UTC).strftime("%Y-%m-%d")
    whole = report.tables[0].whole
    rows = "no rows" if whole is None else f"{whole.rows:,} row{'' if whole.rows == 1 else 's'}"
    return f"topic {report.topic}, {day}, {rows}"
