"""Records as producers make them, and the digest by which ledger, consumers, table and log are compared.

A digest is MD5 over key, value and headers, each with its length before it (int32, -1 for null): `ChaosClient.java` has
the same. Null headers and no headers are one and the same, as in Kafka.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]

_INT = struct.Struct(">i")
_NULL = _INT.pack(-1)
_NAMES = ("a", "", "trace-id", "größe", "键", "a")
_ODD_TIMESTAMPS = (1, 999, 4_102_444_800_123, 253_402_300_799_999, 2**53 + 1, 2**62)


@dataclass(frozen=True, slots=True)
class Content:
    """One record; the timestamp is what the producer asks for, in milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def digest(self) -> bytes:
        return digest(self.key, self.value, self.headers)


def digest(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """16 bytes that stand for key, value and headers."""
    parts = [_sized(key), _sized(value), _INT.pack(len(headers))]
    for name, held in headers:
        parts += (_sized(name.encode()), _sized(held))
    return hashlib.md5(b"".join(parts), usedforsecurity=False).digest()


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else _INT.pack(len(data)) + data


class Contents:
    """Draws records of all shapes; nearly all carry a number of their own, so that no two are equal."""

    def __init__(self, draw: random.Random, writer: int) -> None:
        self._draw = draw
        self._writer = writer
        self._number = 0

    def some(self, count: int, now_ms: int, *, odd: bool, text: bool) -> list[Content]:
        """Records for one topic: `odd` ones have any timestamp, `text` ones are nearly all valid UTF-8."""
        return [self._one(now_ms, odd=odd, text=text) for _ in range(count)]

    def _one(self, now_ms: int, *, odd: bool, text: bool) -> Content:
        draw = self._draw
        self._number += 1
        mark = b"%d.%d." % (self._writer, self._number)
        shape = draw.random()
        key = None if draw.random() < 0.2 else mark + draw.randbytes(draw.randrange(8))
        value = None if shape < 0.06 else b"" if shape < 0.08 else self._value(mark, text=text)
        headers = self._headers(mark) if draw.random() < 0.25 else ()
        if key is None and not value and not headers and draw.random() < 0.9:
            headers = (("n", mark),)
        when = now_ms
        if odd and draw.random() < 0.3:
            when = draw.choice(_ODD_TIMESTAMPS) if draw.random() < 0.2 else draw.randrange(1, 4_000_000_000_000)
        return Content(key, value, headers, when)

    def _value(self, mark: bytes, *, text: bool) -> bytes:
        draw = self._draw
        large = draw.random() < 0.003
        size = draw.randrange(30_000, 120_000) if large else draw.randrange(1, 600)
        if text:
            body = ("naïve ☃ text " * (size // 12 + 1)).encode()
            return mark + body if draw.random() < 0.95 else mark + b"\xff\xfe" + body
        return mark + (draw.randbytes(size) if draw.random() < 0.5 else b"abcdefgh" * (size // 8 + 1))

    def _headers(self, mark: bytes) -> Headers:
        draw = self._draw
        held = (None, b"", mark, draw.randbytes(draw.randrange(40)))
        return tuple((draw.choice(_NAMES), draw.choice(held)) for _ in range(draw.randrange(1, 5)))
