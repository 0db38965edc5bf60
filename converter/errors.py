"""The root of all errors that leave a room, and the one error of this room.

Any bytes handed to the converter either work or raise :class:`SegmentError`; never another exception for bad input.
`kind` is stable: metrics, the wire protocol and the documentation use the same word. A new kind is added only if the
caller would act differently.
"""

from __future__ import annotations

from typing import Literal

SegmentErrorKind = Literal[
    "invalid_segment",  # what the broker sent contradicts its own framing or metadata: fail the copy
    "damaged_in_transit",  # a frame's CRC32C differs from what the shim computed: fail the copy, a retry may help
    "corrupt_object",  # what the store returned is not what was written: fail the fetch, never serve it
    "unsupported_version",  # a stored object was written by a newer release
]


class TierbergError(Exception):
    """Something that a caller may meet and a person may read.

    Attributes:
        kind: a stable word from the list of the room that raises it: exit codes, logs and metrics go by it.
    """

    kind: str


class SegmentError(TierbergError):
    """Bytes that are not what they claim to be.

    Attributes:
        kind: stable word, see :data:`SegmentErrorKind`.
        batch: zero-based number of the record batch in the segment, or None where no batch is concerned.
        position: byte position in the segment or stored object, or None.
    """

    def __init__(
        self,
        kind: SegmentErrorKind,
        message: str,
        *,
        batch: int | None = None,
        position: int | None = None,
    ) -> None:
        where = ", ".join(
            text
            for text in (
                None if batch is None else f"batch {batch}",
                None if position is None else f"byte {position}",
            )
            if text
        )
        super().__init__(f"{message} ({where})" if where else message)
        self.kind: SegmentErrorKind = kind
        self.batch = batch
        self.position = position
