"""The page of memory that a child shares with the parent that watches it: how far it has come, and what it is at.

Numbers first, then the input that is being tried, so that it is known when the child dies of it.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import astuple, dataclass
from enum import IntEnum
from pathlib import Path

from tests.fuzz.target import MIB

_NUMBERS = struct.Struct("<QQQQQQd")
INPUT_BYTES_MAX = 64 * MIB
PAGE_BYTES = _NUMBERS.size + INPUT_BYTES_MAX


class Stage(IntEnum):
    """What a child is doing."""

    PREPARING = 0
    TRYING = 1
    ENDING = 2


@dataclass(slots=True)
class Progress:
    """How far all children of a target have come together.

    Attributes:
        stage: of the one that runs.
        begun: number of the next input; those below it were tried.
        ended: how many inputs went through, failed ones too.
        failures: how many of them failed.
        peak: most memory that one of them added, in bytes.
        size: of the input that is being tried, in bytes.
        seconds: spent on inputs, without preparing.
    """

    stage: int = Stage.PREPARING
    begun: int = 0
    ended: int = 0
    failures: int = 0
    peak: int = 0
    size: int = 0
    seconds: float = 0.0


class Page:
    """What parent and child both see."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), PAGE_BYTES)

    def read(self) -> Progress:
        """As it was last written."""
        return Progress(*_NUMBERS.unpack_from(self._map))

    def write(self, progress: Progress, data: bytes | None = None) -> None:
        """`data`: the input that is tried next; None: as it is."""
        if data is not None:
            progress.size = len(data)
            self._map[_NUMBERS.size : _NUMBERS.size + len(data)] = data
        _NUMBERS.pack_into(self._map, 0, *astuple(progress))

    def input(self) -> bytes:
        """The input being tried."""
        return bytes(self._map[_NUMBERS.size : _NUMBERS.size + self.read().size])
