"""One client of a storage for all tables that reach it in the same way, instead of one for each load of a table.

PyIceberg makes a new client whenever it loads or commits. Each opens connections of its own, and is kept by a reference
cycle: in a process whose heap is large and quiet they pile up, with their sockets and descriptors, until the collector
happens to look at the oldest generation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyarrow.fs import FileSystem

from iceberg_catalog.limits import FILE_SYSTEMS_MAX

#: Properties that say how a storage is reached begin so; all others are a table's own.
_OF_STORES: Final = ("adls.", "client.", "gcs.", "hdfs.", "oss.", "s3.")

_Key = tuple[str, str | None, tuple[tuple[str, str], ...]]
_kept: OrderedDict[_Key, FileSystem] = OrderedDict()
_lock = threading.Lock()


def shared_file_system(
    scheme: str, authority: str | None, properties: Mapping[str, Any], make: Callable[[], FileSystem]
) -> FileSystem:
    """The client for a scheme and authority; `make` is called when none of those used last has these properties.

    Other credentials mean another client. At most FILE_SYSTEMS_MAX are kept. Any thread.
    """
    named = ((name, str(value)) for name, value in properties.items() if name.startswith(_OF_STORES))
    key = (scheme, authority, tuple(sorted(named)))
    with _lock:
        found = _kept.get(key)
    if found is None:
        found = make()  # may ask the network
    with _lock:
        found = _kept.setdefault(key, found)
        _kept.move_to_end(key)
        while len(_kept) > FILE_SYSTEMS_MAX:
            _kept.popitem(last=False)
    return found
