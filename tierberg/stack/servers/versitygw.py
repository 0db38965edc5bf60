"""An S3 server with real conditional writes, from the Go module registry, built once into `build/`.

Versity's gateway keeps objects as files under a folder. It decides racing compare-and-swaps in one step, which the
in-process test server does not.
"""

from __future__ import annotations

from pathlib import Path

from tierberg.stack.command import run_to_end
from tierberg.stack.go_program import GoProgram
from tierberg.stack.limits import GATEWAY_START_S, S3_REQUEST_S
from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

VERSION = "v1.8.0"
_PROGRAM = GoProgram("github.com/versity/versitygw/cmd/versitygw", VERSION)


def can_be_had() -> bool:
    """Whether the binary is there, or Go, which builds it."""
    return _PROGRAM.can_be_had()


def binary() -> Path:
    """The server's program. The first call builds it: minutes.

    Raises:
        StackError: Go is not there, or the build failed.
    """
    return _PROGRAM.path()


class VersityGateway:
    """One S3 server on loopback; buckets are folders under `folder`/buckets.

    Attributes:
        access_key: of its first user.
        secret_key: likewise.
    """

    access_key = "stack"
    secret_key = "stack-secret"  # noqa: S105 - of a server that only this machine reaches

    def __init__(self, folder: Path) -> None:
        """Nothing is written or started yet."""
        (self.port,) = free_ports(1)
        self._folder = folder
        argv = [str(binary()), "--port", f"{LOOPBACK}:{self.port}", "--quiet"]
        # A user that has been removed is refused from the next request on.
        argv += ["--iam-dir", str(folder / "users"), "--iam-cache-disable"]
        argv += ["--access", self.access_key, "--secret", self.secret_key, "posix"]
        # Not every temporary folder has the extended attributes that the server would use.
        argv += ["--sidecar", str(folder / "attributes"), str(folder / "buckets")]
        self.process = ServerProcess("versitygw", argv, folder / "versitygw.log", cwd=folder)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within GATEWAY_START_S.
        """
        for name in ("buckets", "attributes", "users"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        self.process.start()
        wait_for("the S3 server to answer", self._answers, GATEWAY_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def add_user(self, access_key: str, secret_key: str) -> None:
        """One more user, who may do everything with every bucket.

        Raises:
            StackError: the server refuses, or is not there.
        """
        self._administer("create-user", "--access", access_key, "--secret", secret_key, "--role", "admin")

    def remove_user(self, access_key: str) -> None:
        """Ends a user: its keys are refused from now on.

        Raises:
            StackError: the server refuses, or is not there.
        """
        self._administer("delete-user", "--access", access_key)

    def _administer(self, *arguments: str) -> None:
        keys = {"ADMIN_ACCESS_KEY": self.access_key, "ADMIN_SECRET_KEY": self.secret_key}
        argv = [str(binary()), "admin", "--endpoint-url", self.endpoint, *arguments]
        run_to_end(f"do {arguments[0]}", argv, seconds=S3_REQUEST_S, env=keys)

    def _answers(self) -> bool:
        self.process.require_alive()
        return accepts(self.port)
