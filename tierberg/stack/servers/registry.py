"""Apicurio as a local process: a schema registry that speaks Confluent's API; its schemas in memory."""

from __future__ import annotations

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tierberg.stack.jars import registry_server
from tierberg.stack.jdk import java
from tierberg.stack.limits import REGISTRY_START_S, SCRAPE_S
from tierberg.stack.ports import LOOPBACK, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.registry_files import SERVER
from tierberg.stack.waiting import wait_for

_JDK_MIN = 21


class RegistryServer:
    """One registry on loopback, for everybody without a password; what it holds ends with its process."""

    def __init__(self, folder: Path) -> None:
        """Nothing is written or started yet.

        Raises:
            StackError: there is no Java 21 or newer, or the server cannot be fetched.
        """
        self.port, self._management_port = free_ports(2)
        self._config = folder / "config" / "application.properties"
        runtime, server = java(_JDK_MIN, plain=True), registry_server() / SERVER
        argv = [str(runtime), "-Xmx384m", "-XX:TieredStopAtLevel=1", "-jar", str(server)]
        # The server reads config/application.properties of the folder it runs in.
        self.process = ServerProcess("registry", argv, folder / "registry.log", cwd=folder)

    @property
    def url(self) -> str:
        """What clients of Confluent's registry are given; no slash at its end."""
        return f"http://{LOOPBACK}:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within REGISTRY_START_S.
        """
        self._config.parent.mkdir(parents=True, exist_ok=True)
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        self.process.start()
        wait_for("the schema registry to answer", self._answers, REGISTRY_START_S)

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
            # One line per request otherwise, twice.
            "quarkus.log.level": "WARN",
        }

    def _answers(self) -> bool:
        self.process.require_alive()
        try:
            with urlopen(f"{self.url}/subjects", timeout=SCRAPE_S) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
