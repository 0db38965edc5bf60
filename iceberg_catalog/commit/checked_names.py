"""Names of metadata files that tell whose they are, by the table's uuid, and their bytes.

They end in `-crc32c-0a1b2c3d.avro`, the CRC32C in hexadecimal.

Avro has no checksum, and a reader written in C may do anything with bytes that nobody wrote. So a file of ours is
compared with its name before it is decoded. Names survive what other engines do: their manifest lists repeat the
paths of our manifests.
"""

from __future__ import annotations

import io
import re
import uuid
from typing import Final, NoReturn

from crc32c import crc32c
from pyiceberg.io import OutputFile

_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME: Final = re.compile(r"-crc32c-([0-9a-f]{8})\.avro\Z")
_OURS: Final = re.compile(rf"(?:snap-[0-9]+-0-)?({_UUID})-{_UUID}(?:-m[0-9]+)?{_NAME.pattern}")


def commit_name(table: uuid.UUID) -> str:
    """What the names of one commit's files share, unlike those of any other commit."""
    return f"{table}-{uuid.uuid4()}"


def table_of_name(name: str) -> uuid.UUID | None:
    """The table of which a manifest or manifest list of ours is; None of a name that does not tell."""
    told = _OURS.fullmatch(name)
    return None if told is None else uuid.UUID(told[1])


def checked_name(name: str, data: bytes) -> str:
    """The name of a file with these bytes; `name` without ending."""
    return f"{name}-crc32c-{crc32c(data):08x}.avro"


def require_named(path: str, data: bytes) -> None:
    """Raises ValueError where the path's name tells of other bytes; one that tells nothing passes."""
    told = _NAME.search(path)
    if told is not None and int(told[1], 16) != (found := crc32c(data)):
        raise ValueError(f"its {len(data)} bytes have the CRC32C {found:08x}")


class Gathered(OutputFile):
    """What a writer writes stays in memory, in `data` once it has closed the file: its name is known only then."""

    def __init__(self) -> None:
        super().__init__("")
        self.data = b""

    def __len__(self) -> int:
        return len(self.data)

    def lie_at(self, location: str) -> None:
        """Says where the data were stored."""
        self._location = location

    def exists(self) -> bool:
        """No."""
        return False

    def create(self, overwrite: bool = False) -> io.BytesIO:  # noqa: ARG002 - the base's
        """The stream that it is written to."""
        return _Stream(self)

    def to_input_file(self) -> NoReturn:
        """Not readable as a file."""
        raise io.UnsupportedOperation("written only")


class _Stream(io.BytesIO):
    def __init__(self, target: Gathered) -> None:
        super().__init__()
        self._target = target

    def close(self) -> None:
        if not self.closed:
            self._target.data = self.getvalue()
        super().close()
