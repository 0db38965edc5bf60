"""The Python of docs/query.md runs as it stands, on a bridge's embedded catalog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.bridge.test_docs_reading_sql import filled

PAGE = Path(__file__).resolve().parents[3] / "docs" / "query.md"


def blocks() -> list[str]:
    """What is to be run one after the other: Python with a name."""
    return re.findall(r"```python \w+\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_every_library_answers(tmp_path: Path) -> None:
    filled(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks():
        assert "/var/lib/tierberg" in block or "catalog" not in block
        exec(compile(block.replace("/var/lib/tierberg", str(tmp_path)), str(PAGE), "exec"), names)
    assert sorted(names["rows"]["_kafka_offset"].to_pylist()) == [*range(1, 10), *range(15, 20)]
    assert names["answer"].fetchall() == [(0, 14, 19)]
    assert names["counts"].rows() == [(0, 15)]
