"""The S3 server of the stack, as the tests' S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.s3_server import S3Server
from tierberg.stack.servers.versitygw import VersityGateway


@contextmanager
def gateway_server(folder: Path) -> Iterator[S3Server]:
    """A real one, in a process of its own; the first use builds it."""
    server = VersityGateway(folder)
    try:
        server.start()
        yield S3Server(server.endpoint, server.access_key, server.secret_key)
    finally:
        server.stop()
