"""An HTTP server on loopback whose answers the test decides, and which notes what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = Request(self.command, self.path, dict(self.headers), body)
                outer.seen.append(request)
                answer = outer.answers(request)
                if answer is None:
                    outer.ended.wait(15)
                    return
                data = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(data)))
                self.send_header("ETag", '"1"')
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            # Names that http.server calls.
            do_GET = answer  # noqa: N815
            do_HEAD = answer  # noqa: N815
            do_POST = answer  # noqa: N815
            do_PUT = answer  # noqa: N815
            do_DELETE = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.http.server_address[1]}"


@contextmanager
def answering() -> Iterator[AnsweringServer]:
    server = AnsweringServer()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.http.shutdown()
        thread.join(10)
        server.http.server_close()
