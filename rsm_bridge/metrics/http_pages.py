"""The HTTP pages of a bridge or job: `/metrics` (Prometheus) and probes. Threads of their own, not the event loop.

200 or, for a probe that fails, 503 with one sentence. Anything else is 404.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from rsm_bridge.config.listening import cannot_listen
from rsm_bridge.config.settings import parse_listen
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import PROBE_SECONDS


class ProbeRemark(str):
    """What a probe that succeeds has to say all the same."""

    __slots__ = ()


#: None, or one sentence that says what is wrong; a ProbeRemark: nothing is that matters here.
Probe = Callable[[], str | None]
Page = tuple[int, str, bytes]
_TEXT = "text/plain; charset=utf-8"


class MetricsPage:
    """A listening server; :meth:`close` ends it and its thread.

    Attributes:
        address: `host:port`, with the real port.
    """

    def __init__(self, registry: CollectorRegistry, probes: Mapping[str, Probe], setting: str, listen: str) -> None:
        """Listens and serves at once.

        Args:
            registry: what `/metrics` shows.
            probes: by the path of their page.
            setting: that names the address, for the message.
            listen: `host:port`; port 0 takes a free one.

        Raises:
            SettingsError: the address cannot be used.
        """
        target = parse_listen(listen)
        if not isinstance(target, tuple):
            raise SettingsError(f"{setting}: {listen} is not host:port")
        pages: dict[str, Callable[[str], Page]] = {"/metrics": lambda accept: _metrics(registry, accept)}
        pages |= {path: partial(_probe, probe) for path, probe in probes.items()}
        try:
            self._server = _Server(target, _handler(pages))
        except OSError as error:
            raise cannot_listen(setting, listen, target, error) from error
        host = target[0]
        port = int(self._server.server_address[1])
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)


def _handler(pages: dict[str, Callable[[str], Page]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # A client that connects and says nothing does not hold a thread for ever.
        timeout = 5 * PROBE_SECONDS

        def do_GET(self) -> None:
            """Answers one request."""
            page = pages.get(self.path.partition("?")[0])
            status, kind, body = (404, _TEXT, b"not found\n") if page is None else page(self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not worth a line."""

    return Handler


def _metrics(registry: CollectorRegistry, accept: str) -> Page:
    encode, kind = choose_encoder(accept)
    return 200, kind, encode(registry)


def _probe(probe: Probe, _accept: str) -> Page:
    wrong = probe()
    if wrong is None:
        return 200, _TEXT, b"ok\n"
    if isinstance(wrong, ProbeRemark):
        return 200, _TEXT, f"ok; {wrong}\n".encode()
    return 503, _TEXT, f"{wrong}\n".encode()
