"""The index object: columns, header, versions, checksums."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from converter.errors import SegmentError
from converter.index.codec import (
    HEADER_SIZE,
    block_section,
    decode_block,
    decode_directory,
    footer_bytes,
    section_bytes,
)
from converter.index.columns import (
    inflate,
    pack,
    pack_batches,
    pack_integers,
    pack_pages,
    unpack,
    unpack_batches,
    unpack_integers,
    unpack_pages,
)
from converter.types import BATCH_DTYPE, PageTable
from tests.support.examples import examples
from tests.worlds.index_support import Stored, simple_batches, write

int64s = st.integers(-(2**63), 2**63 - 1)


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(0, 40)), elements=int64s))
def test_columns_come_back_whatever_they_hold(columns: np.ndarray) -> None:
    packed, raw = pack(list(columns))
    found = unpack(packed, raw, len(columns), columns.shape[1])
    assert np.array_equal(np.array(found).reshape(columns.shape), columns)


@given(st.integers(0, 50), st.randoms(use_true_random=False))
def test_batch_tables_of_random_bytes_come_back(count: int, random: object) -> None:
    data = random.randbytes(count * BATCH_DTYPE.itemsize)  # type: ignore[attr-defined]
    table = np.frombuffer(data, dtype=BATCH_DTYPE)
    packed, raw = pack_batches(table)
    found = unpack_batches(packed, raw, count)
    assert found.tobytes() == table.tobytes()


@given(hnp.arrays(np.int64, st.integers(0, 60), elements=int64s))
def test_deltas_come_back(deltas: np.ndarray) -> None:
    packed, raw = pack_integers(deltas)
    assert np.array_equal(unpack_integers(packed, raw, len(deltas)), deltas)


@given(hnp.arrays(np.int64, st.tuples(st.just(5), st.integers(0, 30)), elements=int64s))
def test_page_tables_come_back(columns: np.ndarray) -> None:
    table = PageTable(
        column=columns[0].astype(np.int16),
        first_row=columns[1],
        row_count=columns[2].astype(np.int32),
        offset=columns[3],
        length=columns[4].astype(np.int32),
    )
    packed, raw = pack_pages(table)
    found = unpack_pages(packed, raw, columns.shape[1])
    for name in ("column", "first_row", "row_count", "offset", "length"):
        assert np.array_equal(getattr(found, name), getattr(table, name))
        assert getattr(found, name).dtype == getattr(table, name).dtype


@examples(300)
@given(st.binary(max_size=200), st.integers(-1, 300), st.integers(1, 6), st.integers(0, 20))
def test_unpack_takes_any_bytes(data: bytes, raw: int, columns: int, rows: int) -> None:
    with pytest.raises(SegmentError) as caught:
        unpack(data + b"\x01", raw, columns, rows)
    assert caught.value.kind == "corrupt_object"


def test_a_frame_that_declares_another_size_is_refused() -> None:
    packed, raw = pack([np.arange(1000)])
    for wrong in (raw - 1, raw + 1, 0, -5, 2**40):
        with pytest.raises(SegmentError):
            inflate(packed, wrong)
    with pytest.raises(SegmentError):
        inflate(packed + b"x", raw)


def test_ordinary_batches_take_little_but_their_checksums() -> None:
    stored = write([simple_batches(4096)])
    entry = stored.directory.blocks[0]
    assert int(entry["batches_length"]) < 4096 * 4 * 1.25


@pytest.fixture(scope="module")
def stored() -> Stored:
    """A small segment."""
    return write([simple_batches(40)])


def test_every_flipped_bit_of_the_directory_is_found(stored: Stored) -> None:
    head = stored.written.index[: stored.directory.directory_size]
    for at in range(len(head)):
        for bit in range(8) if at < HEADER_SIZE else (at % 8,):
            damaged = bytearray(head)
            damaged[at] ^= 1 << bit
            with pytest.raises(SegmentError) as caught:
                decode_directory(damaged)
            assert caught.value.kind == "corrupt_object"


def with_checksum(head: bytes) -> bytes:
    """The directory with the checksum its bytes ask for."""
    crc = crc32c(head[HEADER_SIZE:], crc32c(head[: HEADER_SIZE - 4]))
    return head[: HEADER_SIZE - 4] + struct.pack("<I", crc) + head[HEADER_SIZE:]


def test_a_newer_version_is_told_from_damage(stored: Stored) -> None:
    head = bytearray(stored.written.index[: stored.directory.directory_size])
    head[4] = 2
    with pytest.raises(SegmentError) as caught:
        decode_directory(with_checksum(bytes(head)))
    assert caught.value.kind == "unsupported_version"


@pytest.mark.parametrize("place", [12, 16])
def test_sizes_that_contradict_each_other(stored: Stored, place: int) -> None:
    head = bytearray(stored.written.index[: stored.directory.directory_size])
    head[place] ^= 1
    with pytest.raises(SegmentError) as caught:
        decode_directory(with_checksum(bytes(head)))
    assert caught.value.kind == "corrupt_object"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"metadata"', b'"metadatA"'),
        (b'"rows":40', b'"rows":{}'),
        (b'{"attempt_id":', b'["attempt_id",'),
        (b'"partition":3', b'"partition":x'),
        (b'"topic_id":"54', b'"topic_id":"xx'),
        (b'"mode"', b'"mood"'),
    ],
)
def test_malformed_json_under_a_right_checksum(stored: Stored, old: bytes, new: bytes) -> None:
    head = stored.written.index[: stored.directory.directory_size]
    assert old in head
    with pytest.raises(SegmentError) as caught:
        decode_directory(with_checksum(head.replace(old, new)))
    assert caught.value.kind == "corrupt_object"


def test_the_directory_is_at_the_front_and_says_its_size(stored: Stored) -> None:
    size = stored.directory.directory_size
    index = stored.written.index
    assert index[:4] == b"TBIX"
    assert int.from_bytes(index[8:12], "little") == size
    assert decode_directory(index[:size] + b"more than was needed").total_size == len(index)


def test_sections_and_blocks_tile_the_object(stored: Stored) -> None:
    directory = stored.directory
    sections = [*directory.files.values(), block_section(directory, 0)]
    assert directory.footer is not None
    sections.append(directory.footer)
    at = directory.directory_size
    for section in sorted(sections, key=lambda s: (s.offset, s.size)):
        assert section.offset == at
        at += section.size
    assert at == directory.total_size


def test_section_and_block_checksums(stored: Stored) -> None:
    directory, index = stored.directory, stored.written.index
    data = bytearray()
    for section in [*directory.files.values(), block_section(directory, 0)]:
        data = bytearray(index[section.offset : section.offset + section.size])
        with pytest.raises(SegmentError):
            section_bytes(section, bytes(data) + b"x")
        if data:
            data[len(data) // 2] ^= 4
            with pytest.raises(SegmentError):
                section_bytes(section, data)
    with pytest.raises(SegmentError):  # the block, the last of the sections
        decode_block(directory, 0, data)


def test_a_segment_without_data_file_has_no_footer() -> None:
    with pytest.raises(SegmentError):
        footer_bytes(write([]).directory, b"")
