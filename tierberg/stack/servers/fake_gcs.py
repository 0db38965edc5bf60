"""An emulator of Google Cloud Storage as a local process, from the Go module registry, built once into `build/`.

It speaks Google's JSON interface, with conditions on generations, and of the XML interface what reads. Objects are in
memory and end with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from tierberg.stack.errors import StackError
from tierberg.stack.go_program import GoProgram
from tierberg.stack.limits import EMULATOR_START_S, S3_REQUEST_S
from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

PROGRAM = GoProgram("github.com/fsouza/fake-gcs-server", "v1.56.1")
#: A day after which nobody runs these tests: the client wants to know when its token ends.
_TOKEN_ENDS_MS = 4_102_444_800_000


class FakeGcs:
    """One server on loopback. It looks at no credentials."""

    def __init__(self, folder: Path) -> None:
        """Nothing is written or started yet."""
        (self.port,) = free_ports(1)
        address = f"{LOOPBACK}:{self.port}"
        argv = [str(PROGRAM.path()), "-scheme", "http", "-host", LOOPBACK, "-port", str(self.port)]
        argv += ["-backend", "memory", "-public-host", address, "-external-url", self.endpoint, "-log-level", "warn"]
        self.process = ServerProcess("fake-gcs-server", argv, folder / "gcs.log", cwd=folder)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within EMULATOR_START_S.
        """
        self.process.cwd.mkdir(parents=True, exist_ok=True)
        self.process.start()
        wait_for("the emulator of Google's store to answer", self._answers, EMULATOR_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def make_bucket(self, name: str) -> None:
        """An empty bucket.

        Raises:
            StackError: the server refuses.
        """
        body = json.dumps({"name": name}).encode()
        request = Request(
            f"{self.endpoint}/storage/v1/b?project=stack", body, {"Content-Type": "application/json"}, method="POST"
        )
        try:
            urlopen(request, timeout=S3_REQUEST_S).close()
        except URLError as error:
            raise StackError(f"cannot make the bucket {name}: {error}") from error

    def catalog_properties(self) -> dict[str, str]:
        """What PyIceberg is given to read and write table metadata here."""
        return {
            "gcs.service.host": self.endpoint,
            "gcs.oauth2.token": "nobody-looks-at-it",
            "gcs.oauth2.token-expires-at": str(_TOKEN_ENDS_MS),
        }

    def _answers(self) -> bool:
        self.process.require_alive()
        return accepts(self.port)
