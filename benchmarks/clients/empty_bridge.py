"""A server that answers a delete at once and does nothing: what gRPC and the event loop cost by themselves.

Settings: target (where it listens). Serves from its ready line on, until it is ended.
"""

from __future__ import annotations

import asyncio
import threading

import grpc
from grpc import aio

from benchmarks.clients.protocol import serve, text
from benchmarks.limits import CLIENT_READY_S
from rsm_bridge.serving.grpc_server import OPTIONS, register


async def _answer(_: bytes, __: aio.ServicerContext[bytes, bytes]) -> bytes:
    return b""


async def _serve(target: str, ready: threading.Event) -> None:
    server = aio.server(options=OPTIONS)
    register(server, {"DeleteSegment": grpc.unary_unary_rpc_method_handler(_answer)})
    server.add_insecure_port(target)
    await server.start()
    ready.set()
    await server.wait_for_termination()


def _prepare(settings: dict[str, object]) -> threading.Event:
    ready = threading.Event()
    threading.Thread(target=lambda: asyncio.run(_serve(text(settings, "target"), ready)), daemon=True).start()
    if not ready.wait(CLIENT_READY_S):
        raise TimeoutError("the empty server does not listen")
    return ready


if __name__ == "__main__":
    serve(_prepare, lambda _: {})
