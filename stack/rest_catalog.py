"""Iceberg's reference REST catalog as a local process, on a SQLite file."""

from __future__ import annotations

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from stack.jars import rest_catalog_jars
from stack.limits import REST_CATALOG_START_S, SCRAPE_S
from stack.ports import LOOPBACK, free_ports
from stack.process import ServerProcess
from stack.waiting import wait_for

_PROGRAM = Path(__file__).with_name("IcebergRest.java")


class RestCatalogServer:
    """One catalog on loopback, its tables' metadata under `folder`/warehouse. Can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        """Nothing is written or started yet."""
        (self.port,) = free_ports(1)
        self._folder = folder.resolve()
        argv = ["java", "-Xmx256m", "-cp", f"{rest_catalog_jars()}/*", str(_PROGRAM), str(self.port), str(self._folder)]
        self.process = ServerProcess("catalog", argv, folder / "catalog.log", cwd=folder)

    @property
    def uri(self) -> str:
        """What clients are given."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within REST_CATALOG_START_S.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.process.start()
        wait_for("the REST catalog to answer", self._answers, REST_CATALOG_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def _answers(self) -> bool:
        self.process.require_alive()
        try:
            with urlopen(f"{self.uri}/v1/config", timeout=SCRAPE_S) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
