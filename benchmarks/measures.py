"""The measures of measures.toml: what is promised, and how a target follows from a floor."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.payloads import PAYLOADS
from benchmarks.typed_payloads import TYPED_PAYLOADS

MEASURES_FILE = Path(__file__).parent / "measures.toml"

Direction = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Target:
    """A promise: one of the three is set. `value` is in the measure's unit; the others need a measured floor."""

    value: float | None = None
    times_floor: float | None = None
    plus_floor: float | None = None

    def resolve(self, floor: float | None) -> float | None:
        """The target in the measure's unit, or None where it follows from a floor that was not measured."""
        if self.value is not None:
            return self.value
        if floor is None:
            return None
        if self.times_floor is not None:
            return self.times_floor * floor
        return floor + (self.plus_floor or 0.0)


@dataclass(frozen=True, slots=True)
class Measure:
    """One entry of measures.toml. `floor` is prose: what the value is compared with."""

    id: str
    title: str
    unit: str
    direction: Direction
    floor: str
    target: Target | None
    payloads: tuple[str, ...]
    suite: str

    def met(self, value: float, target: float) -> bool:
        """Whether `value` keeps the promise; equality keeps it."""
        return value <= target if self.direction == "lower" else value >= target

    def badness(self, value: float, target: float | None) -> float:
        """Orders cases: larger is worse. Relative to the target where there is one, else the plain value."""
        signed = value if self.direction == "lower" else -value
        if target is None or target == 0:
            return signed
        return value / target if self.direction == "lower" else target / max(value, 1e-12)


def load_measures(path: Path = MEASURES_FILE) -> dict[str, Measure]:
    """All measures by id, in file order.

    Raises:
        ValueError: an entry lacks a key, has an unknown one, or names an unknown payload or direction.
    """
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: _measure(name, table) for name, table in tables.items()}


def select(measures: Mapping[str, Measure], only: list[str]) -> dict[str, Measure]:
    """Those whose id or suite is one of `only`; all when `only` is empty.

    Raises:
        ValueError: a word of `only` names neither a measure nor a suite.
    """
    known = set(measures) | {measure.suite for measure in measures.values()}
    unknown = [word for word in only if word not in known]
    if unknown:
        raise ValueError(f"no measure or suite is called {', '.join(unknown)}")
    return {name: measure for name, measure in measures.items() if not only or name in only or measure.suite in only}


_KEYS = {"title", "unit", "direction", "floor", "suite"}


def _measure(name: str, table: Mapping[str, object]) -> Measure:
    missing = _KEYS - set(table)
    unknown = set(table) - _KEYS - {"payloads", "target"}
    if missing or unknown:
        raise ValueError(f"{name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    direction = table["direction"]
    if direction not in ("lower", "higher"):
        raise ValueError(f"{name}: direction is {direction!r}, not lower or higher")
    return Measure(
        id=name,
        title=str(table["title"]),
        unit=str(table["unit"]),
        direction="lower" if direction == "lower" else "higher",
        floor=str(table["floor"]),
        target=_target(name, table.get("target")),
        payloads=_payloads(name, table["payloads"]) if "payloads" in table else (),
        suite=str(table["suite"]),
    )


def _payloads(name: str, found: object) -> tuple[str, ...]:
    known = (*PAYLOADS, *TYPED_PAYLOADS)
    if not isinstance(found, list) or not found or any(payload not in known for payload in found):
        raise ValueError(f"{name}: payloads must name some of {', '.join(known)}")
    return tuple(found)


def _target(name: str, table: object) -> Target | None:
    if table is None:
        return None
    if not isinstance(table, dict) or len(table) != 1 or set(table) - {"value", "times_floor", "plus_floor"}:
        raise ValueError(f"{name}: target needs exactly one of value, times_floor, plus_floor")
    return Target(**{key: float(value) for key, value in table.items()})
