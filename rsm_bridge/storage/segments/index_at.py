"""The directory of an index, believed only where it says the same as the key it lies under.

An object may lie under the wrong key: by a restore from a backup, by a script, by someone who may write one topic's
keys. Its own checksums are right then. Whoever reads an index by its key comes through here, so that nothing of it is
served, published, or taken for the owner of a table or of the objects that it names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from converter.errors import SegmentError
from converter.index.codec import Buffer, decode_directory
from converter.index.model import Directory
from rsm_bridge.errors import BridgeError
from rsm_bridge.storage.keys import DATA_ROOT, KEPT_ROOT, IndexKey, index_key, is_stored_object, parse_index_key


@contextlib.contextmanager
def index_named(key: str) -> Iterator[None]:
    """Raises with the key of an index what reading it, or stored bytes by it, raises of damage."""
    try:
        yield
    except SegmentError as error:
        raise named_damage(key, error) from error


def named_damage(key: str, error: SegmentError) -> SegmentError:
    """The error, with the key of the index that was read in its message."""
    if str(error).startswith(f"{key}: "):
        return error
    named = SegmentError(error.kind, f"{key}: {error}")
    named.batch, named.position = error.batch, error.position
    return named


def directory_under(key: str, head: Buffer) -> Directory:
    """The directory of the index at `key`; `head` are the first bytes of it, at least the directory.

    Raises:
        BridgeError: `corrupt_object` when the index is another segment's, or names objects of another partition.
        SegmentError: `corrupt_object`, `unsupported_version`.
    """
    with index_named(key):
        directory = decode_directory(head)
    place = parse_index_key(key)
    if place is None:
        raise BridgeError("corrupt_object", f"{key} is not a key of an index, and an index lies there")
    if (own := index_key(directory.metadata)) != place:
        raise BridgeError("corrupt_object", f"{key} holds the index of another segment, whose own key is {own}")
    for stored in (*directory.data_files, directory.kept):
        if stored is not None and not _of_partition(stored.key, place):
            raise BridgeError("corrupt_object", f"{key} names {stored.key}, which is no object of its partition")
    return directory


def _of_partition(name: str, key: IndexKey) -> bool:
    folder = f"{key.topic_id.hex()}/{key.partition}/"
    return is_stored_object(name) and name.startswith((f"{DATA_ROOT}{folder}", f"{KEPT_ROOT}{folder}"))
