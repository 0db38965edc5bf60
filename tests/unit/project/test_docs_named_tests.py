"""What the documents say a test shows has such a test."""

from __future__ import annotations

import pytest

from tests.support.named_tests import NAMED, ROOT, is_there

PAGES = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [name for name in named if not is_there(name)] == []


def test_every_promise_of_the_threat_model_names_a_test() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row)] == []


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert is_there("tests/unit/project/test_docs_named_tests.py::test_a_name_that_is_not_there_is_noticed")
    assert not is_there("tests/unit/project/test_docs_named_tests.py::test_a_name")
    assert not is_there("tests/unit/test_not_there.py::test_a_name")
