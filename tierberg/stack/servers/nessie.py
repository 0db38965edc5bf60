"""Project Nessie as a local process: a REST catalog of another make; tables in an S3 bucket, its state in memory."""

from __future__ import annotations

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tierberg.stack.jars import nessie_jar
from tierberg.stack.jdk import java
from tierberg.stack.limits import NESSIE_START_S, SCRAPE_S
from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.servers.rest_catalog import S3Warehouse
from tierberg.stack.waiting import wait_for

_JDK_MIN = 21
_S3 = "nessie.catalog.service.s3.default-options"
_KEYS = "stack-keys"


class NessieServer:
    """One catalog on loopback; what it holds ends with it."""

    def __init__(self, folder: Path, warehouse: S3Warehouse) -> None:
        """Nothing is written or started yet.

        Raises:
            StackError: there is no JDK 21 or newer, or the server's jar cannot be fetched.
        """
        self.port, self._management_port = free_ports(2)
        self._warehouse = warehouse
        self._config = folder / "config" / "application.properties"
        argv = [str(java(_JDK_MIN)), "-Xmx512m", "-jar", str(nessie_jar())]
        # The server reads config/application.properties of the folder it runs in.
        self.process = ServerProcess("nessie", argv, folder / "nessie.log", cwd=folder)

    @property
    def uri(self) -> str:
        """What clients are given."""
        return f"http://{LOOPBACK}:{self.port}/iceberg/"

    def client_properties(self) -> dict[str, str]:
        """What PyIceberg is given to use it."""
        return {"type": "rest", "uri": self.uri, **self._warehouse.client_properties()}

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within NESSIE_START_S.
        """
        self._config.parent.mkdir(parents=True, exist_ok=True)
        # In a file: other users of the machine can read command lines.
        self._config.touch(mode=0o600)
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        self.process.start()
        wait_for("Nessie to answer", self._answers, NESSIE_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def _settings(self) -> dict[str, str]:
        return {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self.port),
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(self._management_port),
            "quarkus.otel.sdk.disabled": "true",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": self._warehouse.uri,
            f"{_S3}.endpoint": self._warehouse.endpoint,
            f"{_S3}.region": self._warehouse.region,
            f"{_S3}.path-style-access": "true",
            # Clients sign with keys of their own.
            f"{_S3}.request-signing-enabled": "false",
            f"{_S3}.access-key": f"urn:nessie-secret:quarkus:{_KEYS}",
            f"{_KEYS}.name": self._warehouse.access_key,
            f"{_KEYS}.secret": self._warehouse.secret_key,
        }

    def _answers(self) -> bool:
        self.process.require_alive()
        try:
            with urlopen(f"{self.uri}v1/config", timeout=SCRAPE_S) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
