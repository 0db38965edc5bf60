"""Tests that texts and tables name: `tests/unit/test_x.py::test_y`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: As it stands in a text, in backquotes.
NAMED = re.compile(r"`(tests/[a-z0-9_/]+\.py::[a-zA-Z0-9_]+)`")


def is_there(name: str) -> bool:
    """Whether the file, Python's or Java's, has a test of this name."""
    file, _, function = name.partition("::")
    path = ROOT / file
    begin = r"    @(?:Test|ParameterizedTest\b[^;{]*?)\s+void " if path.suffix == ".java" else "def "
    return (
        path.is_file()
        and re.search(rf"^{begin}{re.escape(function)}\(", path.read_text(encoding="utf-8"), re.MULTILINE) is not None
    )
