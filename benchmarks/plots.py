"""Result files as pictures: a bar for each case, a mark for its target. Plain SVG: nothing needs to be installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from benchmarks.table import quantity

PLOTS_DIR: Final = Path(__file__).resolve().parents[1] / "docs" / "plots"
#: By picture: the measures in it. Every measure that misses its target is in one; docs/figures.md says why, beside it.
PLOTS: Final[Mapping[str, Sequence[str]]] = {
    "convert": ("convert_cpu",),
    "broker-cpu": ("copy_cpu_broker",),
    "consume": ("consume_rate_1", "consume_rate_4", "consume_rate_1_tls", "consume_rate_4_tls"),
    "back-fill": ("produce_p99_backfill_10", "tail_p99_backfill_10"),
    "deletes": ("delete_unknown_rate",),
}
OVERVIEW: Final = "targets"

_WIDTH: Final = 860
_BARS_AT: Final = 280
_BARS_WIDTH: Final = 380
_ROW: Final = 18
#: A bar of the overview ends here, in targets; its text says how far it would go.
_TIMES_MAX: Final = 3.0
_KEPT, _MISSED, _NO_TARGET = "#2a9d5c", "#d1495b", "#8d99ae"

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One bar. `value` and `mark` (the target) in the panel's unit; `text` stands to the right."""

    label: str
    value: float
    mark: float | None
    met: bool | None
    text: str


def plots(results: Mapping[str, Result]) -> dict[str, str]:
    """The pictures by file name; of measures without a result there is no panel.

    Raises:
        ValueError: there is no result with a target.
    """
    found = {
        f"{OVERVIEW}.svg": drawn(
            [("Times the target, worst case of each measure; left of the mark it is kept", _overview(results))]
        )
    }
    for name, measures in PLOTS.items():
        panels = [_panel(results[measure]) for measure in measures if measure in results]
        if panels:
            found[f"{name}.svg"] = drawn(panels)
    return found


def write_plots(results: Mapping[str, Result], directory: Path = PLOTS_DIR) -> list[Path]:
    """Writes the pictures, replacing older ones; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in plots(results).items():
        paths.append(directory / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def drawn(panels: Sequence[tuple[str, Sequence[Row]]]) -> str:
    """Panels below each other as one SVG; each has its title and its own scale from 0.

    Raises:
        ValueError: a panel has no row.
    """
    parts: list[str] = []
    top = 0
    for title, rows in panels:
        scale = _BARS_WIDTH / max(max(row.value, row.mark or 0.0) for row in rows)
        parts.append(_text(12, top + 22, title, bold=True))
        top += 32
        for row in rows:
            parts += _bar(row, top, scale)
            top += _ROW
        top += 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{top}" fill="white"/>', *parts, "</svg>", ""])


def _bar(row: Row, top: int, scale: float) -> list[str]:
    colour = {True: _KEPT, False: _MISSED, None: _NO_TARGET}[row.met]
    size = f'width="{row.value * scale:.1f}" height="{_ROW - 4}"'
    parts = [
        _text(_BARS_AT - 8, top + 13, row.label, end=True),
        f'<rect x="{_BARS_AT}" y="{top + 2}" {size} fill="{colour}"/>',
        _text(_BARS_AT + _BARS_WIDTH + 12, top + 13, row.text),
    ]
    if row.mark is not None:
        at = f"{_BARS_AT + row.mark * scale:.1f}"
        parts.append(f'<line x1="{at}" x2="{at}" y1="{top}" y2="{top + _ROW}" stroke="black" stroke-width="2"/>')
    return parts


def _text(left: int, base: int, text: str, *, bold: bool = False, end: bool = False) -> str:
    style = (' font-weight="bold"' if bold else "") + (' text-anchor="end"' if end else "")
    return f'<text x="{left}" y="{base}"{style}>{escape(text)}</text>'


def _panel(result: Result) -> tuple[str, list[Row]]:
    lower = result["direction"] == "lower"
    rows = [
        Row(case["case"], case["value"], case["target"], case["met"], _said(case, lower=lower))
        for case in result["cases"]
    ]
    return f"{result['title']}, {result['unit']}: {'less' if lower else 'more'} is better", rows


def _said(case: Result, *, lower: bool) -> str:
    if case["target"] is None:
        return quantity(case["value"])
    wanted = f"target {'≤' if lower else '≥'} {quantity(case['target'])}"
    return f"{quantity(case['value'])} {'✓' if case['met'] else '✗'} {wanted}"


def _overview(results: Mapping[str, Result]) -> list[Row]:
    rows = []
    for name, result in results.items():
        value, target = result["value"], result["target"]
        if not target or not value:
            continue
        times = value / target if result["direction"] == "lower" else target / value
        text = f"{times:.2f} {'✓' if result['met'] else '✗'}"
        rows.append(Row(name, min(times, _TIMES_MAX), 1.0, result["met"], text))
    return sorted(rows, key=lambda row: (row.value, row.label))
