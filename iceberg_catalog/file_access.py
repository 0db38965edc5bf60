"""How table metadata is read and written: PyIceberg's file access over pyarrow, with three gaps closed.

* In `abfss://container@account.dfs.core.windows.net/path` PyIceberg takes all up to the path for the container. (Its
  other implementation, over `adlfs`, does not; but that one cannot list a folder for maintenance.)
* Each load of a table would open connections of its own (file_systems.py).
* A request to Google's store would be repeated for a quarter of an hour: longer than a publisher may hang.
"""

from __future__ import annotations

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

from iceberg_catalog.file_systems import shared_file_system
from iceberg_catalog.limits import REST_READ_TIMEOUT_MS

#: The property by which PyIceberg is told to use it.
FILE_IO: Final = {PY_IO_IMPL: "iceberg_catalog.file_access.TableFileIO"}

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
