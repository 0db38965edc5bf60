"""Kernels of the page reader against plain encoders: what is written comes back, and any bytes are safe."""

from __future__ import annotations

import itertools
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from converter.errors import SegmentError
from converter.kernels.kernel import readonly
from converter.parquet.page_header import FIELDS, read_page_header, read_page_locations
from converter.parquet.page_values import count_entries, read_delta_packed, read_levels, read_plain_bytes
from converter.parquet.thrift import read_struct
from tests.oracle.parquet_encodings import delta_packed, levels, plain, signed, thrift

INT64 = st.integers(-(2**63), 2**63 - 1)
#: Far apart, close together, and at the edges, where differences wrap.
NUMBERS = st.one_of(
    st.lists(INT64, max_size=300),
    st.lists(st.integers(0, 3), max_size=600),
    st.builds(lambda start, steps: [signed(start + sum(steps[:n])) for n in range(len(steps))], INT64,
              st.lists(st.integers(-9, 9), max_size=200)),
    st.lists(st.sampled_from([-(2**63), 2**63 - 1, 0]), max_size=140),
)  # fmt: skip


def array(data: bytes) -> np.ndarray:
    return readonly(np.frombuffer(data, dtype=np.uint8), np.uint8)


@given(NUMBERS, st.sampled_from([(128, 4), (128, 1), (256, 8), (128, 2)]), st.integers(0, 3), st.binary(max_size=5))
def test_delta_packed_integers_come_back(
    values: list[int], shape: tuple[int, int], spare_bits: int, before: bytes
) -> None:
    page = array(before + delta_packed(values, block=shape[0], minis=shape[1], spare_bits=spare_bits))
    out = np.full(len(values), 77, dtype=np.int64)
    assert read_delta_packed(page, len(before), out)
    assert out.tolist() == values


@given(NUMBERS.filter(bool), st.data())
def test_cut_or_miscounted_integers_are_refused(values: list[int], data: st.DataObject) -> None:
    page = delta_packed(values)
    cut = data.draw(st.integers(0, len(page) - 1))
    out = np.zeros(len(values), dtype=np.int64)
    # The end of the last miniblock may be padding that nobody reads; everything before it is needed.
    if read_delta_packed(array(page[:cut]), 0, out):
        assert out.tolist() == values
    for wrong in (len(values) - 1, len(values) + 1):
        assert not read_delta_packed(array(page), 0, np.zeros(wrong, dtype=np.int64))


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 20))
@example(bytes([0x80, 1, 4, 2, 0, 0, 255, 255, 255, 255]), 2, 0)
def test_any_bytes_are_safe_as_integers(page: bytes, count: int, start: int) -> None:
    read_delta_packed(array(page), min(start, len(page)), np.zeros(count, dtype=np.int64))


@st.composite
def hybrid(draw: st.DrawFn) -> tuple[list[int], int, list[tuple[str, int]]]:
    width = draw(st.integers(1, 3))
    values: list[int] = []
    runs: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            count = draw(st.integers(1, 700))
            values += [draw(st.integers(0, 2**width - 1))] * count
            runs.append(("rle", count))
        else:
            count = 8 * draw(st.integers(1, 12))
            values += draw(st.lists(st.integers(0, 2**width - 1), min_size=count, max_size=count))
            runs.append(("packed", count))
    return values, width, runs


@given(hybrid(), st.binary(max_size=4), st.binary(max_size=4))
def test_levels_come_back(case: tuple[list[int], int, list[tuple[str, int]]], before: bytes, after: bytes) -> None:
    values, width, runs = case
    encoded = levels(values, width, runs)
    out = np.full(len(values), 9, dtype=np.uint8)
    end = read_levels(array(before + encoded + after), len(before), width, 2**width - 1, out)
    assert end == len(before) + len(encoded)
    assert out.tolist() == values


@given(hybrid(), st.data())
def test_cut_levels_and_levels_above_the_highest_are_refused(
    case: tuple[list[int], int, list[tuple[str, int]]], data: st.DataObject
) -> None:
    values, width, runs = case
    encoded = levels(values, width, runs)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert read_levels(array(encoded[:cut]), 0, width, 2**width - 1, np.zeros(len(values), dtype=np.uint8)) == -1
    if max(values) > 0:
        assert read_levels(array(encoded), 0, width, max(values) - 1, np.zeros(len(values), dtype=np.uint8)) == -1


@given(st.binary(max_size=60), st.integers(1, 8), st.integers(0, 100))
def test_any_bytes_are_safe_as_levels(page: bytes, width: int, count: int) -> None:
    highest = 2**width - 1
    out = np.zeros(count, dtype=np.uint8)
    end = read_levels(array(page), 0, width, highest, out)
    assert end == -1 or 4 <= end <= len(page)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=60), st.data())
