"""A schema registry in the test's hands: schemas it has, and how it fails; over `answering_server`."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.answering_server import Answer, Request


@dataclass
class Schemas:
    """What is registered: `by_id` and `versions` hold bodies of answers; `fail` answers instead of them.

    delay: seconds that an answer takes.
    """

    by_id: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    fail: Callable[[Request], Answer | None] | None = None
    delay: float = 0.0

    def add(self, number: int, subject: str, body: dict[str, Any], version: int = 1) -> None:
        """Registers a schema, as the latest of its subject."""
        self.by_id[number] = body
        found = {"subject": subject, "version": version, "id": number, **body}
        self.versions[subject, str(version)] = self.versions[subject, "latest"] = found

    def answer(self, request: Request) -> Answer | None:
        time.sleep(self.delay)
        if self.fail is not None:
            return self.fail(request)
        words = [unquote(word) for word in urlsplit(request.path).path.strip("/").split("/")]
        if words[:2] == ["schemas", "ids"]:
            found = self.by_id.get(int(words[2]))
            return (200, found) if found is not None else none(40403, "Schema")
        if words[0] == "subjects" and words[2:3] == ["versions"]:
            found = self.versions.get((words[1], words[3]))
            return (200, found) if found is not None else none(40401, "Subject")
        return 404, b"<html>no such page</html>"


def none(code: int, what: str) -> Answer:
    return 404, {"error_code": code, "message": f"{what} not found."}


@contextmanager
def talking(parts: Callable[[], Iterator[bytes]], pause: float) -> Iterator[str]:
    """A server that reads nothing and says the parts with a pause after each, to every client; its address."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def talk(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            for part in parts():
                connection.sendall(part)
                if ended.wait(pause):
                    return

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=talk, args=(connection,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (accepting, *threads):
            thread.join(10)
