"""The files beside a segment's log as they arrive: in pieces, within a limit, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from converter.types import IndexType
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import COPY_FILES_BYTES_MAX
from rsm_bridge.wire import File


class CopyFiles:
    """Of one copy. They lie in memory: the index holds them, and Kafka reads each in one go."""

    def __init__(self) -> None:
        self._data: dict[IndexType, bytearray] = {}
        self._sizes: dict[IndexType, int] = {}

    @property
    def announced(self) -> int:
        """Bytes of all files that were begun, whole."""
        return sum(self._sizes.values())

    def add(self, piece: File) -> None:
        """Appends a piece.

        Raises:
            BridgeError: `bad_request` for a piece that does not follow the one before, `invalid_segment` when the files
                are larger than COPY_FILES_BYTES_MAX in all.
        """
        kind = piece.type
        if kind not in self._sizes:
            self._check_whole()
            self._sizes[kind], self._data[kind] = piece.size, bytearray()
            if self.announced > COPY_FILES_BYTES_MAX:
                raise BridgeError(
                    "invalid_segment",
                    f"the {kind.name} file has {piece.size} bytes, and all files beside the log {self.announced}: more "
                    f"than {COPY_FILES_BYTES_MAX}; a producer snapshot shrinks with producer.id.expiration.ms",
                )
        data, size = self._data[kind], self._sizes[kind]
        fits = (
            piece.position == len(data) and len(piece.data) <= size - len(data) and (len(piece.data) > 0 or size == 0)
        )
        if piece.size != size or not fits:
            raise BridgeError(
                "bad_request",
                f"a piece of {len(piece.data)} bytes at {piece.position} of {piece.size} after {len(data)} of {size} "
                f"bytes of the {kind.name} file",
            )
        data += piece.data

    def whole(self) -> Mapping[IndexType, bytes]:
        """All files, each in one piece. Raises BridgeError `bad_request` when the last one is cut."""
        self._check_whole()
        return {kind: bytes(self._data.pop(kind)) for kind in list(self._data)}

    def _check_whole(self) -> None:
        for kind, data in self._data.items():
            if len(data) != self._sizes[kind]:
                raise BridgeError(
                    "bad_request", f"the {kind.name} file ends after {len(data)} of {self._sizes[kind]} bytes"
                )
