"""Iceberg's reference REST catalog as a local process, on a SQLite file; its tables on files or in an S3 bucket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tierberg.stack.jars import rest_catalog_jars
from tierberg.stack.limits import REST_CATALOG_START_S, SCRAPE_S
from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

_PROGRAM = Path(__file__).with_name("IcebergRest.java")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Warehouse:
    """Where in S3 tables get their locations.

    Attributes:
        uri: `s3://bucket/prefix`.
        endpoint: URL of the server; buckets are the first part of the path.
        access_key: and `secret_key`, of its user.
        region: any word, but the same for all clients.
    """

    uri: str
    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    def client_properties(self) -> dict[str, str]:
        """What Iceberg's clients are given to reach it, by the names they share."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.path-style-access": "true",
        }


class RestCatalogServer:
    """One catalog on loopback. Can be killed and started again on the same data.

    Without a warehouse in S3 its tables lie in `folder`/warehouse.
    """

    def __init__(self, folder: Path, warehouse: S3Warehouse | None = None) -> None:
        """Nothing is written or started yet."""
        (self.port,) = free_ports(1)
        self._folder = folder.resolve()
        self._warehouse = warehouse
        self._properties = self._folder / "catalog.properties"
        argv = ["java", "-Xmx256m", "-cp", f"{rest_catalog_jars()}/*", str(_PROGRAM), str(self.port)]
        argv.append(str(self._properties))
        self.process = ServerProcess("catalog", argv, self._folder / "catalog.log", cwd=self._folder)

    @property
    def uri(self) -> str:
        """What clients are given."""
        return f"http://{LOOPBACK}:{self.port}"

    def client_properties(self) -> dict[str, str]:
        """What PyIceberg is given to use it."""
        s3 = {} if self._warehouse is None else self._warehouse.client_properties()
        return {"type": "rest", "uri": self.uri, **s3}

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within REST_CATALOG_START_S.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        # In a file: other users of the machine can read command lines.
        self._properties.touch(mode=0o600)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        self.process.start()
        wait_for("the REST catalog to answer", self._answers, REST_CATALOG_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def _settings(self) -> dict[str, str]:
        settings = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self._folder}/rest.db",
            "jdbc.schema-version": "V1",
            # One connection: SQLite refuses a second writer instead of waiting.
            "clients": "1",
        }
        if self._warehouse is None:
            io = {"warehouse": f"file://{self._folder}/warehouse", "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
            return settings | io
        return {
            **settings,
            "warehouse": self._warehouse.uri,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": self._warehouse.region,
            **self._warehouse.client_properties(),
        }

    def _answers(self) -> bool:
        self.process.require_alive()
        try:
            with urlopen(f"{self.uri}/v1/config", timeout=SCRAPE_S) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
