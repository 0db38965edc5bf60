"""A streaming multipart upload that is either committed or leaves nothing readable.

Leaving a `with` block, an exception or dropping the object never completes it; only :meth:`Upload.commit` does. (The
usual file objects complete on close, also after an error, and so publish a truncated object.)
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError

from iceberg_catalog import failpoints
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import UPLOAD_PART_BYTES, UPLOAD_PARTS_IN_FLIGHT_MAX

if TYPE_CHECKING:
    from typing import Self

    from obstore import WritableFile
    from obstore.store import ObjectStore as Client
    from typing_extensions import Buffer


class Upload(io.RawIOBase):
    """A write-only binary file. At most `UPLOAD_PART_BYTES` × (parts in flight + 1) are held in memory.

    Attributes:
        size: bytes written so far.
    """

    def __init__(self, client: Client, key: str) -> None:
        super().__init__()
        self.key = key
        self.size = 0
        self._writer: WritableFile | None = obstore.open_writer(
            client, key, buffer_size=UPLOAD_PART_BYTES, max_concurrency=UPLOAD_PARTS_IN_FLIGHT_MAX
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def write(self, data: Buffer, /) -> int:
        """Appends bytes; blocks while the parts in flight are at their limit."""
        failpoints.hit("upload-write", self.key)
        if self._writer is None:
            raise StoreError(f"{self.key}: the upload has ended")
        view = memoryview(data).cast("B")
        try:
            # One call may bring a whole row group: the client would copy all of it into its buffer at once.
            for start in range(0, len(view), UPLOAD_PART_BYTES):
                self._writer.write(view[start : start + UPLOAD_PART_BYTES])
        except (BaseError, OSError) as error:
            raise StoreError(f"{self.key}: {str(error).partition(chr(10))[0]}") from error
        self.size += len(view)
        return len(view)

    def commit(self) -> None:
        """Completes the upload: from now on the object can be read.

        Raises:
            StoreError: the store refused it; nothing is readable unless the reply alone was lost.
        """
        if self._writer is None:
            raise StoreError(f"{self.key}: the upload has ended")
        writer, self._writer = self._writer, None
        try:
            writer.close()
        except (BaseError, OSError) as error:
            raise StoreError(f"{self.key}: {str(error).partition(chr(10))[0]}") from error

    def abort(self) -> None:
        """Drops what was uploaded. Does nothing after `commit` or a second time."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        try:
            # The client aborts a multipart upload when its context ends with an exception.
            writer.__exit__(StoreError, StoreError("aborted"), None)
        except (BaseError, OSError):
            # What stays behind is an unfinished upload that no reader sees; the store's lifecycle rule ends it.
            return
