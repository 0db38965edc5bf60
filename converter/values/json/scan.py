"""JSON's tokens, for kernels (RFC 8259, strict). Each function gets `p < end <= len(data)` and reads only [p, end).

What is not certainly a good token is -1 (BAD): the slow decoder says then what it is. Bytes beyond ASCII are not looked
at: the caller has checked that each value is UTF-8.

Which texts surely become a leaf's type without loss, for kernels: others go to the slow decoder.

What passes here converts exactly by Arrow's own casts, so that one odd text never fails a whole array.
"""

from __future__ import annotations

from typing import Final

from converter.kernels.kernel import borrowing, i64, u8, u64
from converter.types import UInt8Array
from converter.values.json import nodes

BAD: Final = -1
QUOTE: Final = 0x22
BACKSLASH: Final = 0x5C
_ONES: Final = 0x0101010101010101
_HIGHS: Final = 0x8080808080808080
_QUOTES: Final = 0x2222222222222222
_BACKSLASHES: Final = 0x5C5C5C5C5C5C5C5C
_SPACES: Final = 0x2020202020202020


@borrowing
def word_at(data: UInt8Array, p: int) -> int:
    """Eight bytes from p, little-endian. Unsigned places, which cannot count from the end, become one load."""
    q = u64(p)
    return (
        u64(data[q])
        | (u64(data[q + u64(1)]) << u64(8))
        | (u64(data[q + u64(2)]) << u64(16))
        | (u64(data[q + u64(3)]) << u64(24))
        | (u64(data[q + u64(4)]) << u64(32))
        | (u64(data[q + u64(5)]) << u64(40))
        | (u64(data[q + u64(6)]) << u64(48))
        | (u64(data[q + u64(7)]) << u64(56))
    )


@borrowing
def first_marked(marks: int) -> int:
    """Which byte of a word is the first with its highest bit set; one has."""
    at = 0
    if marks & u64(0x80808080) == 0:
        at = 4
        marks >>= u64(32)
    if marks & u64(0x8080) == 0:
        at += 2
        marks >>= u64(16)
    return at + (marks & u64(0x80) == 0)


@borrowing
def skip_space(data: UInt8Array, p: int, end: int) -> int:
    """Past JSON's white space."""
    while p < end and (data[p] == 0x20 or data[p] == 0x0A or data[p] == 0x0D or data[p] == 0x09):
        p += 1
    return p


@borrowing
def _plain_run(data: UInt8Array, p: int, end: int) -> int:
    """Past the bytes that are plain in a string, eight at a time; of the last seven none or all."""
    while end - p >= 8:
        word = word_at(data, p)
        quotes = word ^ u64(_QUOTES)
        slashes = word ^ u64(_BACKSLASHES)
        # A high bit is set where a byte is a quote, a backslash or below 0x20. Bytes above 0x7F may hide nothing: they
        # are masked out by ~word. A borrow sets bits only above a true hit.
        hits = (quotes - u64(_ONES)) & ~quotes
        hits |= (slashes - u64(_ONES)) & ~slashes
        hits |= (word - u64(_SPACES)) & ~word
        hits &= u64(_HIGHS)
        if hits:
            return p + first_marked(hits)
        p += 8
    return p


@borrowing
def _hex4(data: UInt8Array, p: int, end: int) -> int:
    """Four hexadecimal digits, or BAD."""
    if end - p < 4:
        return BAD
    value = 0
    for k in range(p, p + 4):
        c = i64(data[k])
        if 0x30 <= c <= 0x39:
            digit = c - 0x30
        elif 0x41 <= (c & ~0x20) <= 0x46:
            digit = (c & ~0x20) - 0x41 + 10
        else:
            return BAD
        value = value * 16 + digit
    return value


@borrowing
def code_point(  # noqa: C901  (one table of escapes)
    data: UInt8Array, p: int, end: int
) -> tuple[int, int]:
    """The code point of the escape whose backslash is at p, and the place behind it; (BAD, BAD) where it is none.

    A surrogate counts only as a pair, high then low.
    """
    if end - p < 2:
        return BAD, BAD
    c = data[p + 1]
    if c in (QUOTE, BACKSLASH, 0x2F):
        return i64(c), p + 2
    if c == 0x6E:
        return 10, p + 2
    if c == 0x74:
        return 9, p + 2
    if c == 0x72:
        return 13, p + 2
    if c == 0x62:
        return 8, p + 2
    if c == 0x66:
        return 12, p + 2
    if c != 0x75:
        return BAD, BAD
    point = _hex4(data, p + 2, end)
    if point < 0 or 0xDC00 <= point <= 0xDFFF:
        return BAD, BAD
    if point < 0xD800 or point > 0xDFFF:
        return point, p + 6
    if end - p < 12 or data[p + 6] != BACKSLASH or data[p + 7] != 0x75:
        return BAD, BAD
    low = _hex4(data, p + 8, end)
    if low < 0xDC00 or low > 0xDFFF:
        return BAD, BAD
    return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00), p + 12


