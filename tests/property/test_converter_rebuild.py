"""rebuild() on damaged parts: the right bytes or SegmentError("corrupt_object"), nothing else, and no crash."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from converter.batches.rebuild import rebuild
from converter.batches.rows import row_buffers
from converter.errors import SegmentError
from converter.types import BATCH_DTYPE, BatchTable, Int64Array, RowBuffers, UInt8Array, VarBytes
from tests.oracle.expect import parse
from tests.oracle.strategies import Segment, segments
from tests.support.examples import examples

Parts = tuple[BatchTable, RowBuffers, Int64Array, UInt8Array]


def parts_of(segment: Segment) -> Parts:
    step = parse(segment)[0]
    rows = row_buffers(step.rows)
    kept = np.frombuffer(b"".join(step.kept), dtype=np.uint8).copy()
    return step.batches.copy(), writable(rows), step.timestamp_deltas.copy(), kept


def writable(rows: RowBuffers) -> RowBuffers:
    copied = deepcopy(rows)
    for column in (copied.keys, copied.values, copied.header_keys, copied.header_values):
        column.offsets, column.data = column.offsets.copy(), column.data.copy()
    return copied


def rebuilt(parts: Parts) -> bytes | None:
    found: SegmentError | None = None
    try:
        return rebuild(*parts).tobytes()
    except SegmentError as error:
        found = error
    assert found.kind == "corrupt_object"
    return None


def arrays(parts: Parts) -> list[np.ndarray]:
    _, rows, deltas, kept = parts
    found: list[np.ndarray] = [deltas, kept]
    found += [rows.offsets, rows.timestamps_us, rows.timestamps_valid, rows.header_offsets]
    for column in (rows.keys, rows.values, rows.header_keys, rows.header_values):
        found += [column.offsets, column.data, column.valid]
    return [array for array in found if len(array)]


@given(segments(max_batches=5), st.data())
@examples(300)
def test_one_damaged_element(segment: Segment, data: st.DataObject) -> None:
    """Columns, deltas and kept bytes: a difference that could reach a consumer is never passed on."""
    parts = parts_of(segment)
    right = rebuilt(parts)
    assert right is not None
    found = arrays(parts)
    assume(found)
    array = data.draw(st.sampled_from(found))
    i = data.draw(st.integers(0, len(array) - 1))
    if array.dtype == np.bool_:
        array[i] = not array[i]
    elif array.dtype == np.uint8:
        array[i] ^= data.draw(st.integers(1, 255))
    else:
        array[i] = data.draw(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-10, 1000)))
    again = rebuilt(parts)
    assert again is None or again == right


@given(segments(max_batches=5), st.data())
@examples(300)
def test_a_damaged_batch_table(segment: Segment, data: st.DataObject) -> None:
    """Whatever the table says, no other exception and no read out of bounds."""
    parts = parts_of(segment)
    raw = parts[0].view(np.uint8).reshape(len(parts[0]), BATCH_DTYPE.itemsize)
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, len(raw) - 1))
        raw[row, data.draw(st.integers(0, BATCH_DTYPE.itemsize - 1))] = data.draw(st.integers(0, 255))
    assume(int(parts[0]["served_size"].astype(np.int64).sum()) < 2**26)
    rebuilt(parts)


@given(segments(max_batches=4), st.data())
@examples(100)
def test_cut_arrays(segment: Segment, data: st.DataObject) -> None:
    table, rows, deltas, kept = parts = parts_of(segment)
    right = rebuilt(parts)
    name = data.draw(st.sampled_from(["deltas", "kept", "offsets", "timestamps_us", "timestamps_valid", "keys"]))
    keep = data.draw(st.integers(0, 3))
    if name == "deltas":
        deltas = deltas[:keep]
    elif name == "kept":
        kept = kept[:keep]
    elif name == "keys":
        rows.keys = VarBytes(rows.keys.offsets[: keep + 1], rows.keys.data, rows.keys.valid[:keep])
    else:
        setattr(rows, name, getattr(rows, name)[:keep])
    again = rebuilt((table, rows, deltas, kept))
    assert again is None or again == right


@given(segments(max_batches=6), st.data())
@examples(50)
def test_slices_of_the_table(segment: Segment, data: st.DataObject) -> None:
    """Rows, deltas and kept bytes start where the first batch says."""
    table, rows, deltas, kept = parts = parts_of(segment)
    whole = rebuilt(parts)
    assert whole is not None
    first = data.draw(st.integers(0, len(table) - 1))
    part = table[first:]
    at = int(part["row_start"][0])
    header = int(rows.header_offsets[at])
    sliced = RowBuffers(
        offsets=rows.offsets[at:],
        timestamps_us=rows.timestamps_us[at:],
        timestamps_valid=rows.timestamps_valid[at:],
        keys=VarBytes(rows.keys.offsets[at:], rows.keys.data, rows.keys.valid[at:]),
        values=VarBytes(rows.values.offsets[at:], rows.values.data, rows.values.valid[at:]),
        header_offsets=rows.header_offsets[at:] - header,
        header_keys=VarBytes(rows.header_keys.offsets[header:], rows.header_keys.data, rows.header_keys.valid[header:]),
        header_values=VarBytes(
            rows.header_values.offsets[header:], rows.header_values.data, rows.header_values.valid[header:]
        ),
    )
    exact = part["timestamps_start"][part["timestamps_start"] >= 0]
    deltas = deltas[int(exact[0]) :] if len(exact) else deltas[:0]
    out = rebuild(part, sliced, deltas, kept[int(part["kept_start"][0]) :]).tobytes()
    assert out == whole[len(whole) - len(out) :]
    assert len(out) == int(part["served_size"].sum())


def test_no_batches_are_no_bytes() -> None:
    empty = VarBytes(np.zeros(1, np.int64), np.empty(0, np.uint8), np.empty(0, np.bool_))
    numbers = np.empty(0, np.int64)
    rows = RowBuffers(
        offsets=numbers,
        timestamps_us=numbers,
        timestamps_valid=np.empty(0, np.bool_),
        keys=empty,
        values=empty,
        header_offsets=np.zeros(1, np.int64),
        header_keys=empty,
        header_values=empty,
    )
    assert len(rebuild(np.empty(0, BATCH_DTYPE), rows, numbers, np.empty(0, np.uint8))) == 0


@pytest.mark.parametrize("size", [-1, 0, 11, -(2**31)])
def test_absurd_sizes_allocate_nothing(size: int) -> None:
    from tests.oracle.records import Batch, Record
    from tests.oracle.strategies import make_segment

    table, rows, deltas, kept = parts_of(make_segment([Batch(0, (Record(0, 0, b"k", b"v"),))]))
    table["served_size"] = size
    assert rebuilt((table, rows, deltas, kept)) is None
    table = np.repeat(table, 3)
    table["served_size"] = 2**31 - 1
    assert rebuilt((table, rows, deltas, kept)) is None
