"""Parse any segment: the rows are the oracle's, and every batch comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from converter.types import BatchFlag, Cause, ConvertOptions
from tests.oracle.expect import actual_rows, expected, expected_rows, parse, served, table
from tests.oracle.records import NONE, Batch, Message, decode_batch, split_batches
from tests.oracle.strategies import Segment, segments
from tests.support.examples import examples

slices = st.sampled_from([0, 0, 1, 7, 64, 1000])


@given(segments(), slices)
def test_every_batch_comes_back(segment: Segment, slice_bytes: int) -> None:
    """Byte for byte when it came uncompressed or is kept, else equal in everything but the codec."""
    steps = parse(segment, slice_bytes=slice_bytes)
    batches = table(steps)
    back = served(steps)
    sent = split_batches(segment.data)
    assert len(back) == len(sent)
    for i, (batch, original, again) in enumerate(zip(segment.batches, sent, back, strict=True)):
        kept = bool(batches["flags"][i] & BatchFlag.KEPT)
        if kept or isinstance(batch, Message) or batch.codec == NONE:
            assert again == original
        else:
            want, got = decode_batch(original), decode_batch(again)
            assert got.codec == NONE
            assert got.same_but_codec(want)


@given(segments(), st.sampled_from(["raw", "string"]))
def test_rows_are_what_a_reader_sees(segment: Segment, value_format: str) -> None:
    steps = parse(segment, ConvertOptions(value_format=value_format))  # type: ignore[arg-type]
    assert actual_rows(steps) == expected_rows(segment, value_format)


@given(segments())
def test_flags_and_causes(segment: Segment) -> None:
    batches = table(parse(segment))
    for i, batch in enumerate(segment.batches):
        flags = BatchFlag(int(batches["flags"][i]))
        cause = Cause(int(batches["cause"][i]))
        want = expected(segment, i)
        decision = segment.outcome.decisions[i]
        if isinstance(batch, Message):
            assert BatchFlag.LEGACY in flags
            assert cause == (Cause.BAD_CRC if batch.crc_error else Cause.LEGACY_MAGIC)
        elif batch.magic == 2 and batch.crc_error:
            assert cause == Cause.BAD_CRC
        elif batch.magic == 2 and (batch.control or decision == "aborted"):
            assert cause == Cause.NO_ROWS
        elif want.records is None:
            assert cause == Cause.UNDECODABLE
        elif not want.records:
            assert cause == Cause.NO_ROWS
        else:
            assert cause in (Cause.NONE, Cause.NOT_CANONICAL)
        assert (BatchFlag.ROWS in flags) == want.rows
        assert (BatchFlag.UNDECIDED in flags) == (decision == "open" and want.rows)
        assert (BatchFlag.KEPT in flags) == (cause != Cause.NONE)
        withheld = cause in (Cause.BAD_CRC, Cause.UNDECODABLE, Cause.LEGACY_MAGIC)
        assert (BatchFlag.QUARANTINED in flags) == withheld


@given(segments(canonical=True))
def test_nothing_canonical_is_kept(segment: Segment) -> None:
    """Kept bytes are 0 for every canonical form, LogAppendTime, odd timestamps and every codec included."""
    batches = table(parse(segment))
    for i, batch in enumerate(segment.batches):
        if isinstance(batch, Batch) and not batch.control and segment.outcome.decisions[i] != "aborted":
            assert not batches["flags"][i] & BatchFlag.KEPT, batch


@given(segments())
def test_header_table_is_what_was_sent(segment: Segment) -> None:
    batches = table(parse(segment))
    position = 0
    for row, batch in zip(batches, segment.batches, strict=True):
        size = len(batch.encode())
        assert row["base_offset"] == batch.base_offset
        assert row["length"] + 12 == size
        assert row["source_position"] == position
        assert row["magic"] == batch.magic
        position += size
        if isinstance(batch, Message) or batch.magic != 2:
            continue
        for name in (
            "leader_epoch", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
            "producer_epoch", "base_sequence",
        ):  # fmt: skip
            assert row[name] == getattr(batch, name), name
        control = -1
        if batch.control and batch.records and batch.records[0].key:
            control = int.from_bytes(batch.records[0].key[2:4], "big")
        assert row["control_type"] == control


@given(segments(), slices)
@examples(30)
def test_slicing_changes_nothing(segment: Segment, slice_bytes: int) -> None:
    whole, sliced = parse(segment), parse(segment, slice_bytes=slice_bytes)
    assert table(whole).tobytes() == table(sliced).tobytes()
    assert actual_rows(whole) == actual_rows(sliced)
