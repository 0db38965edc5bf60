"""The pictures of docs/figures.md are those of the stored results, and show every miss."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.plots import OVERVIEW, PLOTS, PLOTS_DIR, Row, drawn, plots
from benchmarks.results import read_results

PAGE = (PLOTS_DIR.parent / "figures.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


def result(direction: str, value: float, target: float | None, *, met: bool | None) -> dict[str, Any]:
    case = {"case": "a < b", "value": value, "target": target, "met": met}
    facts = {"title": "Title", "unit": "ms", "direction": direction, "cases": [case]}
    return {**facts, "value": value, "target": target, "met": met}


def texts(svg: str) -> list[str]:
    return [item.text or "" for item in ET.fromstring(svg).iter(f"{SVG}text")]


def bars(svg: str) -> list[tuple[float, str]]:
    """Width and colour of each, without the ground."""
    found = [item.attrib for item in ET.fromstring(svg).iter(f"{SVG}rect")][1:]
    return [(float(item["width"]), item["fill"]) for item in found]


def test_the_committed_pictures_are_those_of_the_results() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in PLOTS_DIR.iterdir()}
    assert committed == plots(read_results()), "run `python -m benchmarks plots`"


def test_every_miss_is_drawn_and_every_picture_on_the_page() -> None:
    missed = {name for name, found in read_results().items() if found["met"] is False}
    assert missed <= {name for names in PLOTS.values() for name in names}
    assert set(re.findall(r"\(plots/([\w-]+)\.svg\)", PAGE)) == {OVERVIEW, *PLOTS}


def test_a_bar_is_as_long_as_its_value_and_shows_whether_it_is_enough() -> None:
    svg = drawn([("T", [Row("a", 2.0, 4.0, True, "kept"), Row("b", 1.0, None, None, "free")])])
    (kept, green), (free, grey) = bars(svg)
    assert (kept, free) == (190.0, 95.0)
    assert green != grey
    (mark,) = ET.fromstring(svg).iter(f"{SVG}line")
    assert float(mark.attrib["x1"]) == 280 + 380


@pytest.mark.parametrize(
    ("direction", "value", "target", "met", "said"),
    [
        ("lower", 3.0, 2.0, False, "3 ✗ target ≤ 2"),
        ("higher", 3.0, 2.0, True, "3 ✓ target ≥ 2"),
        ("higher", 3.0, None, None, "3"),
    ],
)
def test_what_is_said_of_a_case(
    direction: str, value: float, target: float | None, met: bool | None, said: str
) -> None:
    known = result("lower", 1.0, 1.0, met=True)
    found = texts(
        plots({"delete_unknown_rate": result(direction, value, target, met=met), "known": known})["deletes.svg"]
    )
    assert found[1:] == ["a < b", said]


def test_the_overview_is_in_targets_whatever_is_better() -> None:
    results = {
        "slow": result("higher", 10.0, 20.0, met=False),
        "small": result("lower", 10.0, 20.0, met=True),
        "far": result("lower", 200.0, 20.0, met=False),
        "free": result("lower", 1.0, None, met=None),
    }
    found = plots(results)
    assert texts(found[f"{OVERVIEW}.svg"])[1:] == ["small", "0.50 ✓", "slow", "2.00 ✗", "far", "10.00 ✗"]
    assert [width for width, _ in bars(found[f"{OVERVIEW}.svg"])] == pytest.approx([63.3, 253.3, 380.0])
    assert list(found) == [f"{OVERVIEW}.svg"]


def test_the_command_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.plots.write_plots.__defaults__", (tmp_path / "plots",))
    assert main(["plots"]) == 0
    assert {path.stem for path in (tmp_path / "plots").iterdir()} == {OVERVIEW, *PLOTS}