def test_byte_arrays_come_back_from_the_middle_of_a_page(values: list[bytes | None], data: st.DataObject) -> None:
    skip = data.draw(st.integers(0, len(values)))
    take = data.draw(st.integers(0, len(values) - skip))
    present = np.array([value is not None for value in values], dtype=np.uint8)
    wanted = values[skip : skip + take]
    size = sum(len(value) for value in wanted if value is not None)
    offsets = np.zeros(take + 1, dtype=np.int64)
    valid = np.zeros(take, dtype=np.bool_)
    out = np.zeros(size, dtype=np.uint8)
    assert read_plain_bytes(array(plain(values)), 0, present, 1, skip, take, 0, offsets, valid, out)
    found = [
        bytes(out[a:b]) if there else None
        for (a, b), there in zip(itertools.pairwise(offsets.tolist()), valid.tolist(), strict=True)
    ]
    assert found == wanted
    if size:
        short = np.zeros(size - 1, dtype=np.uint8)
        assert not read_plain_bytes(array(plain(values)), 0, present, 1, skip, take, 0, offsets, valid, short)


@given(st.binary(max_size=80), st.lists(st.booleans(), max_size=20))
def test_any_bytes_are_safe_as_byte_arrays(page: bytes, there: list[bool]) -> None:
    present = np.array(there, dtype=np.uint8)
    offsets = np.zeros(len(there) + 1, dtype=np.int64)
    valid = np.zeros(len(there), dtype=np.bool_)
    out = np.zeros(len(page), dtype=np.uint8)
    if read_plain_bytes(array(page), 0, present, 1, 0, len(there), 0, offsets, valid, out):
        assert (np.diff(offsets) >= 0).all()
        assert offsets[-1] <= len(page)


@given(st.lists(st.integers(0, 4), max_size=40), st.data())
def test_entries_fall_into_their_rows(sizes: list[int], data: st.DataObject) -> None:
    repetition, definition = [], []
    for size in sizes:
        repetition += [0] + [1] * (max(size, 1) - 1)
        definition += [3 + data.draw(st.integers(0, 1)) for _ in range(size)] or [data.draw(st.integers(0, 1))]
    skip = data.draw(st.integers(0, len(sizes)))
    rows = data.draw(st.integers(0, len(sizes) - skip))
    counts = np.zeros(rows, dtype=np.int64)
    places = np.array(repetition, dtype=np.uint8), np.array(definition, dtype=np.uint8)
    before, inside = count_entries(*places, skip, rows, counts)
    assert counts.tolist() == sizes[skip : skip + rows]
    assert (before, inside) == (sum(sizes[:skip]), sum(sizes[skip : skip + rows]))
    more = np.zeros(len(sizes) - skip + 1, dtype=np.int64)
    assert count_entries(*places, skip, len(more), more)[0] == -1


SCALARS = st.one_of(st.booleans(), INT64, st.binary(max_size=30), st.floats(allow_nan=False))
STRUCTS = st.recursive(
    st.dictionaries(st.integers(1, 300), SCALARS, max_size=6),
    lambda inner: st.dictionaries(
        st.integers(1, 40), st.one_of(SCALARS, inner, st.lists(inner, max_size=20), st.lists(INT64, max_size=20)),
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(STRUCTS, st.binary(max_size=6), st.binary(max_size=6))
def test_thrift_structs_come_back(value: dict[int, object], before: bytes, after: bytes) -> None:
    _, encoded = thrift(value)
    assert read_struct(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(STRUCTS, st.data())
def test_cut_thrift_is_refused(value: dict[int, object], data: st.DataObject) -> None:
    _, encoded = thrift(value)
    with pytest.raises(SegmentError) as caught:
        read_struct(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    assert caught.value.kind == "corrupt_object"


@given(st.binary(max_size=120))
def test_any_bytes_are_thrift_or_one_error(data: bytes) -> None:
    with suppress(SegmentError):
        read_struct(data)


I32 = st.integers(0, 2**31 - 1)


@given(I32, I32, I32, I32, st.sampled_from([0, 3, 5]), st.none() | st.integers(0, 2**31 - 1))
def test_page_headers_come_back(
    kind: int, uncompressed: int, compressed: int, values: int, encoding: int, crc: int | None
) -> None:
    statistics = {1: b"max", 2: b"min", 3: 0, 7: True}
    fields: dict[int, object] = {
        1: kind,
        2: uncompressed,
        3: compressed,
        5: {1: values, 2: encoding, 3: 3, 4: 3, 5: statistics},
    }
    if crc is not None:
        fields[4] = crc
    _, encoded = thrift(fields)
    # The header's integers are i32; the compact protocol writes them alike.
    out = np.zeros(FIELDS, dtype=np.int64)
    assert read_page_header(array(encoded + b"page"), out) == len(encoded)
    assert out.tolist() == [kind, uncompressed, compressed, -1 if crc is None else crc, values, encoding, 3, 3]
    for cut in range(len(encoded)):
        assert read_page_header(array(encoded[:cut]), out) == -1


@given(st.binary(max_size=100))
def test_any_bytes_are_safe_as_a_page_header(data: bytes) -> None:
    out = np.zeros(FIELDS, dtype=np.int64)
    assert -1 <= read_page_header(array(data), out) <= len(data)


@given(st.binary(max_size=100), st.integers(0, 30))
def test_any_bytes_are_safe_as_page_locations(data: bytes, room: int) -> None:
    out = np.zeros((room, 3), dtype=np.int64)
    assert -1 <= read_page_locations(array(data), out) <= room
