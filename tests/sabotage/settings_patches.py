"""A patch for each setting, with which the product ignores it; the test of its effect must notice."""

from __future__ import annotations

import sys
from pathlib import Path

from rsm_bridge.config.reference import section_of, setting_names
from tests.sabotage import ignored_settings
from tests.sabotage.ignored_settings import attribute_of
from tests.sabotage.sabotage_runner import ROOT, Hunk, Patch
from tests.support.setting_effects import EFFECTS


def patch_of(setting: str) -> Patch:
    """The patch that makes the product ignore the setting, and the test that must notice."""
    inner = attribute_of(setting)[1] is not None
    model = section_of(setting.rpartition(".")[0] if inner else setting)
    file = sys.modules[model.__module__].__file__
    assert file is not None
    path = str(Path(file).relative_to(ROOT))
    header = next(line for line in Path(file).read_text().splitlines() if line.startswith(f"class {model.__name__}("))
    module = f'__import__("{ignored_settings.__name__}", fromlist=["ignoring"])'
    hunk = Hunk(path, f"{header}\n", f'@{module}.ignoring("{setting}")\n{header}\n')
    return Patch(setting, EFFECTS[setting], (hunk,))


def settings_patches() -> list[Patch]:
    """One for each setting with a test, in the order of the page."""
    return [patch_of(setting) for setting in setting_names() if setting in EFFECTS]
