"""Where things are inside the project folder."""

from __future__ import annotations

from pathlib import Path

#: The project folder: the stack is used from a checkout, because the shim is built there.
PROJECT = Path(__file__).resolve().parents[2]
#: Everything that is fetched or built, outside the shim's own Maven folder.
BUILD = PROJECT / "build"
SHIM = PROJECT / "java-shim"
SHIM_DIST = SHIM / "target" / "dist"