@borrowing
def scan_string(data: UInt8Array, p: int, end: int) -> tuple[int, bool]:
    """The place behind the closing quote of the string whose first byte inside is at p, and whether it has escapes."""
    escaped = False
    while True:
        p = _plain_run(data, p, end)
        if p >= end:
            return BAD, escaped
        c = data[p]
        if c == QUOTE:
            return p + 1, escaped
        if c < 0x20:
            return BAD, escaped
        if c == BACKSLASH:
            escaped = True
            _, p = code_point(data, p, end)
            if p < 0:
                return BAD, escaped
        else:
            p += 1


@borrowing
def unescape(data: UInt8Array, p: int, end: int, out: UInt8Array, at: int) -> int:
    """Writes what a string's bytes [p, end) mean to out from `at`; the place behind. It is never longer than they are.

    The escapes must have passed scan_string.
    """
    while p < end:
        c = data[p]
        if c != BACKSLASH:
            out[at] = c
            at += 1
            p += 1
            continue
        point, p = code_point(data, p, end)
        if point < 0x80:
            out[at] = u8(point)
            at += 1
        elif point < 0x800:
            out[at] = u8(0xC0 | (point >> 6))
            out[at + 1] = u8(0x80 | (point & 0x3F))
            at += 2
        elif point < 0x10000:
            out[at] = u8(0xE0 | (point >> 12))
            out[at + 1] = u8(0x80 | ((point >> 6) & 0x3F))
            out[at + 2] = u8(0x80 | (point & 0x3F))
            at += 3
        else:
            out[at] = u8(0xF0 | (point >> 18))
            out[at + 1] = u8(0x80 | ((point >> 12) & 0x3F))
            out[at + 2] = u8(0x80 | ((point >> 6) & 0x3F))
            out[at + 3] = u8(0x80 | (point & 0x3F))
            at += 4
    return at


@borrowing
def _digits(data: UInt8Array, p: int, end: int) -> int:
    """Past decimal digits."""
    while p < end and 0x30 <= data[p] <= 0x39:
        p += 1
    return p


@borrowing
def scan_number(data: UInt8Array, p: int, end: int) -> tuple[int, int, int]:
    """The place behind the number at p; its digits before point and exponent; the digits of its exponent.

    Without fraction and exponent it is whole: then the last is -1. A fraction without exponent: 0. No number: BAD.
    """
    if data[p] == 0x2D:
        p += 1
    first = p
    p = _digits(data, p, end)
    whole = p - first
    if whole == 0 or (whole > 1 and data[first] == 0x30):
        return BAD, 0, 0
    exponent = -1
    if p < end and data[p] == 0x2E:
        first = p + 1
        p = _digits(data, first, end)
        if p == first:
            return BAD, 0, 0
        exponent = 0
    if p < end and (data[p] | 0x20) == 0x65:
        p += 1
        if p < end and (data[p] == 0x2B or data[p] == 0x2D):
            p += 1
        first = p
        p = _digits(data, first, end)
        exponent = p - first
        if exponent == 0:
            return BAD, 0, 0
    return p, whole, exponent


@borrowing
def scan_literal(data: UInt8Array, p: int, end: int) -> int:
    """The place behind true, false or null at p, or BAD."""
    if end - p < 4:
        return BAD
    word = u64(data[p]) << u64(24) | u64(data[p + 1]) << u64(16) | u64(data[p + 2]) << u64(8) | u64(data[p + 3])
    if word == u64(0x74727565) or word == u64(0x6E756C6C):
        return p + 4
    if word == u64(0x66616C73) and end - p >= 5 and data[p + 4] == 0x65:
        return p + 5
    return BAD


_INTEGER = nodes.INTEGER
_DECIMAL = nodes.DECIMAL
_NUMBER = nodes.NUMBER
_WHOLE_DOUBLE_MAX = nodes.WHOLE_DOUBLE_MAX
#: Digits a 64-bit integer always holds, and with which a double's magnitude stays far from its limits.
_SAFE_DIGITS = 18
_SAFE_NUMBER_BYTES = 40
_SAFE_EXPONENT = 260
#: With which, and so many digits before, a decimal of 38 digits holds all that lies between point and exponent.
_SAFE_SHIFT = 18


@borrowing
def _magnitude(data: UInt8Array, p: int, end: int) -> int:
    """The digits of a whole number of at most 19 digits, its sign left out."""
    value = u64(0)
    for k in range(p, end):
        if data[k] != 0x2D:
            value = value * u64(10) + u64(data[k] - 0x30)
    return value


