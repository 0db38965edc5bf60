"""The schema registry over TLS: which authority, and with our certificate where it wants one."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from benchmarks.certificates import Certificates, make_certificates
from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.values.registry.errors import RegistryUnavailableError
from rsm_bridge.values.registry.registry import SchemaRegistry


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"schema": '"long"'}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class QuietServer(HTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A refused handshake is what some tests are about."""


@pytest.fixture(scope="module")
def port(ours: Certificates) -> Iterator[int]:
    """A registry that wants our authority's certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ours.bridge.certificate, ours.bridge.key)
    context.load_verify_locations(ours.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    server = QuietServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join(10)
    server.server_close()


def registry(port: int, tls: dict[str, Path]) -> SchemaRegistry:
    settings = {"url": f"https://127.0.0.1:{port}", "request_timeout": "10s", "tls": tls}
    return SchemaRegistry(SchemaRegistrySettings.model_validate(settings))


def test_our_certificate_is_shown_and_theirs_checked(port: int, ours: Certificates) -> None:
    own = {"certificate_file": ours.broker.certificate, "key_file": ours.broker.key}
    opened = registry(port, {"ca_file": ours.authority, **own})
    assert opened.by_id(1).text == '"long"'
    opened.close()


@pytest.mark.parametrize("missing", ["ca_file", "certificate_file"])
def test_without_either_there_is_no_answer(port: int, ours: Certificates, missing: str) -> None:
    own = {"ca_file": ours.authority, "certificate_file": ours.broker.certificate, "key_file": ours.broker.key}
    given = {
        name: path
        for name, path in own.items()
        if name != missing and (missing, name) != ("certificate_file", "key_file")
    }
    opened = registry(port, given)
    with pytest.raises(RegistryUnavailableError, match="does not answer"):
        opened.by_id(1)
    opened.close()
