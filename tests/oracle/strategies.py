"""Hypothesis strategies for whole segments: every form of batch a broker may hold, and some that it should not.

Generators are wide on purpose: one that could not produce milliseconds once hid that they were dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from converter.batches.transactions import Transactions
from converter.types import LeaderEpoch, SegmentMetadata
from tests.oracle.records import NONE, ZSTD, Batch, Message, Record, encode_all, marker
from tests.oracle.transactions import Outcome, outcome

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MICROSECOND_LIMIT = INT64_MAX // 1000  # the largest millisecond a microsecond column holds
PRODUCERS = (1000, 1001, 2**40)

timestamps = st.one_of(
    st.integers(1_600_000_000_000, 1_800_000_000_000),
    st.sampled_from(
        [
            -1, 0, 1, 999, -2, -1000, INT64_MIN, INT64_MAX, INT64_MAX - 1, MICROSECOND_LIMIT, MICROSECOND_LIMIT + 1,
            -MICROSECOND_LIMIT, -MICROSECOND_LIMIT - 1,
        ]
    ),
    st.integers(INT64_MIN, INT64_MAX),
)  # fmt: skip

small_bytes = st.binary(max_size=20)
#: Lengths around the places where a varint grows, filled with one byte.
edge_bytes = st.builds(
    lambda size, byte: bytes([byte]) * size, st.sampled_from([63, 64, 65, 127, 128, 8191, 8192]), st.integers(0, 255)
)
texts = st.text(max_size=12).map(lambda text: text.encode())
contents = st.one_of(st.none(), st.just(b""), small_bytes, texts, edge_bytes)
header_names = st.one_of(texts, st.sampled_from([b"", b"k", b"k", b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80"]))
headers = st.lists(st.tuples(header_names, contents), max_size=4).map(tuple)
canonical_headers = st.lists(st.tuples(texts, contents), max_size=4).map(tuple)

deltas = st.one_of(
    st.integers(-5, 1000),
    st.sampled_from([0, 1, 127, 128, -1, INT64_MAX, INT64_MIN]),
    st.integers(INT64_MIN, INT64_MAX),
)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 12, canonical: bool = False) -> tuple[Record, ...]:
    """Records with ascending offset deltas, gaps included; odd encodings unless `canonical`."""
    count = draw(st.integers(1, max_size))
    compacted = draw(st.booleans())
    offset = -1
    records = []
    for _ in range(count):
        offset += draw(st.integers(1, 300)) if compacted else 1
        record = Record(
            offset_delta=offset,
            timestamp_delta=draw(deltas),
            key=draw(contents),
            value=draw(contents),
            headers=draw(canonical_headers if canonical else headers),
        )
        if not canonical and draw(st.integers(0, 15)) == 0:
            record = replace(record, **draw(st.sampled_from(_RECORD_QUIRKS)))
        records.append(record)
    return tuple(records)


#: Each decodes with Kafka's own classes and does not come back from columns.
_RECORD_QUIRKS: list[dict[str, Any]] = [{"attributes": 1}, {"attributes": 255}, {"padding": 1}, {"null_length": -7}]

#: Each fails in Kafka's own classes, or must not become rows.
BATCH_QUIRKS: list[dict[str, Any]] = [
    {"trailing": b"\x00"},
    {"count": 1000},
    {"count": -1},
    {"payload": b""},
    {"payload": b"\xff" * 40},
    {"payload": b"\x0e" + b"\x80" * 30},
    {"codec": 5},
    {"codec": 7},
    {"magic": 3},
    {"magic": -1},
    {"crc_error": 1},
    {"crc_error": 0xFFFFFFFF},
]


@st.composite
def batches(draw: st.DrawFn, base_offset: int, canonical: bool = False) -> Batch:
    """One data batch at an offset. `canonical`: of a form that must be rebuilt from columns (kept bytes 0)."""
    records = draw(record_lists(canonical=canonical))
    base_timestamp = draw(timestamps)
    batch = Batch(
        base_offset,
        records,
        codec=draw(st.integers(NONE, ZSTD)),
        log_append_time=draw(st.booleans()),
        delete_horizon=draw(st.integers(0, 7)) == 0,
        high_attributes=draw(st.sampled_from([0, 0, 0, 1, 0x1FF])),
        base_timestamp=base_timestamp,
        max_timestamp=draw(st.one_of(timestamps, st.just(base_timestamp))),
        last_offset_delta=records[-1].offset_delta + draw(st.sampled_from([0, 0, 0, 1, 100])),
        variant=draw(st.integers(0, 2)),
    )
    if draw(st.booleans()):
        batch = replace(
            batch,
            producer_id=draw(st.sampled_from(PRODUCERS)),
            producer_epoch=draw(st.sampled_from([0, 1, 32767])),
            base_sequence=draw(st.sampled_from([0, 1, 2**31 - 1])),
            transactional=draw(st.booleans()),
        )
    if canonical:
        return batch
    quirk = draw(st.integers(0, 15))
    if quirk == 0:
        return replace(batch, **draw(st.sampled_from(BATCH_QUIRKS)))
    if quirk == 1:
        return replace(batch, records=(), codec=NONE)
    return batch


messages = st.builds(
    Message,
    base_offset=st.just(0),
    key=st.one_of(st.none(), small_bytes),
    value=st.one_of(st.none(), small_bytes),
    magic=st.integers(0, 1),
    timestamp=timestamps,
    crc_error=st.sampled_from([0, 0, 0, 1]),
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A closed segment as the broker has it, with what it says about it."""

    batches: tuple[Batch | Message, ...]
    metadata: SegmentMetadata
    outcome: Outcome
    data: bytes

    @property
    def transactions(self) -> Transactions:
        return Transactions.parse(self.outcome.index, self.outcome.snapshot)


