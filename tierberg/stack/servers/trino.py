"""Trino as a local process: one node on loopback, with one catalog of the tables that a REST catalog knows.

Needs a JDK of its own (`tierberg/stack/jdk.py`). The first use fetches Trino's archive, 821 MB.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from tierberg.stack.jars import trino_server
from tierberg.stack.jdk import java
from tierberg.stack.limits import SCRAPE_S, TRINO_START_S
from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.rest_catalog import S3Warehouse
from tierberg.stack.waiting import wait_for

CATALOG: Final = "lake"
JDK_MIN: Final = 24

# What Trino's own launcher passes, and what its start checks for.
_JVM = (
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:+EnableDynamicAgentLoading",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dfile.encoding=UTF-8",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)


class TrinoServer:
    """One coordinator that also works. Its catalog `lake` reads and writes tables in S3."""

    def __init__(
        self, folder: Path, catalog_uri: str, warehouse: S3Warehouse, properties: Mapping[str, str] | None = None
    ) -> None:
        """Nothing is written or started yet; `properties` are added to those of the catalog `lake`."""
        (self.port,) = free_ports(1)
        self._folder = folder.resolve()
        self._catalog_uri = catalog_uri
        self._warehouse = warehouse
        self._properties = dict(properties or {})
        self._home = trino_server()
        argv = [str(java(JDK_MIN)), *_JVM, f"-Dconfig={self._folder}/config.properties"]
        argv += [f"-D{name}={value}" for name, value in self._node().items()]
        argv += ["-cp", f"{self._home}/lib/*", "io.trino.server.TrinoServer"]
        self.process = ServerProcess("trino", argv, self._folder / "trino.log", cwd=self._folder)

    @property
    def uri(self) -> str:
        """What clients are given; no user needs a password."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and return when it takes queries.

        Raises:
            StackError: it ended, or did not answer within TRINO_START_S.
        """
        catalogs = self._folder / "catalog"
        catalogs.mkdir(parents=True, exist_ok=True)
        _write(self._folder / "config.properties", self._config())
        properties = catalog_properties(self._catalog_uri, self._warehouse) | self._properties
        _write(catalogs / f"{CATALOG}.properties", properties)
        self.process.start()
        wait_for("Trino to answer", self._answers, TRINO_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def _node(self) -> dict[str, str]:
        return {
            "node.environment": "stack",
            "node.id": str(uuid.uuid4()),
            "node.data-dir": f"{self._folder}/data",
            "node.bind-ip": LOOPBACK,
            "node.internal-address": LOOPBACK,
            "plugin.dir": f"{self._home}/plugin",
            "catalog.config-dir": f"{self._folder}/catalog",
        }

    def _config(self) -> dict[str, str]:
        return {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self.port),
            "discovery.uri": self.uri,
            "query.max-memory": "400MB",
            "query.max-memory-per-node": "400MB",
            "memory.heap-headroom-per-node": "256MB",
            "task.concurrency": "2",
            "task.max-worker-threads": "4",
        }

    def _answers(self) -> bool:
        self.process.require_alive()
        try:
            with urlopen(f"{self.uri}/v1/info", timeout=SCRAPE_S) as answer:
                return answer.status == 200 and json.load(answer).get("starting") is False
        except (URLError, OSError):
            return False


def catalog_properties(uri: str, warehouse: S3Warehouse) -> dict[str, str]:
    """Properties of a Trino catalog: the tables that the REST catalog at `uri` knows, their files in S3."""
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": uri,
        "fs.native-s3.enabled": "true",
        "s3.endpoint": warehouse.endpoint,
        "s3.region": warehouse.region,
        "s3.path-style-access": "true",
        "s3.aws-access-key": warehouse.access_key,
        "s3.aws-secret-key": warehouse.secret_key,
    }


def _write(path: Path, properties: Mapping[str, str]) -> None:
    """In a file only we can read: there are keys in it."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