@borrowing
def _exponent(data: UInt8Array, end: int, digits: int) -> int:
    """The exponent of a number that ends with these digits of it, 0 for none; without its sign."""
    value = 0
    for k in range(end - digits, end):
        value = value * 10 + i64(data[k]) - 0x30
    return value


@borrowing
def _is_whole(data: UInt8Array, p: int, end: int, exponent: int) -> bool:
    """Whether a number with a fraction or an exponent of at most two digits is an integer of at most 18."""
    value, shift, digits, point = i64(0), 0, 0, 0
    while p < end and data[p] | 0x20 != 0x65:
        if data[p] == 0x2E:
            point = 1
        elif data[p] != 0x2D:
            value = value * 10 + i64(data[p]) - 0x30
            digits += 1
            shift -= point
            if digits > _SAFE_DIGITS:
                return False
        p += 1
    power = _exponent(data, end, exponent)
    if power > _SAFE_SHIFT:
        return False
    shift += -power if p < end and data[p + 1] == 0x2D else power
    while shift < 0 and value % 10 == 0:
        value //= 10
        shift += 1
        if value == 0:
            return True
    while shift > 0 and value <= 10**17:
        value *= 10
        shift -= 1
    return shift == 0 and value <= 10**18


@borrowing
def number_fits(data: UInt8Array, p: int, end: int, kind: int, whole: int, exponent: int) -> bool:
    """Whether the number [p, end), scanned by scan_number, is exact (INTEGER, DECIMAL) or what NUMBER allows."""
    if kind == _INTEGER:
        if exponent >= 0:
            return exponent <= 2 and _is_whole(data, p, end, exponent)
        if whole > _SAFE_DIGITS + 1:
            return False
        if whole <= _SAFE_DIGITS:
            return True
        return _magnitude(data, p, end) <= u64(0x7FFFFFFFFFFFFFFF) + u64(data[p] == 0x2D)
    if kind == _DECIMAL:
        return whole <= 38 if exponent < 0 else exponent <= 2 and _is_whole(data, p, end, exponent)
    if kind != _NUMBER:
        return False
    if exponent >= 0:
        return exponent <= 3 and _exponent(data, end, exponent) <= _SAFE_EXPONENT and end - p <= _SAFE_NUMBER_BYTES
    return whole < 16 or (whole <= _SAFE_DIGITS and _magnitude(data, p, end) <= u64(_WHOLE_DOUBLE_MAX))


@borrowing
def _two(data: UInt8Array, p: int) -> int:
    """Two digits, or a number too large for any clock."""
    a = i64(data[p]) - 0x30
    b = i64(data[p + 1]) - 0x30
    if a < 0 or a > 9 or b < 0 or b > 9:
        return 1000
    return a * 10 + b


@borrowing
def date_fits(data: UInt8Array, p: int, end: int) -> bool:
    """Whether [p, end) is YYYY-MM-DD of the years 0002 to 9998: of those, every time zone's instants are in range."""
    if end - p != 10 or data[p + 4] != 0x2D or data[p + 7] != 0x2D:
        return False
    century, year, month, day = _two(data, p), _two(data, p + 2), _two(data, p + 5), _two(data, p + 8)
    if century > 99 or year > 99 or month < 1 or month > 12 or day < 1:
        return False
    year += century * 100
    if year < 2 or year > 9998:
        return False
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return day <= (29 if leap else 28)
    return day <= (30 if month == 4 or month == 6 or month == 9 or month == 11 else 31)


@borrowing
def datetime_fits(data: UInt8Array, p: int, end: int) -> bool:
    """Whether [p, end) is an RFC 3339 date-time, not finer than a microsecond, no leap second."""
    if end - p < 20 or not date_fits(data, p, p + 10) or (data[p + 10] | 0x20 != 0x74 and data[p + 10] != 0x20):
        return False
    if data[p + 13] != 0x3A or data[p + 16] != 0x3A:
        return False
    if _two(data, p + 11) > 23 or _two(data, p + 14) > 59 or _two(data, p + 17) > 59:
        return False
    p += 19
    if data[p] == 0x2E:
        first = p + 1
        p = first
        while p < end and 0x30 <= data[p] <= (0x39 if p - first < 6 else 0x30):
            p += 1
        if p in (first, end):
            return False
    if data[p] | 0x20 == 0x7A:
        return p + 1 == end
    if end - p != 6 or (data[p] != 0x2B and data[p] != 0x2D) or data[p + 3] != 0x3A:
        return False
    return _two(data, p + 1) <= 23 and _two(data, p + 4) <= 59
