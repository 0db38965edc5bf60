"""What a data file is written into: counts, checksums, and keeps the file's tail."""

from __future__ import annotations

import io
from typing import BinaryIO

from crc32c import crc32c


class CountingSink(io.RawIOBase):
    """Passes writes on to `target`, which stays open.

    Attributes:
        size: bytes written so far.
        crc32c: CRC32C of them.
        tail: bytes written since :meth:`keep_tail` or :meth:`hold_tail`.
        tail_start: where the tail begins in the file.
    """

    def __init__(self, target: BinaryIO) -> None:
        super().__init__()
        self._target: BinaryIO | None = target
        self._keep = False
        self._hold = False
        self.size = 0
        self.crc32c = 0
        self.tail = bytearray()
        self.tail_start = 0

    def keep_tail(self) -> None:
        """Keep what is written from here on."""
        self._keep = True
        self.tail_start = self.size

    def hold_tail(self) -> None:
        """Keep what is written from here on, and neither pass it on nor count it."""
        self._hold = True
        self.tail_start = self.size

    def drop_tail(self) -> None:
        """Pass on again what is written, after :meth:`hold_tail`."""
        self._hold = False
        self.tail.clear()

    def discard(self) -> None:
        """Drop all further writes: closing a Parquet writer would otherwise complete an aborted file."""
        self._target = None

    def writable(self) -> bool:
        """True: pyarrow asks."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def write(self, data: object) -> int:
        """Count, checksum and pass on a buffer; returns its size in bytes."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        if self._hold:
            self.tail += view
            return len(view)
        if self._target is not None:
            self._target.write(view)
            self.crc32c = crc32c(view, self.crc32c)
            if self._keep:
                self.tail += view
        self.size += len(view)
        return len(view)
