"""A key that a listing names and a read denies is not gone: a store may answer wrongly (publish rule R7).

Taken for reclaimed, a live segment would be a gap in the table for good, and its objects nobody's. Only a tombstone
says that a segment was deleted, and only a listing made after the failed read that its key is gone. A run that meets
neither fails, and the next one looks again; what is reclaimed between listing and reading costs one more listing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from rsm_bridge.errors import StoreError
from rsm_bridge.storage.object_store import ObjectStore


class DeniedKeyError(StoreError):
    """The store lists a key and says that it is not there."""


def confirm_gone(store: ObjectStore, keys: Collection[str]) -> None:
    """Returns when a listing made now names none of these keys, all of which were listed before and could not be read.

    Raises:
        DeniedKeyError: it still names one.
        StoreError: the store is away.
    """
    still = next(_listed(store, sorted(keys)), None)
    if still is not None:
        raise DeniedKeyError(
            f"{still}: the store lists it and says that it is not there; nothing is decided about its topic until it "
            "can be read, or is not listed any more"
        )


def _listed(store: ObjectStore, keys: Sequence[str]) -> Iterator[str]:
    """Which of these keys, ascending, are listed: one listing for each folder, from the first wanted key on."""
    for folder, group in groupby(keys, key=lambda key: key[: key.rfind("/") + 1]):
        wanted = list(group)
        for listed in store.list_after(folder, wanted[0][:-1]):
            if listed.key in wanted:
                yield listed.key
            if listed.key >= wanted[-1]:
                break
