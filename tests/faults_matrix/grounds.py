"""Where a matrix runs: an S3 server and a REST catalog, or for the sample what a bridge embeds."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from botocore.exceptions import FlexibleChecksumError
from pyiceberg.catalog import Catalog

from iceberg_catalog.connect.open import CatalogSettings, embedded_settings, open_catalog
from tierberg.stack.lake import BUCKET, Lake

READS_MAX: Final = 5


class Ground(Protocol):
    """Store and catalog of one bridge. Keys are those of the bridge's store."""

    def start(self) -> None:
        """Before the bridge."""

    def stop(self) -> None:
        """After it."""

    def bridge_settings(self) -> dict[str, Any]:
        """Sections of `tierberg.yaml`."""

    def catalog(self) -> AbstractContextManager[Catalog]:
        """The open catalog."""

    def keys(self, prefix: str) -> list[str]:
        """Those that begin so, ascending."""

    def read(self, key: str) -> bytes:
        """An object."""

    def plant(self, key: str, data: bytes, age_s: float) -> None:
        """An object that was written `age_s` seconds ago."""

    def metadata_names(self, table: str) -> list[str]:
        """Files of a table's metadata folder."""

    def plant_metadata(self, table: str, name: str, data: bytes, age_s: float) -> None:
        """Such a file that was written `age_s` seconds ago."""


class LakeGround:
    """Real servers. The S3 server keeps objects as files."""

    def __init__(self, folder: Path) -> None:
        self._lake = Lake(folder)
        self._bucket = folder / "s3" / "buckets" / BUCKET

    def start(self) -> None:
        self._lake.start()

    def stop(self) -> None:
        self._lake.stop()

    def bridge_settings(self) -> dict[str, Any]:
        settings = self._lake.bridge_settings()
        # Two cores for five servers: their time is not what is tested.
        settings["store"]["fetch_timeout"] = "10s"
        return settings

    def catalog(self) -> AbstractContextManager[Catalog]:
        return closing(open_catalog(CatalogSettings("matrix", self._lake.catalog.client_properties())))

    def keys(self, prefix: str) -> list[str]:
        return [key.removeprefix("tierberg/") for key in self._lake.keys(f"tierberg/{prefix}")]

    def read(self, key: str) -> bytes:
        with closing(self._lake.client()) as client:
            for _ in range(READS_MAX):
                # The gateway has an object's bytes in a file, and its checksum beside it: one that is replaced while it
                # is read has the old of one and the new of the other.
                with suppress(FlexibleChecksumError):
                    return bytes(client.get_object(Bucket=BUCKET, Key=f"tierberg/{key}")["Body"].read())
        raise AssertionError(f"{key} is never whole")

    def plant(self, key: str, data: bytes, age_s: float) -> None:
        self._put(f"tierberg/{key}", data, age_s)

    def metadata_names(self, table: str) -> list[str]:
        names = (key.rpartition("/")[2] for key in self._lake.keys(f"warehouse/kafka/{table}/metadata/"))
        # Who deletes a folder's last file through Arrow leaves an empty object in the folder's name.
        return [name for name in names if name]

    def plant_metadata(self, table: str, name: str, data: bytes, age_s: float) -> None:
        self._put(f"warehouse/kafka/{table}/metadata/{name}", data, age_s)

    def _put(self, whole_key: str, data: bytes, age_s: float) -> None:
        with closing(self._lake.client()) as client:
            client.put_object(Bucket=BUCKET, Key=whole_key, Body=data)
        make_older(self._bucket / whole_key, age_s)


class EmbeddedGround:
    """A folder and SQLite: nothing to start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def bridge_settings(self) -> dict[str, Any]:
        return {}

    def catalog(self) -> AbstractContextManager[Catalog]:
        return closing(open_catalog(embedded_settings(self._folder)))

    def keys(self, prefix: str) -> list[str]:
        store = self._folder / "store"
        found = (path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file())
        return sorted(key for key in found if key.startswith(prefix))

    def read(self, key: str) -> bytes:
        return (self._folder / "store" / key).read_bytes()

    def plant(self, key: str, data: bytes, age_s: float) -> None:
        path = self._folder / "store" / key
        path.write_bytes(data)
        make_older(path, age_s)

    def metadata_names(self, table: str) -> list[str]:
        return [path.name for path in self._metadata(table).glob("*")]

    def plant_metadata(self, table: str, name: str, data: bytes, age_s: float) -> None:
        path = self._metadata(table) / name
        path.write_bytes(data)
        make_older(path, age_s)

    def _metadata(self, table: str) -> Path:
        return self._folder / "warehouse" / "kafka" / table / "metadata"


def make_older(path: Path, age_s: float) -> None:
    """As if it had been written `age_s` seconds earlier."""
    written = path.stat().st_mtime - age_s
    os.utime(path, (written, written))
