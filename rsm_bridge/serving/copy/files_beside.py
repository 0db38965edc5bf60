"""The files beside a segment's log as they arrive: in pieces, within a limit, whole or not at all.

What the limit is kept for does not depend on their order. OFFSET is not kept: the bridge serves its own. Without a
producer snapshot consumers still read the segment, so it alone may be left out, for the sake of the others too. Kafka
reads TIMESTAMP, TRANSACTION and LEADER_EPOCH before it serves a byte: a copy without one could never be read, so it is
refused, and Kafka keeps the segment.
"""

from __future__ import annotations

from collections.abc import Mapping

from converter.types import IndexType
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import COPY_FILES_BYTES_MAX, SEGMENT_BYTES_MAX
from rsm_bridge.serving.wire.messages import File


class CopyFiles:
    """Of one copy. They lie in memory: the index holds them, and Kafka reads each in one go.

    left_out: the producer snapshot, when it was not kept, with its size in bytes.
    """

    def __init__(self) -> None:
        self.left_out: dict[IndexType, int] = {}
        self._arrived: dict[IndexType, int] = {}
        self._data: dict[IndexType, bytearray] = {}
        self._whole: dict[IndexType, bytes] = {}
        self._sizes: dict[IndexType, int] = {}

    @property
    def announced(self) -> int:
        """Bytes of all files that were begun and are kept, whole."""
        return sum(self._sizes[kind] for kind in (*self._data, *self._whole))

    def add(self, piece: File) -> None:
        """Appends a piece.

        Raises:
            BridgeError: `bad_request` for a piece that does not follow the one before, or of a file over
                SEGMENT_BYTES_MAX; `invalid_segment` when what reads need is over COPY_FILES_BYTES_MAX.
        """
        kind = piece.type
        if piece.size > SEGMENT_BYTES_MAX:
            raise BridgeError("bad_request", f"a {kind.name} file of {piece.size} bytes: Kafka writes none")
        if kind not in self._sizes:
            self._check_whole()
            self.begin(kind, piece.size)
        arrived, size = self._arrived[kind], self._sizes[kind]
        fits = piece.position == arrived and len(piece.data) <= size - arrived and (len(piece.data) > 0 or size == 0)
        if piece.size != size or not fits:
            raise BridgeError(
                "bad_request",
                f"a piece of {len(piece.data)} bytes at {piece.position} of {piece.size} after {arrived} of {size} "
                f"bytes of the {kind.name} file",
            )
        self._arrived[kind] += len(piece.data)
        if kind in self._data:
            self._data[kind] += piece.data

    def begin(self, kind: IndexType, size: int) -> None:
        """Makes room for a file of which nothing has come, if it is to be kept; may drop the producer snapshot for it.

        Raises:
            BridgeError: `invalid_segment` as :meth:`add`.
        """
        self._sizes[kind], self._arrived[kind] = size, 0
        if kind is IndexType.OFFSET:
            return
        self._data[kind] = bytearray()
        if self.announced > COPY_FILES_BYTES_MAX and IndexType.PRODUCER_SNAPSHOT in self._data:
            del self._data[IndexType.PRODUCER_SNAPSHOT]
            self.left_out[IndexType.PRODUCER_SNAPSHOT] = self._sizes[IndexType.PRODUCER_SNAPSHOT]
        if self.announced > COPY_FILES_BYTES_MAX:
            said = ", ".join(f"{one.name} {self._sizes[one]}" for one in self._data)
            raise BridgeError(
                "invalid_segment",
                f"the files that every read of the segment needs have {self.announced} bytes, at most "
                f"{COPY_FILES_BYTES_MAX} can be stored: {said}; with a larger "
                f"index.interval.bytes Kafka writes smaller ones",
            )

    def whole(self) -> Mapping[IndexType, bytes]:
        """All kept files, each in one piece. Raises BridgeError `bad_request` when the last one is cut."""
        self._check_whole()
        for kind in list(self._data):
            self._whole[kind] = bytes(self._data.pop(kind))
        return self._whole

    def drop(self) -> None:
        """Frees them, whoever still has what `whole` gave: a failure's traceback has."""
        self._data.clear()
        self._whole.clear()

    def _check_whole(self) -> None:
        for kind, arrived in self._arrived.items():
            if arrived != self._sizes[kind]:
                raise BridgeError(
                    "bad_request", f"the {kind.name} file ends after {arrived} of {self._sizes[kind]} bytes"
                )
