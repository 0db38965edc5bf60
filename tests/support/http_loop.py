"""What the HTTP servers of tests share: a loop on a free port of loopback, and a handler for all methods."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AnyMethod(BaseHTTPRequestHandler):
    """Calls `serve` for every request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second would wait for an acknowledgement

    def serve(self) -> None:
        """To be written by the server at hand."""
        raise AssertionError(self.path)

    def body(self) -> bytes:
        """What came with the request, out of its chunks if it came in such."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            """Trailers are left out."""
        return b"".join(parts)

    def answer(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Sends an answer; a `Content-Length` among the headers wins, as HEAD needs it."""
        given = list(headers)
        with suppress(OSError):  # a client that has given up
            self.send_response(status)
            for name, value in given:
                self.send_header(name, value)
            if status >= 200 and status != 204 and not any(name.lower() == "content-length" for name, _ in given):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def hang_up(self) -> None:
        """Closes the connection without a word."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    # Names that http.server calls.
    def do_GET(self) -> None:
        self.serve()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def served(handler: type[AnyMethod]) -> Iterator[int]:
    """A server on a thread, one more for each connection; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True  # clients keep connections open
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
