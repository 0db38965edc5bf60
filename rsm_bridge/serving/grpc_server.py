"""The gRPC server: where it listens, with what security and limits, and how it stops."""

from __future__ import annotations

import socket
import stat
from pathlib import Path
from typing import Any

import grpc
import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from rsm_bridge.config.listening import cannot_listen
from rsm_bridge.config.settings import Settings, parse_listen
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import KIB, MESSAGE_BYTES_MAX, MIB, STOP_GRACE_SECONDS, STREAMS_PER_CONNECTION_MAX
from rsm_bridge.serving.handlers import SERVICE, Handlers
from rsm_bridge.serving.tls import Certificates
from rsm_bridge.storage.writes import HEALTH_SERVICE, WHY_TRAILER, StoreWrites

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", 2 * MIB),
    ("grpc.max_metadata_size", 16 * KIB),
    # Two bridges on one port would each get half of the calls, and tests would talk to the wrong one.
    ("grpc.so_reuseport", 0),
    # Clients that know it (SETTINGS) queue what is beyond; what one sends before it knows is refused (REFUSED_STREAM).
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
    # Windows do not grow with the measured bandwidth: memory per copy is bounded.
    ("grpc.http2.bdp_probe", 0),
    # What a copy that waits for a worker may fill; 2 MiB gave no more throughput and 90 MiB more under 30 copies.
    ("grpc.http2.lookahead_bytes", 256 * KIB),
    ("grpc.http2.max_frame_size", MIB),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Shims ping while a copy waits.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


def register(server: aio.Server, methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]]) -> None:
    """Adds the methods of our service.

    Registered by name, as generated code does it: gRPC finds the method by itself, which saves a tenth of a delete.
    """
    server.add_registered_method_handlers(SERVICE, methods)  # type: ignore[attr-defined]  # the stubs lack it


class Server:
    """One listening server.

    Attributes:
        address: what it listens on, with the real port.
    """

    def __init__(self, settings: Settings, handlers: Handlers, log: structlog.typing.FilteringBoundLogger) -> None:
        self._settings = settings
        self._log = log
        self._server = aio.server(options=OPTIONS)
        register(self._server, handlers.methods())
        self._health = _Health(handlers.writes)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = settings.listen

    async def start(self) -> str:
        """Listens, then reports healthy; returns the address.

        Raises:
            SettingsError: the address cannot be used.
        """
        target = parse_listen(self._settings.listen)
        if isinstance(target, Path):
            target = target.resolve()
            _remove_dead_socket(target)
        name = f"unix:{target}" if isinstance(target, Path) else _host_port(*target)
        try:
            port = self._bind(name)
        except RuntimeError as error:
            address = None if isinstance(target, Path) else target
            raise cannot_listen("listen", name, address, error) from error
        if isinstance(target, Path):
            target.chmod(0o660)
            self.address = name
        else:
            self.address = _host_port(target[0], port)
        await self._server.start()
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return self.address

    def _bind(self, name: str) -> int:
        if self._settings.tls is None:
            return int(self._server.add_insecure_port(name))
        credentials: grpc.ServerCredentials = Certificates(self._settings.tls, self._log).credentials()
        return int(self._server.add_secure_port(name, credentials))

    async def stop(self) -> None:
        """Reports unhealthy, lets running calls end within the grace time, then cancels them."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(STOP_GRACE_SECONDS)


class _Health(HealthServicer):  # type: ignore[misc]  # its package has no types
    """The health service, which is also asked whether the store takes copies."""

    def __init__(self, writes: StoreWrites) -> None:
        super().__init__()
        self._writes = writes

    async def Check(  # noqa: N802 - gRPC's name
        self, request: health_pb2.HealthCheckRequest, context: aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """See grpc.health.v1; with why in the trailer where the store takes no copies."""
        if request.service != HEALTH_SERVICE:
            return await super().Check(request, context)
        why = self._writes.refusal()
        if why is None:
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        context.set_trailing_metadata(((WHY_TRAILER, why.encode()),))
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


def _remove_dead_socket(path: Path) -> None:
    """Removes what a killed server has left.

    Raises:
        SettingsError: a server listens there, or it is no socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SettingsError(f"listen: {path} is there already and is no socket; give another path")
    with socket.socket(socket.AF_UNIX) as asked:
        asked.setblocking(False)  # of a socket of this machine that knows at once
        try:
            asked.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:  # a server that is busy is one
            raise SettingsError(f"listen: {path} cannot be taken: {error.strerror or error}") from error
    raise SettingsError(f"listen: another process listens on {path}")


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
