"""How table metadata is read and written: PyIceberg's file access over pyarrow, with three gaps closed.

* In `abfss://container@account.dfs.core.windows.net/path` PyIceberg takes all up to the path for the container. (Its
  other implementation, over `adlfs`, does not; but that one cannot list a folder for maintenance.)
* Each load of a table would open connections of its own (file_io.py).
* A request to Google's store would be repeated for a quarter of an hour: longer than a publisher may hang.

One client of a storage for all tables that reach it in the same way, instead of one for each load of a table.

PyIceberg makes a new client whenever it loads or commits. Each opens connections of its own, and is kept by a reference
cycle: in a process whose heap is large and quiet they pile up, with their sockets and descriptors, until the collector
happens to look at the oldest generation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from pyarrow.fs import FileSystem, GcsFileSystem
from pyiceberg.io import (
    GCS_DEFAULT_LOCATION,
    GCS_SERVICE_HOST,
    GCS_TOKEN,
    GCS_TOKEN_EXPIRES_AT_MS,
    PY_IO_IMPL,
    S3_REQUEST_TIMEOUT,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.datetime import millis_to_datetime

from iceberg_catalog.limits import FILE_SYSTEMS_MAX, REST_READ_TIMEOUT_MS

#: The property by which PyIceberg is told to use it.
FILE_IO: Final = {PY_IO_IMPL: "iceberg_catalog.connect.file_io.TableFileIO"}

_AZURE = frozenset({"abfs", "abfss", "wasb", "wasbs"})


class TableFileIO(PyArrowFileIO):
    """Files of every store pyarrow knows."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        # The parent's cache of one's own; ours is the method below.
        del self.fs_by_scheme

    def fs_by_scheme(self, scheme: str, netloc: str | None = None) -> FileSystem:
        """The client that all tables share which reach their storage in the same way."""
        return shared_file_system(scheme, netloc, self.properties, lambda: self._initialize_fs(scheme, netloc))

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Scheme, authority, and the path as the file system wants it: bucket or container first."""
        scheme, authority, path = PyArrowFileIO.parse_location(location, properties)
        container, named, _ = authority.partition("@")
        if scheme in _AZURE and named:
            path = container + path.removeprefix(authority)
        return scheme, authority, path

    def _initialize_gcs_fs(self) -> FileSystem:
        given = self.properties
        # Set for every catalog when it is opened, whatever its store.
        seconds = float(given.get(S3_REQUEST_TIMEOUT, REST_READ_TIMEOUT_MS / 1000))
        options: dict[str, Any] = {"retry_time_limit": timedelta(seconds=seconds)}
        if GCS_TOKEN in given:
            options["access_token"] = given[GCS_TOKEN]
        if GCS_TOKEN_EXPIRES_AT_MS in given:
            options["credential_token_expiration"] = millis_to_datetime(int(given[GCS_TOKEN_EXPIRES_AT_MS]))
        if GCS_DEFAULT_LOCATION in given:
            options["default_bucket_location"] = given[GCS_DEFAULT_LOCATION]
        if GCS_SERVICE_HOST in given:
            options["scheme"], _, options["endpoint_override"] = given[GCS_SERVICE_HOST].rstrip("/").partition("://")
        return GcsFileSystem(**options)


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
