"""A class's name means one thing in the product: who reads it in a log, a search or a review asks no module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("converter", "iceberg_catalog", "rsm_bridge", "repartition", "tierberg")
#: Written by the protobuf compiler, from words of the contract.
GENERATED = "rsm_bridge/proto/"


def public_classes(source: str) -> Iterator[str]:
    """Names of the classes that other modules can import."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def defined_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Class names that more than one module defines, with the modules' paths."""
    found = defaultdict(list)
    for path, source in sources.items():
        for name in public_classes(source):
            found[name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def product(rooms: Iterable[str] = ROOMS) -> dict[str, str]:
    """The text of every module that people have written, by its path."""
    paths = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    named = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {name: path.read_text(encoding="utf-8") for name, path in named.items() if not name.startswith(GENERATED)}


def test_no_class_name_twice() -> None:
    assert defined_twice(product()) == {}


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("class A: ...", "class A: ...", {"A": ["one", "other"]}),
        ("class A(Enum):\n    X = 1", "@dataclass\nclass A:\n    x: int", {"A": ["one", "other"]}),
        ("class A: ...", "class B: ...", {}),
        ("class A: ...", "from one import A", {}),
        ("class _A: ...", "class _A: ...", {}),
        ("class A:\n    class C: ...", "class B:\n    class C: ...", {}),
    ],
)
def test_what_counts(one: str, other: str, found: dict[str, list[str]]) -> None:
    assert defined_twice({"one": one, "other": other}) == found
