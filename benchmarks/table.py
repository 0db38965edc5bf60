"""Result files as one Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.measures import Measure
from benchmarks.results import shortfall

_MISSING = "not measured"


def markdown(measures: Iterable[Measure], results: Mapping[str, Mapping[str, object]]) -> str:
    """One row per measure, the worst case of each, and a line that says when and on what it was measured."""
    lines = ["| measure | value | floor | target | met | worst case |", "|---|---|---|---|---|---|"]
    lines += [_row(measure, results.get(measure.id)) for measure in measures]
    return "\n".join([*lines, "", _footer(results)]) + "\n"


def _row(measure: Measure, result: Mapping[str, object] | None) -> str:
    if result is None:
        return f"| {measure.title} | {_MISSING} | | | | |"
    return (
        f"| {measure.title} | {quantity(result['value'])} {measure.unit} | {quantity(result['floor'])} "
        f"| {_target(measure, result['target'])} | {_met(result)} | {result['worst_case']} |"
    )


def _met(result: Mapping[str, object]) -> str:
    if result["met"] is None:
        return "–"
    if result["met"]:
        return "✓"
    missed = shortfall(result)
    return "✗" if missed is None else f"✗ by {missed:.0%}"


def _target(measure: Measure, target: object) -> str:
    return "–" if target is None else f"{'≤' if measure.direction == 'lower' else '≥'} {quantity(target)}"


def quantity(value: object) -> str:
    """A figure for people, three digits or whole; `–` for none."""
    if not isinstance(value, int | float):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _footer(results: Mapping[str, Mapping[str, object]]) -> str:
    if not results:
        return "Nothing measured yet."
    dates = sorted(str(result["date"])[:10] for result in results.values())
    machines = {_machine(result["machine"]) for result in results.values()}
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    quick = " Some figures are from quick runs." if any(result["quick"] for result in results.values()) else ""
    return f"Worst case of each measure; {when}; {'; '.join(sorted(machines))}.{quick}"


def _machine(facts: object) -> str:
    if not isinstance(facts, dict):
        return "unknown machine"
    return f"{facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB"
