"""An HTTP server on loopback whose answers the test decides, and which notes what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.http_loop import AnyMethod, served

#: What stores say of an object.
_STORED = [("ETag", '"1"'), ("x-goog-generation", "17"), ("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")]

Answer = tuple[int, dict[str, Any] | bytes]


@dataclass(frozen=True, slots=True)
class Request:
    """What came in; `path` with its query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class AnsweringServer:
    """`answers` maps a request to status and body; None is silence until the server ends."""

    def __init__(self) -> None:
        self.answers: Callable[[Request], Answer | None] = lambda _: (200, {})
        self.seen: list[Request] = []
        self.ended = threading.Event()
        self.uri = ""


@contextmanager
def answering() -> Iterator[AnsweringServer]:
    server = AnsweringServer()

    class Handler(AnyMethod):
        protocol_version = "HTTP/1.0"  # a connection for each request: none is left when the test ends

        def serve(self) -> None:
            request = Request(self.command, self.path, dict(self.headers), self.body())
            server.seen.append(request)
            answer = server.answers(request)
            if answer is None:
                server.ended.wait(60)
                return
            data = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
            self.answer(answer[0], _STORED, data)

    with served(Handler) as port:
        server.uri = f"http://127.0.0.1:{port}"
        try:
            yield server
        finally:
            server.ended.set()
