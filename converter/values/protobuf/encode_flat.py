"""Columns as the flat arrays that the encoder's kernel walks: the way back of lift.py.

Numbers come as they are written: zigzag numbers, floats by their bits, enums by number, times in seconds and
nanoseconds. A cell that no value of the message type can have made is BAD_CELL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from converter.kernels.kernel import i64, kernel, readonly, u64
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values import arrow_buffers as buffers
from converter.values.protobuf.encode_compile import Compiled, Read, SlotSource
from converter.values.protobuf.encode_ops import ABSENT, BAD_CELL, CELLS, COUNT, FLAGS, PRESENT, Inputs
from converter.values.protobuf.struct_json import json_message

#: Numbers as they are written, and which of them no value can have made; None: each can.
_Numbers = tuple[Int64Array, BoolArray | None]
_NANOS_MAX = 999


def flatten(compiled: Compiled, columns: pa.StructArray) -> Inputs:
    """The inputs of a message type's program; which rows are null does not matter here.

    Args:
        compiled: the program.
        columns: of the type it was made for; any slice of an array.
    """
    flat = _Flat(compiled.slots)
    fields = [columns.field(number) for number in range(columns.type.num_fields)]
    for source in compiled.sources:
        flat.read(source, fields)
    return flat.inputs()


class _Flat:
    def __init__(self, slots: int) -> None:
        self._slots = np.zeros((slots, 3), dtype=np.int64)
        self._flags: list[UInt8Array] = [np.empty(0, dtype=np.uint8)]
        self._cells: list[Int64Array] = [np.empty(0, dtype=np.int64)]
        self._texts: list[UInt8Array] = [np.empty(0, dtype=np.uint8)]
        self._flag_count = 0
        self._cell_count = 0
        self._text_bytes = 0

    def inputs(self) -> Inputs:
        """All that was read."""
        flags, cells, texts = np.concatenate(self._flags), np.concatenate(self._cells), np.concatenate(self._texts)
        return Inputs(self._slots, flags, cells, texts)

    def read(self, source: SlotSource, fields: list[pa.Array]) -> None:
        """Fills the slots of a source from the columns of the struct around it."""
        array = fields[source.column]
        match source.read:
            case Read.BYTES:
                self._put_texts(source, array, None)
            case Read.JSON:
                messages = _messages(source.node.message, array)
                self._put_texts(source, messages, buffers.valid(array) & ~buffers.valid(messages))
            case Read.EMPTY | Read.STRUCT:
                self._put_flags(source.slot, _flags(buffers.valid(array), None, required=source.required))
                inner = [array.field(number) for number in range(array.type.num_fields)] if source.children else []
                for child in source.children:
                    self.read(child, inner)
            case Read.LIST | Read.MAP:
                self._put_list(source, array)
            case Read.TIME:
                self._put_time(source, array, fields[source.column + 1], None)
            case Read.TIME_PAIR:
                self._put_time(source, array.field(0), array.field(1), buffers.valid(array))
            case Read.DURATION:
                seconds, nanos, beyond = whole_and_nanos(buffers.numbers(array, np.int64, 2))
                self._put_parts(source, seconds, nanos, _flags(buffers.valid(array), beyond, required=source.required))
            case _:
                numbers, bad = _numbers(source, array)
                self._put_flags(source.slot, _flags(buffers.valid(array), bad, required=source.required))
                self._put_cells(source.slot, numbers)

    def _put_flags(self, slot: int, flags: UInt8Array | None) -> None:
        self._slots[slot, FLAGS] = -1 if flags is None else self._flag_count
        if flags is not None:
            self._flags.append(flags)
            self._flag_count += len(flags)

    def _put_cells(self, slot: int, cells: Int64Array) -> None:
        self._slots[slot, CELLS] = self._cell_count
        self._cells.append(cells)
        self._cell_count += len(cells)

    def _put_texts(self, source: SlotSource, array: pa.Array, bad: BoolArray | None) -> None:
        places = _places(array)
        valid = buffers.valid(array) if bad is None else buffers.valid(array) | bad
        self._put_flags(source.slot, _flags(valid, bad, required=source.required))
        self._put_cells(source.slot, places - places[0] + self._text_bytes)
        self._texts.append(buffers.text_bytes(array, int(places[0]), int(places[-1])))
        self._text_bytes += len(self._texts[-1])

    def _put_list(self, source: SlotSource, array: pa.ListArray) -> None:
        places = _places(array)
        self._put_flags(source.slot, _flags(buffers.valid(array), None, required=source.required))
        self._put_cells(source.slot, places - places[0])
        values = array.values.slice(places[0], places[-1] - places[0])
        self._slots[source.slot, COUNT] = len(values)
        is_map = source.read is Read.MAP
        for number, child in enumerate(source.children):
            self.read(child, [values.field(number) if is_map else values])

    def _put_time(self, source: SlotSource, times: pa.Array, nanos: pa.Array, around: BoolArray | None) -> None:
        """`around`: whether the struct is there that has both; None: both are columns, and null together."""
        micros, below = buffers.numbers(times, np.int64), buffers.numbers(nanos, np.int32).astype(np.int64)
        seconds = micros // 1_000_000
        there, also = buffers.valid(times), buffers.valid(nanos)
        valid = there | also if around is None else around
        bad = ~(there & also) | (below < 0) | (below > _NANOS_MAX)
        flags = _flags(valid, bad, required=source.required)
        self._put_parts(source, seconds, (micros - seconds * 1_000_000) * 1_000 + below, flags)

    def _put_parts(self, source: SlotSource, seconds: Int64Array, nanos: Int64Array, flags: UInt8Array | None) -> None:
        self._put_flags(source.slot, flags)
        for number, cells in enumerate((seconds, nanos), start=1):
            self._put_flags(source.slot + number, None)
            self._put_cells(source.slot + number, cells)


def _numbers(source: SlotSource, array: pa.Array) -> _Numbers:
    match source.read:
        case Read.ENUM:
            return _enums(source, array)
        case Read.UNSIGNED64 if pa.types.is_string(array.type):
            return _digits(array)
        case Read.UNSIGNED64:
            return unsigned_from_decimals(buffers.numbers(array, np.int64, 2))
        case Read.DOUBLE:
            return buffers.numbers(array, np.int64), None
        case Read.FLOAT:
            with np.errstate(all="ignore"):
                singles = buffers.numbers(array, np.float64).astype(np.float32)
            return singles.view(np.int32).astype(np.int64), None
    if pa.types.is_boolean(array.type):
        return buffers.bits(array).astype(np.int64), None
    numbers = buffers.numbers(array, array.type.to_pandas_dtype()).astype(np.int64)
    if source.read is Read.ZIGZAG:
        return (numbers << 1) ^ (numbers >> 63), None
    if source.read is Read.UNSIGNED32:
        return numbers, (numbers < 0) | (numbers >= 2**32)
    return numbers, None


def _digits(array: pa.StringArray) -> _Numbers:
    places = _places(array)
    return unsigned_from_digits(places, buffers.text_bytes(array, 0, int(places[-1])))


def _enums(source: SlotSource, array: pa.StringArray) -> _Numbers:
    """Numbers of names; a number without a name stands there as decimal text."""
    known = {name.encode(): number for number, name in source.node.names}
    distinct = array.cast(pa.binary()).dictionary_encode()
    found = [known.get(text, _int32(text)) for text in distinct.dictionary.to_pylist()]
    # One more, for rows without a text.
    numbers = np.array([0 if number is None else number for number in [*found, 0]], dtype=np.int64)
    bad = np.array([number is None for number in [*found, 0]], dtype=np.bool_)
    codes = np.asarray(distinct.indices.fill_null(len(found)))
    return numbers[codes], bad[codes] if bad.any() else None


def _int32(text: bytes) -> int | None:
    if not text.removeprefix(b"-").isdigit() or len(text) > len(str(-(2**31))):
        return None
    number = int(text)
    return number if -(2**31) <= number < 2**31 and str(number).encode() == text else None


def _messages(message: str, array: pa.StringArray) -> pa.BinaryArray:
    """Struct, Value or ListValue from their JSON texts; null where one is none."""
    distinct = array.cast(pa.binary()).dictionary_encode()
    made = [json_message(message, text) for text in distinct.dictionary.to_pylist()]
    return pa.array(made, pa.binary()).take(distinct.indices)


def _flags(valid: BoolArray, bad: BoolArray | None, *, required: bool) -> UInt8Array | None:
    """None: all PRESENT."""
    if bad is None and valid.all():
        return None
    flags = np.where(valid, np.uint8(PRESENT), np.uint8(BAD_CELL if required else ABSENT))
    if bad is not None:
        flags[valid & bad] = BAD_CELL
    return None if (flags == PRESENT).all() else flags


def _places(array: pa.Array) -> Int64Array:
    return buffers.offsets(array).astype(np.int64)


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
