"""Which texts surely become a leaf's type without loss, for kernels: others go to the slow decoder.

What passes here converts exactly by Arrow's own casts, so that one odd text never fails a whole array.
"""

from __future__ import annotations

from converter.kernel import i64, u64
from converter.types import UInt8Array
from converter.values import json_nodes as nodes
from converter.values.json_kernel import borrowing

_INTEGER = nodes.INTEGER
_DECIMAL = nodes.DECIMAL
_NUMBER = nodes.NUMBER
_WHOLE_DOUBLE_MAX = nodes.WHOLE_DOUBLE_MAX
#: Digits a 64-bit integer always holds, and with which a double's magnitude stays far from its limits.
_SAFE_DIGITS = 18
_SAFE_NUMBER_BYTES = 40


@borrowing
def _magnitude(data: UInt8Array, p: int, end: int) -> int:
    """The digits of a whole number of at most 19 digits, its sign left out."""
    value = u64(0)
    for k in range(p, end):
        if data[k] != 0x2D:
            value = value * u64(10) + u64(data[k] - 0x30)
    return value


@borrowing
def number_fits(data: UInt8Array, p: int, end: int, kind: int, whole: int, exponent: int) -> bool:
    """Whether the number [p, end), scanned by scan_number, is exact (INTEGER, DECIMAL) or what NUMBER allows."""
    if kind == _INTEGER:
        if exponent >= 0 or whole > _SAFE_DIGITS + 1:
            return False
        if whole <= _SAFE_DIGITS:
            return True
        return _magnitude(data, p, end) <= u64(0x7FFFFFFFFFFFFFFF) + u64(data[p] == 0x2D)
    if kind == _DECIMAL:
        return exponent < 0 and whole <= 38
    if kind != _NUMBER:
        return False
    if exponent >= 0:
        return exponent <= 2 and end - p <= _SAFE_NUMBER_BYTES
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
    """Whether [p, end) is an RFC 3339 date-time in capitals, to the microsecond at most, no leap second."""
    if end - p < 20 or not date_fits(data, p, p + 10) or data[p + 10] != 0x54:
        return False
    if data[p + 13] != 0x3A or data[p + 16] != 0x3A:
        return False
    if _two(data, p + 11) > 23 or _two(data, p + 14) > 59 or _two(data, p + 17) > 59:
        return False
    p += 19
    if data[p] == 0x2E:
        first = p + 1
        p = first
        while p < end and 0x30 <= data[p] <= 0x39:
            p += 1
        if p in (first, end) or p - first > 6:
            return False
    if data[p] == 0x5A:
        return p + 1 == end
    if end - p != 6 or (data[p] != 0x2B and data[p] != 0x2D) or data[p + 3] != 0x3A:
        return False
    return _two(data, p + 1) <= 23 and _two(data, p + 4) <= 59
