"""PostgreSQL as a local process on loopback: the database of an Iceberg catalog that several bridges share."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import tempfile
from pathlib import Path

from tierberg.stack.command import run_to_end
from tierberg.stack.errors import StackError
from tierberg.stack.limits import POSTGRES_INIT_S, POSTGRES_START_S
from tierberg.stack.ports import LOOPBACK, accepts, free_ports
from tierberg.stack.process import ServerProcess
from tierberg.stack.waiting import wait_for

#: Where distributions keep the server's programs, which are not on every PATH.
_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
#: The server refuses to run as root: then it runs as the first of these users that there is.
_USERS = ("postgres", "nobody")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        candidates = [path for pattern in _FOLDERS for path in Path("/").glob(f"{pattern[1:]}/{name}")]
        if not candidates:
            raise StackError(f"PostgreSQL's program {name} is needed: install the PostgreSQL server, or put it on PATH")
        found = str(max(candidates))
    return found


class PostgresServer:
    """One server with one database. Can be killed and started again on the same data.

    Attributes:
        user: of the database, its owner.
        password: asked for on every connection.
    """

    user = "tierberg"
    password = "stack-password"  # noqa: S105 - of a server that only this machine reaches

    def __init__(self, folder: Path) -> None:
        """Makes the database's files; starts nothing.

        Raises:
            StackError: PostgreSQL is not installed, or refuses.
        """
        (self.port,) = free_ports(1)
        server, self._initdb = _program("postgres"), _program("initdb")
        folder.mkdir(parents=True, exist_ok=True)
        self._as_user: list[str] = []
        self._files = folder
        if os.geteuid() == 0:
            # Test folders of root are closed to everybody else.
            self._files = Path(tempfile.mkdtemp(prefix="stack-postgres-"))
            self._become_somebody()
        self._data = self._files / "data"
        self._init()
        argv = [*self._as_user, server, "-D", str(self._data), "-p", str(self.port)]
        argv += ["-c", f"listen_addresses={LOOPBACK}", "-c", "unix_socket_directories=", "-c", "fsync=off"]
        # SIGINT: to end without waiting for clients to leave.
        self.process = ServerProcess(
            "postgres", argv, folder / "postgres.log", cwd=self._data, stop_signal=signal.SIGINT
        )

    def uri(self, driver: str = "pg8000") -> str:
        """What SQLAlchemy is given."""
        return f"postgresql+{driver}://{self.user}:{self.password}@{LOOPBACK}:{self.port}/postgres"

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            StackError: it ended, or did not answer within POSTGRES_START_S.
        """
        self.process.start()
        wait_for("PostgreSQL to answer", self._answers, POSTGRES_START_S)

    def stop(self) -> None:
        """Stop in order; kill when that takes too long."""
        self.process.stop()

    def remove(self) -> None:
        """Stop, and delete its files."""
        self.stop()
        shutil.rmtree(self._files, ignore_errors=True)

    def _become_somebody(self) -> None:
        for name in _USERS:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            os.chown(self._files, entry.pw_uid, entry.pw_gid)
            self._as_user = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
            return
        raise StackError(f"PostgreSQL does not run as root, and none of the users {', '.join(_USERS)} is there")

    def _init(self) -> None:
        # In a file: other users of the machine can read command lines.
        password = self._files / "password"
        password.touch(mode=0o600)
        password.write_text(f"{self.password}\n")
        shutil.chown(password, self._files.stat().st_uid)
        argv = [*self._as_user, self._initdb, "-D", str(self._data), "-U", self.user, "--no-sync"]
        argv += ["--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", f"--pwfile={password}"]
        run_to_end("make a PostgreSQL database", argv, seconds=POSTGRES_INIT_S, cwd=self._files)

    def _answers(self) -> bool:
        self.process.require_alive()
        # It listens only once it has recovered.
        return "ready to accept connections" in self.process.output() and accepts(self.port)
