"""The picture of `tierberg advise`: per query a bar for each table, of bytes and, when they were run, of seconds.

Drawn on a canvas of its own, with no display and nothing that other drawings in the process share.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from repartition.advise.report import AdviceReport, Answer, TableReport
from repartition.advise.text import headline, seconds, spelled
from repartition.errors import RepartitionError
from rsm_bridge.words import size

#: Colours that people who do not tell red from green tell apart (Okabe and Ito); the topic's own table is grey.
_COLOURS: Final = ("#8c8c8c", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_DPI: Final = 120
_PANEL_INCHES: Final = 7.0
_BAR_INCHES: Final = 0.26
_GAP_BARS: Final = 0.9
_FRAME_INCHES: Final = 1.7
#: PNG has no limit that matters, but programs that show pictures do.
_PIXELS_MAX: Final = 30_000
_NAME_CHARS: Final = 28
_LAYOUT_CHARS: Final = 48
#: Of a byte or a second; less is drawn as this.
_LEAST: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """One measure. `value`: of an answer; None where it has none. `base`: the axis has ticks at powers of it."""

    title: str
    value: Callable[[Answer], float | None]
    label: Callable[[Answer], str]
    tick: Callable[[float], str]
    base: int


def check_place(path: Path) -> None:
    """Fails early where the picture cannot go.

    Raises:
        RepartitionError: `no_picture`.
    """
    if path.suffix.lower() != ".png":
        raise RepartitionError("no_picture", f"the picture is a PNG: {path} does not end in .png")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RepartitionError("no_picture", f"{path} is no place for a picture: its folder must be there")


def draw(report: AdviceReport, path: Path) -> tuple[int, int]:
    """Writes the picture; gives width and height in pixels.

    Raises:
        RepartitionError: `no_picture` if it cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(report)
    bars = sum(len(query.answers) + _GAP_BARS for query in report.queries)
    high = min(_FRAME_INCHES + 0.25 * len(report.tables) + _BAR_INCHES * bars, _PIXELS_MAX / _DPI)
    figure = Figure(figsize=(_PANEL_INCHES * len(panels) + 2.0, high), dpi=_DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        _fill(axis, report, panel)
    _name_queries(axes[0], report)
    figure.suptitle(headline(report), fontsize=13, fontweight="bold", parse_math=False)
    _legend(figure, report)
    try:
        # Names may have letters that the font lacks; they become boxes.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*[Gg]lyph", category=UserWarning)
            figure.savefig(path, format="png")
    except OSError as error:
        raise RepartitionError("no_picture", f"the picture cannot be written: {error}") from error
    wide, tall = canvas.get_width_height()
    return int(wide), int(tall)


def _panels(report: AdviceReport) -> list[_Panel]:
    found = [
        _Panel(
            title="size of the files that each query has to open, logarithmic",
            value=lambda answer: None if answer.figures is None else float(answer.figures.size_bytes),
            label=_bytes_label,
            tick=lambda value: size(round(value)),
            base=2,
        )
    ]
    if report.ran:
        found.append(
            _Panel(
                title="seconds, median of the runs after the first, logarithmic",
                value=lambda answer: None if answer.figures is None else answer.figures.median_s,
                label=lambda answer: "" if answer.figures is None else seconds(answer.figures.median_s or 0.0),
                tick=lambda value: f"{value:g} s",
                base=10,
            )
        )
    return found


def _bytes_label(answer: Answer) -> str:
    found = answer.figures
    if found is None:
        return "error"
    if not found.files:
        return "no file"
    return f"{size(found.size_bytes)} in {spelled(found)}"


def _fill(axis: Any, report: AdviceReport, panel: _Panel) -> None:
    """Bars from the top down, in the order of queries and tables, with what they stand for beside them."""
    low, high = _bounds([panel.value(answer) for query in report.queries for answer in query.answers])
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    at = 0.0
    for query in report.queries:
        for number, answer in enumerate(query.answers):
            value = panel.value(answer) or 0.0
            if value > low:
                axis.barh(at, value - low, left=low, height=0.86, color=_colour(number))
            style = {"color": "#b00020", "style": "italic"} if answer.figures is None else {"color": "#202020"}
            said = axis.annotate(
                panel.label(answer), (max(value, low), at), (4, 0), textcoords="offset points", va="center", fontsize=8
            )
            # Over the grid, which would cross out letters.
            said.set(**style, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})
            at += 1
        at += _GAP_BARS
    axis.set_ylim(at - _GAP_BARS, -1.0)
    axis.set_title(panel.title, fontsize=10)
    ticks = _ticks(low, high, panel.base)
    axis.set_xticks(ticks, labels=[panel.tick(value) for value in ticks])
    axis.set_xticks([], minor=True)
    axis.grid(visible=True, axis="x", color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="both", labelsize=8)
    axis.tick_params(axis="y", length=0)


def _bounds(values: Sequence[float | None]) -> tuple[float, float]:
    """Ends of a logarithmic axis: whole decades around all that is above 0, with room for labels at the right."""
    positive = [max(value, _LEAST) for value in values if value]
    if not positive:
        return 1.0, 100.0
    low = 10.0 ** (math.ceil(math.log10(min(positive))) - 1)
    decades = max(1.0, math.log10(max(positive) / low))
    return low, low * 10.0 ** (decades * 1.45)


def _ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of `base` within an axis, at most eight."""
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    step = max(1, math.ceil((last - first) / 7))
    return [float(base) ** power for power in range(-(-first // step) * step, last + 1, step)]


def _name_queries(axis: Any, report: AdviceReport) -> None:
    centres, at = [], 0.0
    for query in report.queries:
        centres.append(at + (len(query.answers) - 1) / 2)
        at += len(query.answers) + _GAP_BARS
    names = [_cut(query.name) for query in report.queries]
    axis.set_yticks(centres, labels=names, fontsize=9, parse_math=False)


def _legend(figure: Any, report: AdviceReport) -> None:
    from matplotlib.patches import Patch

    handles = []
    for number, table in enumerate(report.tables):
        whole = "none" if table.whole is None else f"{spelled(table.whole)}, {size(table.whole.size_bytes)}"
        kind = "the topic's own table" if table.kind == "topic" else f"projection, {table.kind}{_laid_out(table)}"
        handles.append(Patch(color=_colour(number), label=f"{table.name} ({kind}): {whole}"))
    legend = figure.legend(handles=handles, loc="outside lower left", frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _colour(number: int) -> str:
    return _COLOURS[0] if number == 0 else _COLOURS[1 + (number - 1) % (len(_COLOURS) - 1)]


def _laid_out(table: TableReport) -> str:
    """What is declared of its layout, as far as there is room."""
    terms = [f"by {', '.join(table.partition_by)}"] if table.partition_by else []
    terms += [f"sorted by {', '.join(table.sort_by)}"] if table.sort_by else []
    return f"; {_cut('; '.join(terms), _LAYOUT_CHARS)}" if terms else ""


def _cut(text: str, most: int = _NAME_CHARS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
