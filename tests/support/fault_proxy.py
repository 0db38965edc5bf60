"""An HTTP proxy before a REST catalog or an S3 server that loses requests and replies, repeats, answers, and is slow.

Commits (POST to a table) meet faults in the order they were given, one each. Everything else, and commits after the
last fault, meets the weather, which is fair unless a test says otherwise.
"""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from tests.support.http_loop import AnyMethod, served
from tests.support.token_gate import TokenGate

#: Longer than any client of a test waits.
_HANG_S = 60.0
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding"})
_NOT_PASSED_ON = _HOP_BY_HOP | {"date", "server"}
_Reply = tuple[int, list[tuple[str, str]], bytes]


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


@dataclass(slots=True)
class Weather:
    """What every request meets, until it is changed; shares are of 1.

    Attributes:
        latency_s: added to each request, before the server has it.
        refused: share that is answered `refusal` in the server's place.
        lost: share that the server does and the client is told 503 for.
        cut: share that the server does and whose connection then ends.
        posts_repeated: the server gets each POST twice; the client sees the second answer.
        refusal: a status; its answer has no body.
    """

    latency_s: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    cut: float = 0.0
    posts_repeated: bool = False
    refusal: int = 503


@dataclass(frozen=True, slots=True)
class _Message:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(slots=True)
class FaultProxy:
    """`commits` counts those clients sent, `hit` names the faults that were used, `met` counts what the weather did.

    `edit` makes the body that a client gets of method, path and the body of an answer with status 200.
    """

    upstream_port: int
    faults: deque[Fault] = field(default_factory=deque)
    weather: Weather = field(default_factory=Weather)
    commits: int = 0
    hit: list[str] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    port: int = 0
    gate: TokenGate | None = None
    edit: Callable[[str, str, bytes], bytes] | None = None
    _draw: random.Random = field(default_factory=lambda: random.Random(7))
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

    def next_weather(self, message: _Message) -> Fault:
        """What the weather makes of a request."""
        weather = self.weather
        delivered = 2 if weather.posts_repeated and message.method == "POST" else 1
        shares = (weather.refused, weather.lost, weather.cut)
        ways = (
            Fault("refused", 0, weather.refusal),
            Fault("lost", delivered, 503),
            Fault("cut", delivered, "drop"),
            Fault("repeated" if delivered == 2 else "passed", delivered, "reply"),
        )
        with self._lock:
            (fault,) = self._draw.choices(ways, (*shares, 1 - sum(shares)))
            self.met[fault.name] += 1
        return fault

    def _forward(self, message: _Message) -> _Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=60)
        try:
            # Headers stay as they are, Host above all: S3 clients have signed them.
            connection.putrequest(message.method, message.path, skip_host=True, skip_accept_encoding=True)
            for name, value in message.headers:
                connection.putheader(name, value)
            connection.endheaders(message.body or None)
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), reply.read()
        finally:
            connection.close()


class _Handler(AnyMethod):
    proxy: FaultProxy

    def serve(self) -> None:
        headers = [(name, value) for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP]
        body = self.body()
        if "Content-Length" not in self.headers and body:  # it came in chunks, and goes on whole
            headers.append(("Content-Length", str(len(body))))
        message = _Message(self.command, self.path, headers, body)
        proxy = self.proxy
        if (gate := proxy.gate) is not None:
            authorization = self.headers.get("Authorization")
            if self.path == gate.path:
                answered, token = gate.exchange(authorization, message.body)
                self.answer(answered, [("Content-Type", "application/json")], token)
                return
            if not gate.admits(authorization):
                self.answer(401, [], gate.refusal(authorization))
                return
        # A fault is for the commit it meets, the weather for all the others.
        fault = proxy.next_fault(message) or proxy.next_weather(message)
        proxy._ended.wait(proxy.weather.latency_s)
        try:
            replies = [proxy._forward(message) for _ in range(fault.delivered)]
        except (OSError, http.client.HTTPException):  # the server is away, and then so are we
            self.hang_up()
            return
        if fault.answer == "reply":
            status, given, body = replies[-1]
            if proxy.edit is not None and status == 200 and self.command != "HEAD":
                body = proxy.edit(self.command, self.path, body)
            dropped = _NOT_PASSED_ON if self.command == "HEAD" else _NOT_PASSED_ON | {"content-length"}
            self.answer(status, [header for header in given if header[0].lower() not in dropped], body)
        elif isinstance(fault.answer, int):
            self.answer(fault.answer, [], b"")
        else:
            if fault.answer == "hang":
                proxy._ended.wait(_HANG_S)
            self.hang_up()


@contextmanager
def fault_proxy(upstream_port: int) -> Iterator[FaultProxy]:
    """A proxy on a free port of loopback, before a server on `upstream_port`."""
    proxy = FaultProxy(upstream_port)
    with served(type("Handler", (_Handler,), {"proxy": proxy})) as port:
        proxy.port = port
        try:
            yield proxy
        finally:
            proxy._ended.set()


#: Every way a commit and its reply can part: DESIGN's lost replies, each with the request landed or not.
LANDED = tuple(Fault(f"landed-{answer}", 1, answer) for answer in ("drop", "hang", 500, 502, 503, 504))
NOT_LANDED = tuple(Fault(f"lost-{answer}", 0, answer) for answer in ("drop", "hang", 500, 502, 503, 504))
#: The first of two lands, the client is shown the second's refusal.
REPEATED = Fault("repeated", 2, "reply")
#: Kept by the network, and delivered when the client has given up.
LATE = Fault("late", 0, "hang", held=True)
