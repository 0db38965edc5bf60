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