def make_segment(parts: list[Batch | Message], *, start_offset: int | None = None, slack: int = 0) -> Segment:
    """A segment of these batches; leader epochs are taken from them. `slack` offsets are free at the end."""
    data = encode_all(parts)
    start = parts[0].base_offset if start_offset is None else start_offset
    epochs: list[LeaderEpoch] = []
    for batch in parts:
        if isinstance(batch, Batch) and batch.magic == 2 and (not epochs or epochs[-1].epoch != batch.leader_epoch):
            epochs.append(LeaderEpoch(batch.leader_epoch, batch.base_offset if epochs else start))
    metadata = SegmentMetadata(
        cluster_name="cluster",
        topic="topic",
        topic_id=bytes(range(16)),
        partition=7,
        segment_id=bytes(range(16, 32)),
        start_offset=start,
        end_offset=parts[-1].last_offset + slack,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_bytes=len(data),
        leader_epochs=tuple(epochs) or (LeaderEpoch(0, start),),
    )
    return Segment(tuple(parts), metadata, outcome(parts), data)


@st.composite
def segments(draw: st.DrawFn, max_batches: int = 8, canonical: bool = False) -> Segment:
    """A segment of any forms, transactions consistent with its two files. `canonical`: see batches()."""
    offset = draw(st.sampled_from([0, 5, 2**31 - 3, 2**40]))
    start = offset
    epoch = draw(st.sampled_from([0, 3]))
    parts: list[Batch | Message] = []
    for _ in range(draw(st.integers(1, max_batches))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 1000]))
        epoch += draw(st.sampled_from([0, 0, 0, 1, 5]))
        kind = draw(st.integers(0, 9))
        part: Batch | Message
        if kind == 0:
            control = draw(st.sampled_from([0, 0, 1, 1, 2, 3, 4, 5, 6, 99]))
            part = marker(offset, draw(st.sampled_from(PRODUCERS)), control, leader_epoch=epoch)
            part = replace(part, codec=draw(st.sampled_from([NONE, NONE, NONE, ZSTD])))
        elif kind == 1 and not canonical:
            part = replace(draw(messages), base_offset=offset)
        else:
            part = replace(draw(batches(offset, canonical=canonical)), leader_epoch=epoch)
        parts.append(part)
        offset = part.last_offset + 1
    return make_segment(parts, start_offset=start, slack=draw(st.sampled_from([0, 0, 3])))
