"""Where a matrix runs: an S3 server and a REST catalog, or for the sample what a bridge embeds.

Both have `start` and `stop`, sections of `tierberg.yaml` in `bridge_settings()`, the `keys()` of the bridge's store,
and `catalog()`, a context with the open catalog.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from iceberg_catalog.catalogs import CatalogSettings, embedded_settings, open_catalog
from stack.lake import BUCKET, Lake


class LakeGround:
    """Real servers."""

    def __init__(self, folder: Path) -> None:
        self._lake = Lake(folder)
        self._buckets = folder / "s3" / "buckets" / BUCKET

    def start(self) -> None:
        self._lake.start()

    def stop(self) -> None:
        self._lake.stop()

    def bridge_settings(self) -> dict[str, Any]:
        settings = self._lake.bridge_settings()
        # Two cores for five servers: their time is not what is tested.
        settings["store"]["fetch_timeout"] = "10s"
        return settings

    def keys(self, prefix: str) -> list[str]:
        return [key.removeprefix("tierberg/") for key in self._lake.keys(f"tierberg/{prefix}")]

    def metadata_keys(self, table: str) -> list[str]:
        """Names of the files in a table's metadata folder."""
        return self._lake.keys(f"warehouse/kafka/{table}/metadata/")

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with closing(open_catalog(CatalogSettings("matrix", self._lake.catalog.client_properties()))) as opened:
            yield opened

    def plant(self, key: str, data: bytes, age_s: float) -> None:
        """An object of the bucket, under its whole key, that was written `age_s` seconds ago."""
        with closing(self._lake.client()) as client:
            client.put_object(Bucket=BUCKET, Key=key, Body=data)
        path = self._buckets / key
        written = path.stat().st_mtime - age_s
        os.utime(path, (written, written))

    def read(self, key: str) -> bytes:
        """An object of the bucket, by its whole key."""
        with closing(self._lake.client()) as client:
            return bytes(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())


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

    def keys(self, prefix: str) -> list[str]:
        store = self._folder / "store"
        found = (path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file())
        return sorted(key for key in found if key.startswith(prefix))

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with closing(open_catalog(embedded_settings(self._folder))) as opened:
            yield opened
