"""Any segment: what the writer stored comes back byte for byte, and general readers see the same rows."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import converter.index.block_writer
import converter.parquet.writer
from converter.types import BatchFlag, Cause, ValueFormat
from tests.support.examples import examples
from tests.worlds.index_support import Batch, Record, Stored, write

blobs = st.one_of(
    st.none(),
    st.just(b""),
    st.binary(max_size=12),
    st.text(max_size=8).map(str.encode),
    st.integers(1, 5000).map(lambda n: b"long " * n),
)
headers = st.lists(st.tuples(st.text(max_size=5).map(str.encode), blobs), max_size=4).map(tuple)
kept_causes = st.sampled_from([Cause.SERVED_SIZE, Cause.NOT_CANONICAL, Cause.NO_ROWS, Cause.BAD_CRC, Cause.UNDECODABLE])


@st.composite
def batch_lists(draw: st.DrawFn) -> list[Batch]:
    """Batches with ascending offsets and gaps between them."""
    batches: list[Batch] = []
    offset = draw(st.sampled_from([0, 7, 2**40]))
    for _ in range(draw(st.integers(0, 12))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 1000]))
        exact = draw(st.booleans())
        deltas = st.integers(-(2**62), 2**62) if exact else st.integers(-1000, 10**9)
        gaps = draw(st.lists(st.integers(1, 3), max_size=6))
        records = [
            Record(sum(gaps[:i]), draw(deltas), draw(blobs), draw(blobs), draw(headers)) for i in range(len(gaps))
        ]
        batch = Batch(
            offset,
            records,
            last_offset_delta=sum(gaps) + draw(st.integers(0, 2)),
            base_timestamp=0 if exact else draw(st.integers(0, 10**14)),
            attributes=draw(st.sampled_from([0, 8, 16, 24])),
            leader_epoch=draw(st.integers(0, 3)),
            producer_id=draw(st.sampled_from([-1, 5, 2**62])),
            producer_epoch=draw(st.integers(-1, 2**15 - 1)),
            base_sequence=draw(st.integers(-1, 2**31 - 1)),
            exact=exact,
        )
        if not records or draw(st.integers(0, 3)) == 0:
            batch.kept, batch.cause = True, draw(kept_causes)
        if draw(st.integers(0, 4)) == 0:
            batch.flags |= BatchFlag.UNDECIDED
        if draw(st.booleans()):
            batch.original_size = draw(st.integers(61, 3 * len(batch.encode())))
        batches.append(batch)
        offset += batch.last_offset_delta + 1
    return batches


def check_rows(stored: Stored, batches: list[Batch], value_format: ValueFormat) -> None:
    """PyArrow, the oracle, reads the same records from the data file."""
    expected = [
        (batch.base_offset + r.offset_delta, r.key, r.value, [(k, v) for k, v in r.headers])
        for batch in batches
        if batch.cause in (Cause.NONE, Cause.SERVED_SIZE, Cause.NOT_CANONICAL)
        for r in batch.records
    ]
    if not expected:
        assert stored.data == b""
        return
    found = []
    rows = [row for file in stored.data_files() for row in pq.read_table(io.BytesIO(file)).to_pylist()]
    for row in rows:
        value = row["_kafka_value"]
        if value_format == "string" and row["value"] is not None:
            assert value is None
            value = row["value"].encode()
        pairs = [(h["key"].encode(), h["value"]) for h in row["_kafka_headers"]]
        found.append((row["_kafka_offset"], row["_kafka_key"], value, pairs))
    assert found == expected


@examples(60)
@given(
    batches=batch_lists(),
    value_format=st.sampled_from(["raw", "string"]),
    block=st.integers(1, 5),
    group_bytes=st.sampled_from([1, 3000, 2**25]),
    cut=st.integers(0, 12),
    chunk_bytes=st.sampled_from([1, 300, 2**20]),
)
def test_stored_and_served(
    batches: list[Batch], value_format: ValueFormat, block: int, group_bytes: int, cut: int, chunk_bytes: int
) -> None:
    start = batches[0].base_offset if batches else 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converter.index.block_writer, "BLOCK_BATCHES_MAX", block)
        patch.setattr(converter.parquet.writer, "ROW_GROUP_BYTES", group_bytes)
        stored = write([batches[:cut], batches[cut:]], value_format, start_offset=start)
    assert stored.read_all(chunk_bytes) == stored.served
    assert stored.kept == b"".join(batch.encode() for batch in batches if batch.kept)
    check_rows(stored, batches, value_format)


@examples(40)
@given(batches=batch_lists(), data=st.data())
def test_any_range_of_batches(batches: list[Batch], data: st.DataObject) -> None:
    if not batches:
        return
    stored = write([batches], start_offset=batches[0].base_offset)
    block = stored.block(0)
    first = data.draw(st.integers(0, len(batches) - 1))
    last = data.draw(st.integers(first, len(batches) - 1))
    assert stored.read(block, first, last) == b"".join(batch.encode() for batch in batches[first : last + 1])
