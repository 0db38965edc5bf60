"""The slow server delays requests, and nothing else about them."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.slow_server import SlowServer


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowServer]:
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    upstream.daemon_threads = True
    thread = threading.Thread(target=upstream.serve_forever, args=(0.05,))
    thread.start()
    proxy = SlowServer(tmp_path / "proxy", upstream.server_address[1])
    proxy.start()
    yield proxy
    proxy.stop()
    upstream.shutdown()
    thread.join()
    upstream.server_close()


def test_each_request_of_a_connection_waits_once(slow: SlowServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", slow.port, timeout=20)
    body = bytes(range(256)) * 8192  # many reads of the proxy: only the first of them waits

    def seconds() -> float:
        started = time.monotonic()
        connection.request("PUT", "/", body)
        assert connection.getresponse().read() == body
        return time.monotonic() - started

    try:
        seconds()
        slow.set_delay(0.3)
        assert [0.3 <= seconds() < 1.5 for _ in range(3)] == [True] * 3
        slow.set_delay(0)
        assert min(seconds() for _ in range(3)) < 0.3
    finally:
        connection.close()
