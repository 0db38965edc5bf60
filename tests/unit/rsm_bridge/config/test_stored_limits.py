"""What a stored object may make us allocate: each limit of what is read, at the limit and one beyond it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

import converter.index.codec
import converter.index.columns
import converter.parquet.pages
import converter.values.proof.proven
import converter.values.proof.restore
from converter import limits
from converter.batches.rebuild import rebuild
from converter.batches.transactions import aborted_entries, entry_bytes
from converter.errors import SegmentError
from converter.index.codec import decode_directory, footer_bytes
from converter.index.columns import inflate
from converter.index.position import PositionAssigner
from converter.parquet.thrift import read_struct
from converter.types import BATCH_DTYPE, RowBuffers, VarBytes
from converter.values.proof.proven import ProvenValues, unpack_proven
from rsm_bridge.config.settings import LimitSettings
from tests.worlds.index_support import simple_batches, write

NO_ENCODINGS = ProvenValues(pa.schema([]), (), ())
NO_BYTES = np.empty(0, dtype=np.uint8)


def refusal(call: Any, *given: Any, **named: Any) -> str:
    """What the call refuses with; nothing where it gives a result."""
    try:
        call(*given, **named)
    except SegmentError as error:
        return f"{error.kind}: {error}"
    return ""


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_part_of_a_block(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter.index.columns, "BLOCK_PART_BYTES_MAX", 100)
    assert limits.BLOCK_PART_BYTES_MAX > 100
    part = zstandard.compress(bytes(100 + beyond))
    assert ("claims 101 bytes" in refusal(inflate, part, 100 + beyond)) is bool(beyond)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_directory_that_is_read_and_one_that_is_written(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = write([simple_batches(3)])
    head = stored.written.index
    size = decode_directory(head).directory_size
    assert size < limits.DIRECTORY_BYTES_MAX
    monkeypatch.setattr(converter.index.codec, "DIRECTORY_BYTES_MAX", size - beyond)
    assert bool(refusal(decode_directory, head)) is bool(beyond)
    if beyond:
        with pytest.raises((ValueError, SegmentError), match=f"directory of {size} bytes"):
            write([simple_batches(3)])


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_footer(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = write([simple_batches(3)])
    directory = decode_directory(stored.written.index)
    assert directory.footer is not None
    place = slice(directory.footer.offset, directory.footer.offset + directory.footer.size)
    monkeypatch.setattr(converter.index.codec, "FOOTER_BYTES_MAX", directory.footer_raw_size - beyond)
    assert directory.footer_raw_size < limits.FOOTER_BYTES_MAX
    assert bool(refusal(footer_bytes, directory, stored.written.index[place])) is bool(beyond)
    claims = replace(directory, footer_raw_size=limits.FOOTER_BYTES_MAX + 1)
    assert refusal(footer_bytes, claims, stored.written.index[place])


def test_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the size in its header: nothing of it is decompressed."""
    stored = write([simple_batches(30)])
    monkeypatch.setattr(converter.parquet.pages, "PAGE_BYTES_MAX", 4)
    assert limits.PAGE_BYTES_MAX > 4
    assert "page header of" in refusal(stored.read_all, 1000)


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_entries_of_a_page_of_lists(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers: a row may have any number of them."""
    batches = simple_batches(1)
    for record in batches[0].records:
        record.headers = ()
    batches[0].records[0].headers = ((b"k", b"v"),) * 500
    stored = write([batches])
    entries = 500 + len(batches[0].records) - 1
    monkeypatch.setattr(converter.parquet.pages, "PAGE_VALUES_MAX", entries - beyond)
    assert limits.PAGE_VALUES_MAX > entries
    assert ("page header of" in refusal(stored.read_all, 1 << 20)) is bool(beyond)


@pytest.mark.parametrize("beyond", [0, 1])
def test_what_is_said_of_encodings(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = zstandard.compress(b"{}" + b" " * (1000 + beyond))
    monkeypatch.setattr(converter.values.proof.proven, "PROVEN_BYTES_MAX", 1002)
    assert limits.PROVEN_BYTES_MAX > 1002
    assert ("not to be believed" in refusal(unpack_proven, packed)) is bool(beyond)


@pytest.mark.parametrize("beyond", [0, 1])
def test_one_call_of_rebuild(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = np.zeros(2, dtype=BATCH_DTYPE)
    batches["served_size"] = (600, 400 + beyond)
    monkeypatch.setattr(limits, "REBUILD_BYTES_MAX", 1000)
    ints, column = np.zeros(1, dtype=np.int64), VarBytes(np.zeros(1, dtype=np.int64), NO_BYTES, NO_BYTES.astype(bool))
    rows = RowBuffers(
        offsets=ints[:0],
        timestamps_us=ints[:0],
        timestamps_valid=NO_BYTES.astype(bool),
        keys=column,
        values=column,
        header_offsets=ints,
        header_keys=column,
        header_values=column,
    )
    said = refusal(rebuild, batches, rows, ints[:0], NO_BYTES)
    assert said
    assert ("served sizes" in said) is bool(beyond)


@pytest.mark.parametrize("beyond", [0, 1])
def test_values_that_are_columns_alone(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter.values.proof.restore, "REBUILD_BYTES_MAX", 1000)
    stored = VarBytes(np.zeros(2, dtype=np.int64), NO_BYTES, np.zeros(1, dtype=np.bool_))
    sizes = np.array([1000 + beyond], dtype=np.int64)
    columns = pa.array([{"a": 1}])
    said = refusal(converter.values.proof.restore.restored, stored, np.array([1]), sizes, columns, NO_ENCODINGS)
    assert said
    assert ("not to be believed" in said) is bool(beyond)


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_depth_of_a_footer(beyond: int) -> None:
    inner = limits.THRIFT_DEPTH_MAX + beyond
    data = b"\x1c" * inner + bytes(inner + 1)  # field 1, a struct; and the ends
    assert ("too deeply" in refusal(read_struct, data)) is bool(beyond)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_file_of_transactions(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_FILE_BYTES_MAX", 3 * entry_bytes())
    assert (aborted_entries(bytes((3 + beyond) * entry_bytes())) is None) is bool(beyond)


@pytest.mark.parametrize("size", [limits.POSITION_MAX, limits.POSITION_MAX + 1, 2**31 - 1])
def test_no_position_is_beyond_what_kafka_can_add_to(size: int) -> None:
    batches = np.zeros(2, dtype=BATCH_DTYPE)
    batches["length"] = (size - 200, 200 - 2 * 12)
    batches["served_size"] = 2**31 - 1
    positions = PositionAssigner(0, size).assign(batches)
    assert positions[0] == 0
    assert size // 2 - 200 < positions[1] < limits.POSITION_MAX


def test_the_setting_goes_no_further_than_arrow() -> None:
    mib = limits.DECOMPRESSED_BATCH_BYTES_CEILING // limits.MIB
    assert LimitSettings(decompressed_batch_mib=mib).decompressed_batch_mib == mib
    with pytest.raises(ValueError, match="decompressed_batch_mib"):
        LimitSettings(decompressed_batch_mib=mib + 1)
