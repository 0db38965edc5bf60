"""Puts the broker's jar into a wheel, if `make shim` has built it: `tierberg jar` gives it out of there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JarHook(BuildHookInterface[Any]):
    """The hook named in `pyproject.toml`. A wheel for an image that no broker runs in may be built without the jar."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the jar, unless the wheel only points to this folder, which has it anyway."""
        if version != "editable":
            for jar in Path(self.root, "java-shim", "target", "dist").glob("*.jar"):
                build_data["force_include"][str(jar)] = f"tierberg/jar/{jar.name}"
