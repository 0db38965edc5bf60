"""Numbers that columns have as decimals or digits, back in 64 bits."""

from __future__ import annotations

import numpy as np

from converter.kernel import i64, kernel, readonly, u64
from converter.types import BoolArray, Int64Array, UInt8Array

_NANOS = 1_000_000_000
_DIGITS_MAX = 20


def unsigned_from_decimals(words: Int64Array) -> tuple[Int64Array, BoolArray]:
    """(64 bits, where the number has more or is negative) of n decimals; `words`: low and high half of each."""
    pairs = words.reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1] != 0


def unsigned_from_digits(places: Int64Array, texts: UInt8Array) -> tuple[Int64Array, BoolArray]:
    """(64 bits, where the text is not the shortest of a number below 2**64) of n texts; `places`: n + 1 of them."""
    numbers, bad = np.zeros(len(places) - 1, dtype=np.int64), np.zeros(len(places) - 1, dtype=np.bool_)
    _parse(readonly(places, np.int64), readonly(texts, np.uint8), numbers, bad)
    return numbers, bad


def whole_and_nanos(words: Int64Array) -> tuple[Int64Array, Int64Array, BoolArray]:
    """(seconds, nanoseconds of the same sign, where the seconds have more than 64 bits) of n decimals with scale 9."""
    count = len(words) // 2
    seconds, nanos = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    bad = np.zeros(count, dtype=np.bool_)
    _divide(readonly(words, np.int64), seconds, nanos, bad)
    return seconds, nanos, bad


@kernel
def _parse(places: Int64Array, texts: UInt8Array, numbers: Int64Array, bad: BoolArray) -> None:
    for i in range(len(numbers)):
        p, end = places[i], places[i + 1]
        if p < 0 or end > len(texts) or end - p < 1 or end - p > _DIGITS_MAX or (texts[p] == 0x30 and end - p > 1):
            bad[i] = True
            continue
        value = u64(0)
        while p < end:
            digit = i64(texts[p]) - 0x30
            # 2**64 - 1 is 18446744073709551615.
            limit = u64(1844674407370955161)
            if digit < 0 or digit > 9 or value > limit or (value == limit and digit > 5):
                bad[i] = True
                break
            value = value * u64(10) + u64(digit)
            p += 1
        numbers[i] = i64(value)


@kernel
def _divide(words: Int64Array, seconds: Int64Array, nanos: Int64Array, bad: BoolArray) -> None:
    for i in range(len(seconds)):
        low, high = u64(words[2 * i]), u64(words[2 * i + 1])
        negative = words[2 * i + 1] < 0
        if negative:
            low = ~low + u64(1)
            high = ~high + u64(low == u64(0))
        quotient, rest, beyond = u64(0), u64(0), u64(0)
        for k in range(4):
            word = high if k < 2 else low
            part = (word >> u64(32) if k % 2 == 0 else word & u64(0xFFFFFFFF)) | rest << u64(32)
            rest = part % u64(_NANOS)
            beyond |= quotient >> u64(32)
            quotient = quotient << u64(32) | part // u64(_NANOS)
        bad[i] = beyond != u64(0) or quotient > u64(2**63 - 1) + u64(negative)
        # Of a negative one the two's complement, which -2**63 has, too.
        seconds[i] = i64(~quotient + u64(1)) if negative else i64(quotient)
        nanos[i] = -i64(rest) if negative else i64(rest)
