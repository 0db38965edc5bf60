"""An HTTP proxy before a REST catalog that loses requests, loses replies, repeats commits or answers in its place.

Only commits (POST to a table) meet faults; everything else passes. Faults are taken in the order they were given, one
for each commit; after the last one commits pass too.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

#: Longer than any client of a test waits.
_HANG_S = 60.0
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "accept-encoding"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one commit.

    Attributes:
        name: for test ids.
        delivered: how often the catalog gets the request.
        answer: what the client gets: the last true reply, a status with an empty body, a closed connection, or nothing
            until it gives up.
        held: the request is kept, to be delivered by `deliver_held`.
    """

    name: str
    delivered: int
    answer: int | Literal["reply", "drop", "hang"]
    held: bool = False


class TokenGate:
    """Lets nobody pass without a token of its own, which ends after `seconds`.

    Attributes:
        given: tokens handed out.
        refused: requests turned away.
    """

    path = "/tokens"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[str, float] = {}
        self.given = 0
        self.refused = 0

    def token(self) -> bytes:
        """The answer to a client that asks for one."""
        self.given += 1
        name = f"token-{self.given}"
        self._until[f"Bearer {name}"] = time.monotonic() + self._seconds
        return json.dumps({"access_token": name, "token_type": "bearer", "expires_in": self._seconds}).encode()

    def admits(self, authorization: str | None) -> bool:
        """Whether the header of a request carries a token that has not ended."""
        admitted = time.monotonic() < self._until.get(authorization or "", 0)
        self.refused += not admitted
        return admitted


@dataclass(frozen=True, slots=True)
class _Message:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class FaultProxy:
    """`commits` counts those clients sent, `hit` names the faults that were used, in order."""

    upstream_port: int
    faults: deque[Fault] = field(default_factory=deque)
    commits: int = 0
    hit: list[str] = field(default_factory=list)
    port: int = 0
    gate: TokenGate | None = None
    _held: list[_Message] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def deliver_held(self) -> list[int]:
        """Sends the requests that were held back; returns the catalog's statuses."""
        with self._lock:
            held, self._held = self._held, []
        return [self._forward(message)[0] for message in held]

    def next_fault(self, message: _Message) -> Fault | None:
        """The fault for this request, if it is a commit and one is left."""
        if message.method != "POST" or "/tables/" not in message.path:
            return None
        with self._lock:
            self.commits += 1
            if not self.faults:
                return None
            fault = self.faults.popleft()
            self.hit.append(fault.name)
            if fault.held:
                self._held.append(message)
            return fault

    def _forward(self, message: _Message) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=30)
        try:
            connection.request(message.method, message.path, message.body or None, message.headers)
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def _pass(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        message = _Message(self.command, self.path, headers, self.rfile.read(length))
        if (gate := self.proxy.gate) is not None:
            if self.path == gate.path:
                self._answer(200, [("Content-Type", "application/json")], gate.token())
                return
            if not gate.admits(self.headers.get("Authorization")):
                error = {"message": "token ended", "type": "NotAuthorizedException", "code": 401}
                self._answer(401, [], json.dumps({"error": error}).encode())
                return
        fault = self.proxy.next_fault(message)
        if fault is None:
            self._answer(*self.proxy._forward(message))
            return
        reply = None
        for _ in range(fault.delivered):
            reply = self.proxy._forward(message)
        if fault.answer == "reply" and reply is not None:
            self._answer(*reply)
        elif isinstance(fault.answer, int):
            self._answer(fault.answer, [], b"")
        else:
            if fault.answer == "hang":
                self.proxy._ended.wait(_HANG_S)
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        with suppress(OSError):  # a client that has given up
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _HOP_BY_HOP | {"date", "server"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    # Names that http.server calls.
    do_GET = _pass  # noqa: N815
    do_HEAD = _pass  # noqa: N815
    do_POST = _pass  # noqa: N815
    do_PUT = _pass  # noqa: N815
    do_DELETE = _pass  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def fault_proxy(upstream_port: int) -> Iterator[FaultProxy]:
    """A proxy on a free port of loopback, before a server on `upstream_port`."""
    proxy = FaultProxy(upstream_port)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy._ended.set()
        server.shutdown()
        thread.join(10)
        server.server_close()


#: Every way a commit and its reply can part: DESIGN's lost replies, each with the request landed or not.
LANDED = tuple(
    Fault(f"landed-{answer}", 1, answer)
    for answer in ("drop", "hang", 500, 502, 503, 504)  # type: ignore[arg-type]
)
NOT_LANDED = tuple(
    Fault(f"lost-{answer}", 0, answer)
    for answer in ("drop", "hang", 500, 502, 503, 504)  # type: ignore[arg-type]
)
#: The first of two lands, the client is shown the second's refusal.
REPEATED = Fault("repeated", 2, "reply")
#: Kept by the network, and delivered when the client has given up.
LATE = Fault("late", 0, "hang", held=True)
