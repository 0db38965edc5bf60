"""Numbers, dates and times as JSON, for kernels.

Each function writes into out[q:end] and gives the place behind, or BAD: no room, or nothing JSON has a form for.
`0 <= q <= end <= len(out)`.
"""

from __future__ import annotations

from typing import Any, Final

from converter.kernels.kernel import borrowing, i64, u8, u64
from converter.types import UInt8Array
from converter.values.json.encode_compile import GROUPS, MICROS, SHORTEST
from converter.values.json.scan import BAD

_ZERO: Final = 0x30
_POINT: Final = 0x2E
_MINUS: Final = 0x2D
_PLUS: Final = 0x2B
_LETTER: Final = 0x65
_NO_EXPONENT: Final = 1_000_000
_DAY_US: Final = 86_400_000_000
#: Days from 0000-03-01 to 1970-01-01, in four hundred years, a hundred, four; the last two begin in March and lack the
#: leap day of the next larger span.
_EPOCH_DAYS: Final = 719_468
_DAYS_400: Final = 146_097
_DAYS_100: Final = 36_524
_DAYS_4: Final = 1_461
#: 0001-01-01 and 9999-12-31.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
#: Bytes of `digits` that write_double() needs.
DIGITS_MAX: Final = 32


@borrowing
def write_whole(out: UInt8Array, q: int, end: int, value: int) -> int:
    """A 64-bit integer."""
    rest = u64(value)
    if value < 0:
        rest = u64(0) - rest
        if q >= end:
            return BAD
        out[q] = u8(_MINUS)
        q += 1
    size = 1
    limit = u64(10)
    while size < 20 and rest >= limit:
        size += 1
        limit = limit * u64(10) if size < 20 else limit
    if end - q < size:
        return BAD
    for k in range(size - 1, -1, -1):
        quotient = rest // u64(10)
        out[q + k] = u8(_ZERO + i64(rest - quotient * u64(10)))
        rest = quotient
    return q + size


@borrowing
def _write_digits(out: UInt8Array, q: int, value: int, size: int) -> int:
    """The last `size` decimal digits; the caller has checked the room."""
    for k in range(size - 1, -1, -1):
        out[q + k] = u8(_ZERO + value % 10)
        value //= 10
    return q + size


@borrowing
def _read_exponent(texts: UInt8Array, p: int, stop: int) -> int:
    """The number behind a letter e, its sign included; beyond all exponents where it is none."""
    negative = p < stop and texts[p] == _MINUS
    p += i64(p < stop and (texts[p] == _MINUS or texts[p] == _PLUS))
    if stop - p > 4:
        return _NO_EXPONENT
    exponent = 0
    for k in range(p, stop):
        c = i64(texts[k]) - _ZERO
        if c < 0 or c > 9:
            return _NO_EXPONENT
        exponent = exponent * 10 + c
    return -exponent if negative else exponent


@borrowing
def _read_double(texts: UInt8Array, p: int, stop: int, digits: UInt8Array) -> tuple[int, int]:
    """The digits of a positive number in any form, and the power of ten of the first one; (BAD, 0) where it is none.

    `digits` gets them without zeros at either end; of zero, one.
    """
    count, power = 0, -1
    seen_point = False
    while p < stop and texts[p] != _LETTER:
        c = i64(texts[p])
        p += 1
        if c == _POINT and not seen_point:
            seen_point = True
            continue
        if c < _ZERO or c > _ZERO + 9 or count >= DIGITS_MAX:
            return BAD, 0
        if count > 0 or c != _ZERO:
            digits[count] = u8(c)
            count += 1
            power += i64(not seen_point)
        else:
            power -= i64(seen_point)
    if p < stop:
        exponent = _read_exponent(texts, p + 1, stop)
        if exponent == _NO_EXPONENT:
            return BAD, 0
        power += exponent
    while count > 1 and digits[count - 1] == _ZERO:
        count -= 1
    if count == 0:
        digits[0] = u8(_ZERO)
        return 1, 0
    return count, power


@borrowing
def write_double(
    out: UInt8Array, q: int, end: int, texts: UInt8Array, p: int, stop: int, digits: UInt8Array, form: Any
) -> int:
    """The number that texts[p:stop] is, in the NUMBER_DTYPE `form`; BAD for NaN and the infinities."""
    negative = p < stop and texts[p] == _MINUS
    count, power = _read_double(texts, p + i64(negative), stop, digits)
    if count < 0 or end - q < 1:
        return BAD
    if negative and (form["minus_zero"] or digits[0] != _ZERO):
        out[q] = u8(_MINUS)
        q += 1
    if form["low"] <= power < form["high"]:
        return _write_fixed(out, q, end, digits, count, power, form["point"] != 0)
    exponent_point = form["exponent_point"] != 0
    fraction = count > 1 or exponent_point
    size = count + i64(fraction) + i64(count == 1 and exponent_point)
    if end - q < size:
        return BAD
    out[q] = digits[0]
    q += 1
    if fraction:
        out[q] = u8(_POINT)
        q += 1
        for k in range(1, count):
            out[q] = digits[k]
            q += 1
        if count == 1:
            out[q] = u8(_ZERO)
            q += 1
    return _write_exponent(out, q, end, power, form)


