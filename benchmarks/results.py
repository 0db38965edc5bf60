"""From cases to result files: the worst case is the value, next to its floor and its target."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import load_average, machine, versions
from benchmarks.measures import Measure

RESULTS_DIR = Path(__file__).parent / "results"


@dataclass(slots=True)
class Case:
    """One measured case of a measure. value and floor in the measure's unit; `runs` are the values it is the median of.

    `extra` holds further figures worth reading, unit in the key.
    """

    name: str
    value: float
    floor: float | None = None
    runs: list[float] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)


#: What a suite returns: cases by measure id.
Cases = dict[str, list[Case]]


def summarise(measure: Measure, cases: Sequence[Case], *, quick: bool) -> dict[str, object]:
    """The content of `<measure>.json`.

    `value`, `floor` and `target` are those of the worst case; `met` is true only when every case keeps its target and
    None without one.

    Raises:
        ValueError: there is no case.
    """
    if not cases:
        raise ValueError(f"{measure.id}: no case was measured")
    rows = [_row(measure, case) for case in cases]
    worst = max(rows, key=lambda row: measure.badness(_number(row["value"]), _optional(row["target"])))
    verdicts = [row["met"] for row in rows if row["met"] is not None]
    return {
        "measure": measure.id,
        "title": measure.title,
        "unit": measure.unit,
        "direction": measure.direction,
        "value": worst["value"],
        "floor": worst["floor"],
        "floor_is": measure.floor,
        "target": worst["target"],
        "met": all(verdicts) if verdicts else None,
        "worst_case": worst["case"],
        "cases": rows,
        "quick": quick,
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "load_average": load_average(),
        "machine": machine(),
        "versions": versions(),
    }


def write_result(result: Mapping[str, object], directory: Path = RESULTS_DIR) -> Path:
    """Writes `<measure>.json`, replacing an older one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result['measure']}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return path


def read_results(directory: Path = RESULTS_DIR) -> dict[str, dict[str, object]]:
    """All result files by measure id."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    return {str(result["measure"]): result for result in found}


def missing(measures: Mapping[str, Measure], results: Mapping[str, object]) -> list[str]:
    """Ids of `measures` without a result, in order."""
    return [name for name in measures if name not in results]


def shortfall(result: Mapping[str, object]) -> float | None:
    """By which share of the target the value misses it (0.1: ten per cent); None when met or without target."""
    target = _optional(result["target"])
    if result["met"] is not False or not target:
        return None
    value = _number(result["value"])
    return value / target - 1 if result["direction"] == "lower" else 1 - value / target


def _row(measure: Measure, case: Case) -> dict[str, object]:
    target = measure.target.resolve(case.floor) if measure.target else None
    return {
        "case": case.name,
        "value": _round(case.value),
        "floor": None if case.floor is None else _round(case.floor),
        "target": None if target is None else _round(target),
        "met": None if target is None else measure.met(case.value, target),
        "runs": [_round(run) for run in case.runs],
        **{key: _round(value) for key, value in case.extra.items()},
    }


def _round(value: float) -> float:
    return float(f"{value:.5g}") if abs(value) < 1e5 else round(value)


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _optional(value: object) -> float | None:
    return None if value is None else _number(value)
