"""Starts Spark's Java with its settings in a file: PySpark would put each on a command line, for everybody to read."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_PLAIN: Final = frozenset("./_-")


def start_java(settings: Mapping[str, str]) -> None:
    """Starts it for this process, unless it runs already.

    Memory, jars and options of Java count only now. What `spark-defaults.conf` has more counts too, and what
    `PYSPARK_SUBMIT_ARGS` says wins, as always.

    Args:
        settings: Spark's configuration (`spark.…`).
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    # Java has read the file when it answers. The folder is this user's alone.
    with tempfile.TemporaryDirectory(prefix="tierberg-") as folder:
        file = Path(folder) / "spark.properties"
        file.touch(0o600)
        file.write_text(properties_text(settings), encoding="ascii")
        with _arguments(f"--properties-file {shlex.quote(str(file))} --load-spark-defaults"):
            SparkContext._ensure_initialized()


def properties_text(settings: Mapping[str, str]) -> str:
    """As `java.util.Properties` reads them, in ASCII."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    return "".join(c if (c.isascii() and c.isalnum()) or c in _PLAIN else _units(c) for c in text)


def _units(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


@contextmanager
def _arguments(added: str) -> Iterator[None]:
    """Within the block `spark-submit` is told this too, before what the environment tells it."""
    before = os.environ.get(_ARGUMENTS)
    os.environ[_ARGUMENTS] = f"{added} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before