@borrowing
def _write_fixed(out: UInt8Array, q: int, end: int, digits: UInt8Array, count: int, power: int, point: bool) -> int:
    """The number without exponent."""
    if power < 0:
        if end - q < 1 - power + count:
            return BAD
        out[q] = u8(_ZERO)
        out[q + 1] = u8(_POINT)
        q += 2
        for _ in range(-power - 1):
            out[q] = u8(_ZERO)
            q += 1
        for k in range(count):
            out[q + k] = digits[k]
        return q + count
    whole = power + 1
    size = whole + (count - whole + 1 if count > whole else 2 * i64(point))
    if end - q < size:
        return BAD
    for k in range(whole):
        out[q + k] = digits[k] if k < count else u8(_ZERO)
    q += whole
    if count > whole or point:
        out[q] = u8(_POINT)
        q += 1
        for k in range(whole, count):
            out[q] = digits[k]
            q += 1
        if count <= whole:
            out[q] = u8(_ZERO)
            q += 1
    return q


@borrowing
def _write_exponent(out: UInt8Array, q: int, end: int, power: int, form: Any) -> int:
    """Letter, sign, digits."""
    signed = power < 0 or form["plus"] != 0
    magnitude = -power if power < 0 else power
    width = 1 + i64(magnitude >= 10) + i64(magnitude >= 100)
    if form["digits"] > width:
        width = i64(form["digits"])
    if end - q < 1 + i64(signed) + width:
        return BAD
    out[q] = u8(form["letter"])
    q += 1
    if signed:
        out[q] = u8(_MINUS if power < 0 else _PLUS)
        q += 1
    return _write_digits(out, q, magnitude, width)


@borrowing
def _write_day(out: UInt8Array, q: int, day: int) -> int:
    """Days since 1970 as YYYY-MM-DD; the caller has checked room and range."""
    rest = day + _EPOCH_DAYS
    era = rest // _DAYS_400
    rest -= era * _DAYS_400
    century = rest // _DAYS_100
    if century > 3:
        century = 3
    rest -= century * _DAYS_100
    leap = rest // _DAYS_4
    rest -= leap * _DAYS_4
    single = rest // 365
    if single > 3:
        single = 3
    rest -= single * 365
    year = era * 400 + century * 100 + leap * 4 + single
    # Months from March on: of five in a row 153 days, in a pattern that a division gives.
    month = (5 * rest + 2) // 153
    rest -= (153 * month + 2) // 5
    month += 3
    if month > 12:
        month -= 12
        year += 1
    q = _write_digits(out, q, year, 4)
    out[q] = u8(_MINUS)
    q = _write_digits(out, q + 1, month, 2)
    out[q] = u8(_MINUS)
    return _write_digits(out, q + 1, rest + 1, 2)


@borrowing
def write_date(out: UInt8Array, q: int, end: int, day: int) -> int:
    """Days since 1970, years 1 to 9999, in quotes."""
    if end - q < 12 or day < _FIRST_DAY or day > _LAST_DAY:
        return BAD
    out[q] = u8(0x22)
    q = _write_day(out, q + 1, day)
    out[q] = u8(0x22)
    return q + 1


@borrowing
def write_datetime(out: UInt8Array, q: int, end: int, micros: int, form: Any, literals: UInt8Array) -> int:
    """Microseconds since 1970 UTC in the TIME_DTYPE `form`, in quotes; BAD where it would cut digits off, too."""
    day = micros // _DAY_US
    rest = micros - day * _DAY_US + form["offset"]
    day += rest // _DAY_US
    rest -= (rest // _DAY_US) * _DAY_US
    if day < _FIRST_DAY or day > _LAST_DAY:
        return BAD
    second = rest // 1_000_000
    rest -= second * 1_000_000
    width = i64(form["fraction"])
    if width == MICROS:
        width = 6 * i64(rest != 0)
    elif width == GROUPS:
        width = 0 if rest == 0 else 3 if rest % 1000 == 0 else 6
    elif width == SHORTEST:
        width = 0
        tail = rest
        while tail != 0 and width < 6:
            width += 1
            tail = tail * 10 % 1_000_000
    size = i64(form["size"])
    if end - q < 21 + width + i64(width > 0) + size:
        return BAD
    out[q] = u8(0x22)
    q = _write_day(out, q + 1, day)
    out[q] = u8(form["separator"])
    q = _write_digits(out, q + 1, second // 3600, 2)
    out[q] = u8(0x3A)
    q = _write_digits(out, q + 1, second // 60 % 60, 2)
    out[q] = u8(0x3A)
    q = _write_digits(out, q + 1, second % 60, 2)
    if width > 0:
        out[q] = u8(_POINT)
        q += 1
    for _ in range(width):
        rest *= 10
        out[q] = u8(_ZERO + rest // 1_000_000)
        rest %= 1_000_000
        q += 1
    for k in range(size):
        out[q + k] = literals[form["zone"] + k]
    out[q + size] = u8(0x22)
    return q + size + 1 if rest == 0 else BAD
