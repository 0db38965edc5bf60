"""Whether a stored object is what was written: its size and its checksum."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import crc32c
import pyarrow as pa

from converter.index.model import StoredObject
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import UPLOAD_PART_BYTES
from rsm_bridge.storage.object_store import ObjectStore, first_line


def require_intact(store: ObjectStore, stored: StoredObject) -> None:
    """Reads an object once.

    Raises:
        BridgeError: `corrupt_object`: it is not what the index says; `not_found`; and what else the store raises.
    """
    size = store.size(stored.key)
    if size != stored.size:
        raise BridgeError("corrupt_object", f"{stored.key} has {size} bytes, {stored.size} were written")
    checksum = 0
    for start in range(0, size, UPLOAD_PART_BYTES):
        part = store.get_range(stored.key, start, min(UPLOAD_PART_BYTES, size - start))
        checksum = crc32c.crc32c(part, checksum)
    if checksum != stored.crc32c:
        raise BridgeError("corrupt_object", f"{stored.key} fails its checksum")


@contextlib.contextmanager
def named(key: str) -> Iterator[None]:
    """Raises BridgeError `corrupt_object` with the key for what reading a Parquet file raises that is none, or cut.

    What the store raises passes through.
    """
    try:
        yield
    except (pa.ArrowException, ValueError, LookupError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BridgeError("corrupt_object", f"{key} is damaged: {first_line(error)}") from error
