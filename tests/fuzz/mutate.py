"""Bends bytes and JSON documents: the mutations that every format has in common."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

#: Integers at the edges of what length and count fields can hold.
EDGES = (
    0, 1, 2, 7, 60, 61, 62, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**20, 2**24, 2**30, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -127, -128, -(2**15), -(2**31), -(2**63),
)  # fmt: skip

#: Texts that parsers trip over.
TEXTS = (
    "", " ", "a", "\0", "\ud800", "é" * 3, "x" * 300, "x" * 7000, "../..", "a/b", "_kafka_value", "null", "1e999",
    "NaN", "-0", "ß", "K", "İ", "a.b.c", "😀", "\ufeff", "record", "2024-99-99",
)  # fmt: skip


def number(rng: random.Random, bits: int) -> int:
    """An integer that fits into `bits` signed bits, an edge more often than not."""
    value = rng.choice(EDGES) + rng.choice((0, 0, 0, 1, -1)) if rng.random() < 0.7 else rng.getrandbits(bits)
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def varint(value: int) -> bytes:
    """An unsigned base-128 varint of the value's low 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> bytes:
    """A zigzag varint."""
    return varint(((value << 1) ^ (value >> 63)) & (2**64 - 1))


def _flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _drop(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 1, 2, 4, 8, 64))]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 8, 64)))


def _double(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.choice((1, 4, 16, 100))]
    at = rng.randint(0, len(data))
    data[at:at] = piece


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _word(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((2, 4, 8))
    at = rng.randrange(len(data))
    word = (number(rng, 8 * size) & ((1 << 8 * size) - 1)).to_bytes(size, rng.choice(("big", "little")))
    data[at : at + size] = word[: max(0, len(data) - at)]


def _variable(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    end = at
    while end < len(data) and data[end] >= 0x80 and end - at < 9:
        end += 1
    data[at : end + 1] = rng.choice((varint, zigzag))(number(rng, 64))


_MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _flip, _set, _drop, _insert, _double, _cut, _word, _word, _variable, _variable,
)  # fmt: skip


def bent(data: bytes, rng: random.Random, times: int | None = None) -> bytes:
    """The bytes with one to four mutations, or `times`."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4)) if times is None else times):
        if not out:
            return rng.randbytes(rng.randrange(8))
        rng.choice(_MUTATIONS)(out, rng)
    return bytes(out)


def spliced(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """The front of one input with the end of another."""
    if not corpus:
        return data
    other = rng.choice(corpus)
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def any_json(rng: random.Random, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = rng.randrange(9 if depth else 6)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice((number(rng, 64), 10**40, -(10**400)))
    if kind == 3:
        return rng.choice((0.5, -0.0, 1e308, float("nan"), float("inf")))
    if kind in (4, 5):
        return rng.choice(TEXTS)
    if kind == 6:
        return [any_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS): any_json(rng, depth - 1) for _ in range(rng.randrange(4))}


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        for key in keys:
            found.append((item, key))
            waiting.append(item[key])
    return found


def bent_json(document: Any, rng: random.Random) -> Any:
    """The document (which may change) with a value, key or member bent; some of them nested deeply."""
    times = rng.choice((1, 1, 2, 4))
    for time in range(times):
        places = _places(document)
        if not places:
            return any_json(rng)
        holder, key = rng.choice(places)
        action = rng.randrange(7)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = holder.pop(key)
        elif action == 2:
            other, name = rng.choice(places)
            if isinstance(other, dict) and name not in other:
                continue
            holder[key] = (
                json.loads(json.dumps(other[name])) if not isinstance(name, int) or name < len(other) else None
            )
        elif action == 3:
            # Last of all where it is deep: json writes no deeper than Python calls.
            depth = rng.choice((2, 60, 200, 3000) if time == times - 1 else (2, 60))
            holder[key] = nested(holder[key], depth) if depth < 1000 else json.loads("[" * 400 + "]" * 400)
        elif action == 4 and isinstance(holder, list):
            # Within each other they would multiply.
            holder.extend([holder[key]] * (rng.choice((1, 3, 300)) if len(places) < 1000 else 1))
        else:
            holder[key] = any_json(rng)
    return document


def nested(value: Any, depth: int) -> Any:
    """The value within so many lists, or objects."""
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def written(document: Any, rng: random.Random) -> bytes:
    """JSON text, at times with an escape or a lone surrogate as it is, rarely bent as bytes."""
    try:
        text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    except RecursionError:  # what was bent before may be bent again
        text = "[" * 5_000
    data = text.encode("utf-8", "surrogatepass" if rng.random() < 0.5 else "replace")
    return bent(data, rng) if rng.random() < 0.2 else data
