"""A sample of the planted bugs is noticed (`make sabotage` plants them all); and the runner itself can tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.config.reference import setting_names
from rsm_bridge.config.section import Section
from tests.sabotage.ignored_settings import ignoring
from tests.sabotage.sabotage_runner import BUILD, SAMPLE, Patch, PatchError, Tree, all_patches, judge, read_patch
from tests.sabotage.settings_patches import settings_patches

PATCHES = {patch.name: patch for patch in all_patches()}


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    copied = Tree.copied(BUILD / "tree")
    yield copied
    copied.release()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample(tree: Tree, name: str) -> None:
    verdict = judge(tree, PATCHES[name])
    assert not verdict.problem, verdict.problem


def test_there_are_enough_and_all_apply(tree: Tree) -> None:
    assert len(PATCHES) >= 14
    for patch in PATCHES.values():
        assert (tree.folder / patch.test.partition("::")[0]).is_file(), patch.name
        with tree.patched(patch):
            pass


def test_every_setting_can_be_ignored(tree: Tree) -> None:
    """Each patch fits the code; `make sabotage` runs the tests that must notice."""
    patches = settings_patches()
    assert [patch.name for patch in patches] == setting_names()
    for patch in patches:
        with tree.patched(patch):
            pass


class Inner(Section):
    width: int = 1
    name: str


class Sample(Section):
    key_schema: Inner | None = None

    @property
    def twice(self) -> int:
        return 0 if self.key_schema is None else 2 * self.key_schema.width


def test_an_ignored_setting_reads_as_its_default() -> None:
    read: Any = ignoring("limits.width")(type("Ignoring", (Inner,), {"__module__": __name__}))(width=5, name="n")
    assert (read.width, read.name) == (1, "n")


def test_one_of_a_section_with_two_names_is_ignored_under_that_name_alone() -> None:
    model = ignoring("topics[].key_schema.width")(type("Ignoring", (Sample,), {"__module__": __name__}))
    given: Any = model(key_schema=Inner(width=5, name="n"))
    assert given.twice == 2
    assert Inner(width=5, name="n").width == 5


TARGET = "def limit():\n    return 5\n\n\ndef other():\n    return 5\n"
LIMIT = "--- a/m.py\n+++ b/m.py\n@@ -1,2 +1,2 @@\n def limit():\n-    return 5\n+    return 6\n"


def small_tree(folder: Path) -> Tree:
    folder.mkdir()
    (folder / "m.py").write_text(TARGET)
    (folder / "test_m.py").write_text(
        "import m\n\n\ndef test_limit():\n    assert m.limit() == 5\n\n\ndef test_red():\n    assert 0\n"
    )
    return Tree(folder)


def written(tmp_path: Path, text: str) -> Patch:
    path = tmp_path / "p.diff"
    path.write_text(text)
    return read_patch(path)


def test_a_patch_is_taken_back(tmp_path: Path) -> None:
    tree = small_tree(tmp_path / "tree")
    patch = written(tmp_path, f"# test: test_m.py::test_limit\n{LIMIT}")
    with tree.patched(patch):
        assert "return 6" in (tree.folder / "m.py").read_text()
    assert (tree.folder / "m.py").read_text() == TARGET


@pytest.mark.parametrize(
    ("test", "diff", "problem"),
    [
        ("test_limit", LIMIT, ""),
        ("test_limit", LIMIT.replace("return 6", "return 5  # same"), "nobody noticed"),
        ("test_red", LIMIT, "without the patch the test failed"),
        ("test_gone", LIMIT, "without the patch the test pytest ended with 4"),
        ("test_limit", LIMIT.replace("return 6", "return ("), "with the patch the test pytest ended with"),
        ("test_limit", LIMIT.replace("return 5", "return 7"), "a hunk fits 0 places"),
        ("test_limit", LIMIT.replace(" def limit():\n", ""), "a hunk fits 2 places"),
    ],
)
def test_verdicts(tmp_path: Path, test: str, diff: str, problem: str) -> None:
    tree = small_tree(tmp_path / "tree")
    found = judge(tree, written(tmp_path, f"# test: test_m.py::{test}\n{diff}")).problem
    assert found.startswith(problem) or problem in found
    assert bool(found) == bool(problem)


@pytest.mark.parametrize("text", ["", LIMIT, "# test: x\n", "# test: x\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n a\n"])
def test_malformed_patches_are_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(PatchError, match=r"p\.diff"):
        written(tmp_path, text)
