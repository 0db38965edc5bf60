"""What the pages show of `tierberg.yaml` can be taken as it stands, and the files they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rsm_bridge.config.reference import setting_names
from rsm_bridge.config.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")))
ROOMS = ("converter", "iceberg_catalog", "rsm_bridge", "repartition", "tierberg")
#: Names of settings at any depth, without lists' marks.
NAMES = {part.removesuffix("[]") for name in setting_names() for part in name.split(".")}


def blocks(page: Path) -> list[str]:
    return re.findall(
        r"^```ya?ml[^\n]*\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=str)
def test_settings_on_a_page_are_whole(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        loaded = next(yaml.safe_load_all(block))
        if not isinstance(loaded, dict) or not set(loaded) <= NAMES:  # of Kubernetes, for example
            continue
        assert set(loaded) <= Settings.keys().keys(), f"say where it belongs:\n{block}"
        path = tmp_path / "tierberg.yaml"
        path.write_text(block)
        load_settings(path)


def test_there_are_such_pages() -> None:
    assert len([page for page in PAGES if any("topics:" in block for block in blocks(page))]) > 2


def test_the_files_that_the_architecture_names_are_there() -> None:
    named = set(re.findall(r"[\w/*.-]+\.py\b", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    files = [path.relative_to(ROOT) for room in (*ROOMS, "tests", "benchmarks") for path in (ROOT / room).rglob("*.py")]
    assert len(named) > 50
    assert sorted(name for name in named if not any(path.match(name) for path in files)) == []


def test_one_region_stands_in_what_belongs_together() -> None:
    """The REST catalog of these pages is one: who follows both has one bucket."""
    page = (ROOT / "docs" / "query.md").read_text(encoding="utf-8")
    first = (ROOT / "docs" / "first-topic.md").read_text(encoding="utf-8")
    region = re.compile(r"\b[a-z]{2}-[a-z]+-\d\b")
    assert set(region.findall(page)) == set(region.findall(first)) != set()
