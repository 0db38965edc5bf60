"""Free ports on the loopback interface."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports nobody listens on now.

    All are held open until the last is found, so they differ. Another process may still take one before it is used:
    a server that fails to bind says so at start.
    """
    sockets = [socket.socket() for _ in range(count)]
    try:
        for held in sockets:
            held.bind((LOOPBACK, 0))
        return [held.getsockname()[1] for held in sockets]
    finally:
        for held in sockets:
            held.close()


def accepts(port: int, timeout_s: float = 0.5) -> bool:
    """Whether something accepts TCP connections on a loopback port within `timeout_s` seconds."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False
