"""What of Trino's archive one catalog of Iceberg tables needs: `lib` and `plugin/iceberg`."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from tierberg.stack.errors import StackError

_WANTED = ("lib/", "plugin/iceberg/")


def unpack(folder: Path) -> None:
    """Replaces the one archive in `folder` by the wanted part of its content, without the archive's top folder.

    A jar that several plugins have is in the archive once; the others are links to it. So names are read first, then
    contents, each in one pass: going back in a compressed archive would decompress it anew.

    Raises:
        StackError: there is not exactly one archive, or nothing wanted is in it.
    """
    archives = sorted(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise StackError(f"expected one archive in {folder}, found {len(archives)}")
    sources: dict[str, list[Path]] = {}
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if (member.isfile() or member.islnk()) and name.startswith(_WANTED):
                sources.setdefault(member.linkname if member.islnk() else member.name, []).append(folder / name)
    if not sources:
        raise StackError(f"{archives[0].name} has neither of {', '.join(_WANTED)}")
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name in sources and member.isfile() else None
            if content is not None:
                _write(content.read(), sources.pop(member.name))
    if sources:
        raise StackError(f"{archives[0].name} has a link to nothing: {min(sources)}")
    archives[0].unlink()


def _write(content: bytes, paths: list[Path]) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    paths[0].write_bytes(content)
    for path in paths[1:]:
        shutil.copyfile(paths[0], path)
