"""A Fetch client that gives the bytes of batches as the broker sent them: Kafka's protocol, Fetch version 11."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from tests.chaos.limits import FETCH_BYTES, SOCKET_S
from tests.chaos.record_batches import Batch, batches

_FETCH, _VERSION = 1, 11
_WAIT_MS = 2000


class FetchError(Exception):
    """The broker answered with an error code."""

    def __init__(self, code: int, offset: int) -> None:
        super().__init__(f"fetch at {offset}: error {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Fetched:
    """One answer for one partition."""

    high_watermark: int
    stable_end: int
    start: int
    data: bytes


class RawFetch:
    """A connection to one broker; use as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=SOCKET_S)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fetch(self, topic: str, partition: int, offset: int, size: int = FETCH_BYTES) -> Fetched:
        """Batches from the one on that holds `offset`; the last may be cut off.

        Raises:
            FetchError: the broker refuses.
            OSError: the connection ended.
        """
        name = topic.encode()
        body = struct.pack(">iiiibii", -1, _WAIT_MS, 1, size, 0, 0, -1)
        body += struct.pack(">ih", 1, len(name)) + name
        body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, size)
        body += struct.pack(">ih", 0, 0)
        answer = self._ask(body)
        _, code, _, topics = struct.unpack_from(">ihii", answer)
        if code or topics != 1:
            raise FetchError(code, offset)
        at = 14
        (length,) = struct.unpack_from(">h", answer, at)
        at += 2 + length + 4
        _, code, high, stable, start, aborted = struct.unpack_from(">ihqqqi", answer, at)
        at += 34 + 16 * max(aborted, 0)
        if code:
            raise FetchError(code, offset)
        _, size = struct.unpack_from(">ii", answer, at)
        at += 8
        return Fetched(high, stable, start, answer[at : at + max(size, 0)])

    def all(self, topic: str, partition: int, start: int, end: int) -> Iterator[Batch]:
        """The batches that hold [start, end), one fetch after another.

        Raises:
            FetchError: as :meth:`fetch`, or an answer brings nothing new many times over.
        """
        offset, idle = start, 0
        while offset < end:
            got = list(batches(self.fetch(topic, partition, offset).data))
            fresh = [batch for batch in got if batch.last >= offset]
            idle = 0 if fresh else idle + 1
            if idle > 30:
                raise FetchError(0, offset)
            for batch in fresh:
                # An earlier start is allowed, a gap is for the caller to see.
                yield batch
                offset = max(offset, batch.last + 1)

    def _ask(self, body: bytes) -> bytes:
        self._number += 1
        client = b"chaos"
        head = struct.pack(">hhih", _FETCH, _VERSION, self._number, len(client)) + client
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        return answer[4:]

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)
