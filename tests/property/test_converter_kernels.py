"""Kernels against plain Python and against libraries."""

from __future__ import annotations

import crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from converter import limits
from converter.batches.rows import merge_values, split_values
from converter.kernels.checksum import checksum, checksums
from converter.kernels.kernel import readonly
from converter.kernels.memory import copy, same
from converter.kernels.utf8 import replace_invalid, valid_utf8
from converter.kernels.varint import BAD, read_int, read_long, size_of, write
from converter.types import VarBytes
from tests.oracle.records import DecodeError, Reader, varint

int64s = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-70, 70), st.integers(-(2**31), 2**31 - 1))
ODD_SEQUENCES = [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98\x80", b"a", b"\xff"]
odd_text = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=6).map(str.encode),
    st.lists(
        st.sampled_from(ODD_SEQUENCES),
        max_size=5,
    ).map(b"".join),
)  # fmt: skip


def column(values: list[bytes | None]) -> VarBytes:
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8)
    return VarBytes(offsets, data, np.array([value is not None for value in values], dtype=np.bool_))


def values_of(filled: VarBytes) -> list[bytes | None]:
    return [
        filled.data[filled.offsets[i] : filled.offsets[i + 1]].tobytes() if filled.valid[i] else None
        for i in range(len(filled))
    ]


@given(int64s)
def test_varints_are_written_as_the_oracle_does(value: int) -> None:
    out = np.zeros(12, dtype=np.uint8)
    end = write(out, 1, value)
    assert out[1:end].tobytes() == varint(value)
    assert size_of(value) == end - 1
    data = readonly(out, np.uint8)
    assert read_long(data, 1, end) == (value, end)
    if -(2**31) <= value < 2**31:
        assert read_int(data, 1, end) == (value, end)


@given(st.binary(min_size=1, max_size=14), st.integers(0, 14))
def test_varints_are_read_as_the_oracle_does(data: bytes, end: int) -> None:
    end = min(end, len(data))
    array = readonly(np.frombuffer(data, dtype=np.uint8), np.uint8)
    for read, bits in ((read_int, 32), (read_long, 64)):
        reader = Reader(data[:end])
        value, p = read(array, 0, end)
        try:
            assert (value, p) == (reader.varint(bits), reader.position)
        except DecodeError:
            assert p == BAD


@given(st.binary(max_size=3 * limits.CHECKSUM_KERNEL_BYTES_MAX), st.data())
def test_checksums_are_the_library_s(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), min_size=2, max_size=8)))
    starts, ends = np.array(cuts[:-1], dtype=np.int64), np.array(cuts[1:], dtype=np.int64)
    wanted = np.array(draw.draw(st.lists(st.booleans(), min_size=len(starts), max_size=len(starts))), dtype=np.bool_)
    found = checksums(readonly(np.frombuffer(data, dtype=np.uint8), np.uint8), starts, ends, wanted)
    for a, b, want, crc in zip(cuts[:-1], cuts[1:], wanted, found.tolist(), strict=True):
        assert crc == (crc32c.crc32c(data[a:b]) if want else 0)
    assert checksum(b"123456789") == 0xE3069283  # the check value of RFC 3720's polynomial


@given(st.binary(max_size=300), st.binary(max_size=300), st.data())
def test_copy_and_same(data: bytes, other: bytes, draw: st.DataObject) -> None:
    size = draw.draw(st.integers(0, min(len(data), len(other))))
    p, to = draw.draw(st.integers(0, len(data) - size)), draw.draw(st.integers(0, len(other) - size))
    source = readonly(np.frombuffer(data, dtype=np.uint8), np.uint8)
    target = np.frombuffer(other, dtype=np.uint8).copy()
    assert same(target, to, source, p, size) == (data[p : p + size] == other[to : to + size])
    copy(target, to, source, p, size)
    assert target.tobytes() == other[:to] + data[p : p + size] + other[to + size :]


@given(st.lists(st.one_of(st.none(), odd_text), max_size=12))
def test_utf8_is_what_python_says(values: list[bytes | None]) -> None:
    filled = column(values)
    ok = valid_utf8(filled)
    decoded = [None if value is None else value.decode("utf-8", "replace").encode() for value in values]
    assert ok.tolist() == [value == text for value, text in zip(values, decoded, strict=True)]
    assert values_of(replace_invalid(filled, ok)) == decoded


@given(st.lists(st.one_of(st.none(), odd_text), max_size=12))
def test_the_string_rule_splits_and_merges(values: list[bytes | None]) -> None:
    filled = column(values)
    text, rest, error = split_values(filled)
    good = [value if value is not None and _is_text(value) else None for value in values]
    bad = [value if value is not None and not _is_text(value) else None for value in values]
    assert values_of(text) == good
    assert values_of(rest) == bad
    assert error.to_pylist() == [None if value is None else "invalid_utf8" for value in bad]
    assert values_of(merge_values(text, rest)) == values


def _is_text(value: bytes) -> bool:
    return value.decode("utf-8", "replace").encode() == value
