"""Every setting has a test that sees its effect in the product; those that have none are listed."""

from __future__ import annotations

import re

import pytest

from rsm_bridge.config.reference import setting_names
from rsm_bridge.config.section import Section
from tests.support.named_tests import ROOT, is_there
from tests.support.setting_effects import EFFECTS, SHIM_EFFECTS


def test_every_setting_has_a_test_of_its_effect() -> None:
    without = [name for name in setting_names() if name not in EFFECTS]
    assert without == [], "settings without a test that sees their effect"
    gone = sorted(EFFECTS.keys() - set(setting_names()))
    assert gone == [], "tests of settings that are no more"


@pytest.fixture
def shim_settings() -> set[str]:
    """The plugin's, as its own definition has them."""
    source = (ROOT / "java-shim/src/main/java/io/tierberg/rsm/ShimConfig.java").read_text(encoding="utf-8")
    names = dict(re.findall(r'static final String ([A-Z_]+) = "([a-z.]+)";', source))
    return {names[constant] for constant in re.findall(r"\.define\(([A-Z_]+),", source)}


def test_every_setting_of_the_plugin_too(shim_settings: set[str]) -> None:
    assert len(shim_settings) > 15
    assert shim_settings - SHIM_EFFECTS.keys() == set(), "settings without a test that sees their effect"
    assert SHIM_EFFECTS.keys() - shim_settings == set(), "tests of settings that are no more"


def test_every_setting_of_the_plugin_is_on_its_page(shim_settings: set[str]) -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert {name for name in shim_settings if f"`{name}`" not in rows} == set()


def test_the_tests_of_the_plugin_set_what_they_are_named_for() -> None:
    folder = ROOT / "java-shim/src/test/java/io/tierberg/rsm"
    shared = "".join((folder / name).read_text(encoding="utf-8") for name in ("Shim.java", "Fakes.java"))
    unnamed = {
        name
        for name, test in SHIM_EFFECTS.items()
        if f'"{name}"' not in (ROOT / test.partition("::")[0]).read_text(encoding="utf-8") + shared
    }
    assert unnamed == set()


def test_the_tests_are_there() -> None:
    assert sorted({test for test in (*EFFECTS.values(), *SHIM_EFFECTS.values()) if not is_there(test)}) == []


def test_each_test_knows_its_setting() -> None:
    """The file of the test, or a helper beside it, names the setting's last word."""
    unnamed = []
    for name, test in EFFECTS.items():
        file = ROOT / test.partition("::")[0]
        texts = [file, *file.parent.glob("*support*.py"), *file.parent.glob("conftest.py")]
        word = name.rpartition(".")[2].removesuffix("[]")
        if not any(word in path.read_text(encoding="utf-8") for path in texts):
            unnamed.append((name, test))
    assert unnamed == []


def test_the_names_are_those_of_the_page() -> None:
    """Sections are seen by their keys, lists of sections too."""
    names = setting_names()
    assert {"listen", "tls.clients[].may", "topics[].copies[].key", "topics[].key_schema.file"} <= set(names)
    assert not {"tls", "store", "topics", "topics[].copies", "tls.clients"} & set(names)
    assert len(names) == len(set(names)) > 80


def test_a_new_setting_is_noticed() -> None:
    class Inner(Section):
        depth: int = 1

    class Sample(Section):
        width: int = 1
        inner: Inner | None = None
        inners: tuple[Inner, ...] | None = None

    assert setting_names(Sample) == ["width", "inner.depth", "inners[].depth"]
