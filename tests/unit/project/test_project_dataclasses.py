"""Whoever makes a dataclass with many fields names them: five values in a row say nothing, and two swap unseen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("converter", "iceberg_catalog", "rsm_bridge", "repartition", "tierberg")
#: With so many that a caller may give, all are given by keyword.
FIELDS_MIN = 5


def decorator(node: ast.ClassDef) -> ast.expr | None:
    """The `@dataclass` of a class, with or without arguments."""
    for found in node.decorator_list:
        name = found.func if isinstance(found, ast.Call) else found
        if ast.unparse(name) in {"dataclass", "dataclasses.dataclass"}:
            return found
    return None


def says(call: ast.expr | None, option: str, value: bool) -> bool:
    """Whether a call has the option with this value."""
    found = call.keywords if isinstance(call, ast.Call) else []
    return any(item.arg == option and ast.unparse(item.value) == str(value) for item in found)


def given(node: ast.ClassDef) -> int:
    """How many fields a caller may give, of those that the class has itself."""
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    own = [item for item in fields if "ClassVar" not in ast.unparse(item.annotation)]
    return sum(not says(item.value, "init", False) for item in own)


def by_position(source: str) -> Iterator[str]:
    """Classes that take FIELDS_MIN fields or more by position."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and given(node) >= FIELDS_MIN:
            found = decorator(node)
            if found is not None and not says(found, "kw_only", True):
                yield node.name


@pytest.mark.parametrize("room", ROOMS)
def test_many_fields_are_given_by_keyword(room: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / room).rglob("*.py")
        for name in by_position(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    ("head", "last", "found"),
    [
        ("@dataclass", "e: int", ["A"]),
        ("@dataclass(frozen=True)", "e: int = 0", ["A"]),
        ("@dataclasses.dataclass(kw_only=False)", "e: int", ["A"]),
        ("@dataclass(frozen=True, kw_only=True)", "e: int", []),
        ("@dataclass", "e: int = field(init=False)", []),
        ("@dataclass", "e: ClassVar[int] = 0", []),
        ("@dataclass", "e = 0", []),
        ("", "e: int", []),
    ],
)
def test_what_counts(head: str, last: str, found: list[str]) -> None:
    body = "\n    ".join([*(f"{name}: int" for name in "abcd"), last])
    assert list(by_position(f"{head}\nclass A:\n    {body}\n")) == found
