"""Where things are: inside the project folder, or for an installed wheel in the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_PROJECT = _PACKAGE.parent
_IN_CHECKOUT = (_PROJECT / "java-shim" / "pom.xml").is_file()
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tierberg"

#: Everything that is fetched or built, outside the shim's own Maven folder.
BUILD = _PROJECT / "build" if _IN_CHECKOUT else _CACHE
#: Where the broker's jar is: built in a checkout, in a wheel beside the package's code.
SHIM_DIST = _PROJECT / "java-shim" / "target" / "dist" if _IN_CHECKOUT else _PACKAGE / "jar"
