"""Texts as JSON, for kernels. Each function writes into out[q:end] and gives the place behind, or BAD: no room.

`0 <= q <= end <= len(out)`; what is read lies in `texts[p:stop]`, which the caller has checked. What a writer escapes
is a table (`escape_table`): for each byte its class, then the byte behind its backslash, then the hexadecimal digits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from converter.kernels.kernel import borrowing, i64, u8, u64
from converter.types import UInt8Array
from converter.values.json.scan import BACKSLASH, BAD, QUOTE, first_marked, word_at
from converter.values.json.style import Style

#: Classes of bytes: as it is; a backslash and one byte; a number; more bytes of a character that is a number; the first
#: byte of U+2028 and U+2029, which are numbers.
_PLAIN: Final = 0
_SHORT: Final = 1
_NUMBER: Final = 2
_WIDE: Final = 3
_LINES: Final = 4
_SHORTS: Final = 256
_HEX: Final = 512
#: Whether ASCII has no other escapes than JSON demands: then eight bytes are looked at at once.
_USUAL: Final = 528
_TABLE_BYTES: Final = 529
_ONES: Final = 0x0101010101010101
_HIGHS: Final = 0x8080808080808080
_QUOTES: Final = 0x2222222222222222
_BACKSLASHES: Final = 0x5C5C5C5C5C5C5C5C
_SPACES: Final = 0x2020202020202020
_LETTERS: Final = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}


def escape_table(style: Style) -> UInt8Array:
    """How strings are written in this style."""
    table = np.zeros(_TABLE_BYTES, dtype=np.uint8)
    table[:0x20] = _NUMBER
    table[0x80:256] = _WIDE if style.ascii else _PLAIN
    if style.lines and not style.ascii:
        table[0xE2] = _LINES
    forms = {char: f"\\{letter}" for char, letter in _LETTERS.items()} | dict(style.escapes)
    for char, form in forms.items():
        table[ord(char)] = _PLAIN if form == char else _NUMBER if form == "\\u" else _SHORT
        table[_SHORTS + ord(char)] = ord(form[-1])
    table[_HEX : _HEX + 16] = np.frombuffer(b"0123456789ABCDEF" if style.upper else b"0123456789abcdef", dtype=np.uint8)
    printable = table[0x20:0x80].copy()
    printable[[QUOTE - 0x20, BACKSLASH - 0x20]] = _PLAIN
    table[_USUAL] = bool(table[:0x20].all() and table[QUOTE] and table[BACKSLASH]) and not (
        printable.any() or style.lines
    )
    return table


@borrowing
def write_bytes(out: UInt8Array, q: int, end: int, data: UInt8Array, p: int, stop: int) -> int:
    """data[p:stop] as it is."""
    size = stop - p
    if size > end - q:
        return BAD
    for k in range(size):
        out[q + k] = data[p + k]
    return q + size


@borrowing
def _plain_run(texts: UInt8Array, p: int, stop: int, table: UInt8Array) -> int:
    """Past the bytes that are written as they are."""
    if table[_USUAL]:
        wide = u64(0) - u64(table[0x80] != 0)
        while stop - p >= 8:
            word = word_at(texts, p)
            quotes = word ^ u64(_QUOTES)
            slashes = word ^ u64(_BACKSLASHES)
            hits = (quotes - u64(_ONES)) & ~quotes
            hits |= (slashes - u64(_ONES)) & ~slashes
            hits |= (word - u64(_SPACES)) & ~word
            hits |= word & wide
            hits &= u64(_HIGHS)
            if hits:
                return p + first_marked(hits)
            p += 8
    while p < stop and table[texts[p]] == _PLAIN:
        p += 1
    return p


@borrowing
def write_string(out: UInt8Array, q: int, end: int, texts: UInt8Array, p: int, stop: int, table: UInt8Array) -> int:
    """texts[p:stop], UTF-8, as a string with its quotes."""
    # Each byte becomes one at least.
    if end - q < 2 or end - q - 2 < stop - p:
        return BAD
    out[q] = u8(QUOTE)
    q += 1
    while True:
        run = _plain_run(texts, p, stop, table)
        q = write_bytes(out, q, end, texts, p, run)
        if q < 0:
            return BAD
        p = run
        if p >= stop:
            break
        q, p = _write_escape(out, q, end, texts, p, stop, table)
        if q < 0:
            return BAD
    if q >= end:
        return BAD
    out[q] = u8(QUOTE)
    return q + 1


@borrowing
def _write_escape(
    out: UInt8Array, q: int, end: int, texts: UInt8Array, p: int, stop: int, table: UInt8Array
) -> tuple[int, int]:
    """The character at p, which is not plain; (place behind or BAD, place of the next character)."""
    first = texts[p]
    form = table[first]
    if form == _SHORT:
        if end - q < 2:
            return BAD, p
        out[q] = u8(BACKSLASH)
        out[q + 1] = table[_SHORTS + i64(first)]
        return q + 2, p + 1
    if form == _NUMBER:
        return _write_unit(out, q, end, i64(first), table), p + 1
    if form == _LINES:
        lines = stop - p >= 3 and texts[p + 1] == 0x80 and (texts[p + 2] == 0xA8 or texts[p + 2] == 0xA9)
        if lines:
            return _write_unit(out, q, end, 0x2000 + (i64(texts[p + 2]) & 0x3F), table), p + 3
        if q >= end:
            return BAD, p
        out[q] = first
        return q + 1, p + 1
    size = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2
    if first < 0xC0 or stop - p < size:
        return BAD, p
    point = i64(first) & (0xFF >> (size + 1))
    for k in range(1, size):
        point = (point << 6) | (i64(texts[p + k]) & 0x3F)
    if point >= 0x10000:
        point -= 0x10000
        q = _write_unit(out, q, end, 0xD800 | (point >> 10), table)
        if q < 0:
            return BAD, p
        point = 0xDC00 | (point & 0x3FF)
    return _write_unit(out, q, end, point, table), p + size


@borrowing
def _write_unit(out: UInt8Array, q: int, end: int, unit: int, table: UInt8Array) -> int:
    r"""A unit of UTF-16 as \uXXXX."""
    if end - q < 6:
        return BAD
    out[q] = u8(BACKSLASH)
    out[q + 1] = u8(0x75)
    for k in range(4):
        out[q + 2 + k] = table[_HEX + ((unit >> (12 - 4 * k)) & 15)]
    return q + 6


@borrowing
def write_members(
    out: UInt8Array, q: int, end: int, texts: UInt8Array, p: int, stop: int, literals: UInt8Array, at: int, size: int
) -> int:
    """The members of texts[p:stop], a JSON object with bare commas; literals[at:at + size] is the one written."""
    if stop - p < 3 or texts[p] != 0x7B or texts[stop - 1] != 0x7D:
        return BAD
    p += 1
    stop -= 1
    if size == 1:
        return write_bytes(out, q, end, texts, p, stop)
    depth = 0
    quoted = False
    while p < stop:
        c = texts[p]
        if c == 0x2C and depth == 0 and not quoted:
            q = write_bytes(out, q, end, literals, at, at + size)
            if q < 0:
                return BAD
            p += 1
            continue
        if q >= end:
            return BAD
        out[q] = c
        q += 1
        p += 1
        if quoted and c == BACKSLASH and p < stop:
            if q >= end:
                return BAD
            out[q] = texts[p]
            q += 1
            p += 1
        elif c == QUOTE:
            quoted = not quoted
        elif not quoted:
            depth += i64(c == 0x7B) + i64(c == 0x5B) - i64(c == 0x7D) - i64(c == 0x5D)
    return q
