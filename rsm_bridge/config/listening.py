"""Why an address of the settings cannot be listened on, and what to do about it."""

from __future__ import annotations

import errno
import socket

from rsm_bridge.errors import SettingsError

_WHY = {
    errno.EADDRINUSE: "another process uses this port; stop it, or choose another port",
    errno.EADDRNOTAVAIL: "no interface of this machine has this address; choose another one",
    errno.EACCES: "this user may not use this port; choose one from 1024 on",
}


def cannot_listen(key: str, name: str, address: tuple[str, int] | None, error: Exception) -> SettingsError:
    """The error to raise.

    Args:
        key: of the settings.
        name: the address as people know it.
        address: host and port; None for a unix socket.
        error: what the server raised. gRPC's says no cause, so the address is tried once more without it.
    """
    found = error if isinstance(error, OSError) or address is None else _tried(*address)
    said = None if found is None else _WHY.get(getattr(found, "errno", None) or 0)
    # gRPC ends with a word to those who build it.
    plain = str(found or error).partition("; set GRPC_")[0]
    return SettingsError(f"{key}: cannot listen on {name}: {said or plain}")


def _tried(host: str, port: int) -> OSError | None:
    """What keeps a socket from the address; None: nothing, now."""
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(place)
    except OSError as error:
        return error
    return None
