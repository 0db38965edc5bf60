"""The picture of the rooms is the code's, and each way that CONTRIBUTING names leads where it says."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.support.rooms_page import PAGE, ROOMS, ROOT, imports, modules, page

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROWS = re.findall(r"\| ([^|\n]+) \| ([^|\n]+→[^|\n]+) \|", TEXT)
WAYS = {name.strip(): re.findall(r"`([a-z_/]+)`", way) for name, way in ROWS}


def module(path: str) -> str:
    """The module of a path as the table spells it, from a room or from inside of one."""
    dotted = path.replace("/", ".")
    spelt = (dotted, *(f"{room}.{dotted}" for room in ROOMS))
    (found,) = [name for name in modules() if name in spelt]
    return found


def reached(start: str) -> set[str]:
    """All that a module imports, directly or not."""
    seen, rest = set[str](), [start]
    while rest:
        for target in imports()[rest.pop()]:
            if target not in seen:
                seen.add(target)
                rest.append(target)
    return seen


def test_the_picture_is_the_codes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make rooms`"


def test_the_ways_are_there() -> None:
    assert len(WAYS) == 5


@pytest.mark.parametrize("way", WAYS)
def test_a_way_leads_where_it_says(way: str) -> None:
    steps = [module(path) for path in WAYS[way]]
    assert len(steps) >= 4
    around = {name for name in modules() if steps[0] in reached(name)} | {steps[0]}
    for one, two in pairwise(steps):
        assert two in reached(one) or any({one, two} <= reached(name) for name in around), (one, two)
