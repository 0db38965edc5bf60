"""The schema registry's archive, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tierberg.stack.errors import StackError

SERVER = "quarkus-run.jar"


def unpack(folder: Path) -> None:
    """Replaces the one archive in `folder` by its content; nothing is written outside the folder.

    Raises:
        StackError: there is not exactly one archive, it is damaged, or it has no server.
    """
    archives = sorted(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise StackError(f"expected one archive in {folder}, found {len(archives)}")
    try:
        with tarfile.open(archives[0]) as archive:
            archive.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise StackError(f"cannot unpack {archives[0].name}: {error}") from error
    if not (folder / SERVER).is_file():
        raise StackError(f"{archives[0].name} has no {SERVER}")
    archives[0].unlink()
