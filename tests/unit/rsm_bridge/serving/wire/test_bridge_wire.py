"""Messages parsed by hand, with protobuf as the judge; whatever arrives is a message or one error."""

from __future__ import annotations

from contextlib import suppress

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converter.types import IndexType
from rsm_bridge.errors import BridgeError
from rsm_bridge.limits import (
    FRAME_BYTES_MAX,
    LATER_INDEX_BYTES_MAX,
    LATER_INDEXES_MAX,
    LEADER_EPOCHS_MAX,
    NAME_CHARS_MAX,
    OFFSET_MAX,
)
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.wire.messages import (
    End,
    File,
    Frame,
    Start,
    fields,
    parse,
    parse_copy_request,
    segment_metadata,
)


def metadata(**changes: object) -> rsm_pb2.SegmentMetadata:
    values: dict[str, object] = {
        "cluster_name": "c",
        "topic": "flights",
        "topic_id": bytes(range(16)),
        "partition": 3,
        "segment_id": bytes(range(16, 32)),
        "start_offset": 100,
        "end_offset": 199,
        "max_timestamp_ms": 5,
        "broker_id": 1,
        "event_timestamp_ms": 6,
        "segment_size_bytes": 4096,
        "leader_epochs": [
            rsm_pb2.LeaderEpoch(epoch=0, start_offset=0),
            rsm_pb2.LeaderEpoch(epoch=4, start_offset=120),
        ],
    }
    return rsm_pb2.SegmentMetadata(**{**values, **changes})  # type: ignore[arg-type]


def refused(data: bytes, text: str, kind: str = "bad_request") -> None:
    with pytest.raises(BridgeError) as caught:
        parse_copy_request(data)
    assert caught.value.kind == kind
    assert text in str(caught.value)


@given(st.integers(0, 2**63 - 1), st.binary(min_size=1, max_size=3000))
def test_frames_are_what_protobuf_writes(position: int, data: bytes) -> None:
    crc = crc32c.crc32c(data)
    message = rsm_pb2.CopyRequest(position=position, data=data, data_crc32c=crc).SerializeToString()
    frame = parse_copy_request(message)
    assert isinstance(frame, Frame)
    assert (frame.position, bytes(frame.data), frame.crc) == (position, data, crc)
    frame.check()


def test_a_frame_that_was_damaged_is_named_by_its_position() -> None:
    message = rsm_pb2.CopyRequest(position=77, data=b"abc", data_crc32c=crc32c.crc32c(b"abd")).SerializeToString()
    frame = parse_copy_request(message)
    assert isinstance(frame, Frame)
    with pytest.raises(BridgeError, match="position 77") as caught:
        frame.check()
    assert caught.value.kind == "damaged_in_transit"


@pytest.mark.parametrize("kind", list(IndexType))
def test_pieces_of_files(kind: IndexType) -> None:
    data = bytes(range(50))
    file = rsm_pb2.IndexFile(
        type=int(kind),  # type: ignore[arg-type]
        data=data,
        data_crc32c=crc32c.crc32c(data),
        position=7,
        size_bytes=90,
    )
    assert parse_copy_request(rsm_pb2.CopyRequest(file=file).SerializeToString()) == File(kind, memoryview(data), 7, 90)
    file.data_crc32c ^= 1
    refused(rsm_pb2.CopyRequest(file=file).SerializeToString(), kind.name, "damaged_in_transit")


def test_an_empty_file_has_a_checksum_of_zero() -> None:
    file = rsm_pb2.IndexFile(type=IndexType.TRANSACTION.value)  # type: ignore[arg-type]
    message = rsm_pb2.CopyRequest(file=file).SerializeToString()
    assert parse_copy_request(message) == File(IndexType.TRANSACTION, memoryview(b""), 0, 0)


def test_start_and_end() -> None:
    message = rsm_pb2.CopyRequest(start=rsm_pb2.CopyStart(segment=metadata(custom_metadata=bytes(1000))))
    start = parse_copy_request(message.SerializeToString())
    assert isinstance(start, Start)
    assert (start.segment.topic, start.segment.partition, start.segment.end_offset) == ("flights", 3, 199)
    assert [(run.epoch, run.start_offset) for run in start.described().leader_epochs] == [(0, 0), (4, 120)]
    assert (start.segment.leader_epochs, start.segment.custom_metadata) == ((), b"")
    end = rsm_pb2.CopyRequest(end=rsm_pb2.CopyEnd(size_bytes=1 << 30)).SerializeToString()
    assert parse_copy_request(end) == End(1 << 30)


def later(*files: tuple[int, bytes]) -> bytes:
    indexes = [rsm_pb2.LaterTransactionIndex(base_offset=at, data=d, data_crc32c=crc32c.crc32c(d)) for at, d in files]
    start = rsm_pb2.CopyStart(segment=metadata(), later_transaction_indexes=indexes)
    return rsm_pb2.CopyRequest(start=start).SerializeToString()


def test_later_transaction_indexes() -> None:
    start = parse_copy_request(later((200, b"a" * 34), (300, b""), (301, b"cut")))
    assert isinstance(start, Start)
    assert start.later == (b"a" * 34, b"", b"cut")
    largest = [(200 + number, bytes(LATER_INDEX_BYTES_MAX // LATER_INDEXES_MAX)) for number in range(LATER_INDEXES_MAX)]
    assert isinstance(parse_copy_request(later(*largest)), Start)
    refused(later(*largest, (999, b"")), "too many")
    refused(later((200, bytes(LATER_INDEX_BYTES_MAX + 1))), "too many")
    refused(later((199, b"x")), "not ascending above end_offset")
    refused(later((300, b"x"), (300, b"x")), "not ascending")
    refused(later((300, b"wxyz")).replace(b"wxyz", b"wxyy"), "at 300", "damaged_in_transit")


def test_fields_of_other_numbers_are_skipped() -> None:
    frame = rsm_pb2.CopyRequest(position=1, data=b"x", data_crc32c=2).SerializeToString()
    unknown = b"\x98\x06\x07" + b"\xa2\x06\x03abc" + b"\xad\x06abcd" + b"\xb1\x06abcdefgh"
    parsed = parse_copy_request(unknown + frame + unknown)
    assert isinstance(parsed, Frame)
    assert (parsed.position, bytes(parsed.data), parsed.crc) == (1, b"x", 2)


def test_messages_that_cannot_be() -> None:
    refused(b"", "a frame holds 1 to")
    refused(rsm_pb2.CopyRequest(position=4).SerializeToString(), "not 0")
    refused(rsm_pb2.CopyRequest(data=bytes(FRAME_BYTES_MAX + 1)).SerializeToString(), f"not {FRAME_BYTES_MAX + 1}")
    both = rsm_pb2.CopyRequest(end=rsm_pb2.CopyEnd(size_bytes=1)).SerializeToString()
    refused(both + rsm_pb2.CopyRequest(data=b"x").SerializeToString(), "exactly one")
    refused(b"\x2a\x7fabc", "longer than the message")
    refused(b"\x20" + b"\xff" * 10, "does not end")
    refused(b"\x03", "field number 0")
    refused(b"\x0b", "wire type 3")
    refused(b"\x28\x05", "wrong type")  # data as a number
    refused(b"\x22\x01a", "wrong type")  # position as bytes
    refused(b"\x2a\x01a\x32\x03abc", "four bytes")
    refused(b"\x12\x02\x08\x7f", "unknown index type 127")
    large = bytes(FRAME_BYTES_MAX + 1)
    refused(
        rsm_pb2.CopyRequest(file=rsm_pb2.IndexFile(type=rsm_pb2.IndexType.Name(1), data=large)).SerializeToString(),
        "a piece of a file holds at most",
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_one_error(data: bytes) -> None:
    with suppress(BridgeError):
        fields(memoryview(data))
    with suppress(BridgeError):
        parse_copy_request(data)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topic_id": b"short"}, "topic_id is not 16 bytes"),
        ({"segment_id": b""}, "segment_id is not 16 bytes"),
        *(
            ({"topic": name}, "topic is no name")
            for name in ("", "t" * 250, ".", "..", "a/b", "a\0b", "ä", "a b", "a\n")
        ),
        ({"cluster_name": "c" * (NAME_CHARS_MAX + 1)}, "cluster_name is too long"),
        ({"partition": -1}, "partition is negative"),
        ({"start_offset": -1}, "start_offset is negative"),
        ({"end_offset": 99}, "end_offset is below start_offset"),
        ({"end_offset": OFFSET_MAX + 1}, "or the last there is"),
        ({"segment_size_bytes": -1}, "segment_size_bytes is out of range"),
    ],
)
def test_metadata_that_cannot_be_is_named(changes: dict[str, object], text: str) -> None:
    message = metadata(**changes)
    with pytest.raises(BridgeError, match=text) as caught:
        segment_metadata(message)
    assert caught.value.kind == "bad_request"


def start_of(epochs: list[rsm_pb2.LeaderEpoch]) -> bytes:
    start = rsm_pb2.CopyStart(segment=metadata(leader_epochs=epochs))
    return rsm_pb2.CopyRequest(start=start).SerializeToString()


def test_epochs_must_ascend_and_are_not_too_many() -> None:
    falling = [rsm_pb2.LeaderEpoch(epoch=4, start_offset=0), rsm_pb2.LeaderEpoch(epoch=4, start_offset=9)]
    back = [rsm_pb2.LeaderEpoch(epoch=1, start_offset=9), rsm_pb2.LeaderEpoch(epoch=2, start_offset=8)]
    for epochs in (falling, back):
        refused(start_of(epochs), "not ascending")
    steady = [rsm_pb2.LeaderEpoch(epoch=epoch, start_offset=100) for epoch in range(LEADER_EPOCHS_MAX + 1)]
    assert isinstance(parse_copy_request(start_of(steady[1:])), Start)
    refused(start_of(steady), "20001 leader_epochs, more than 20000")


def test_garbage_is_no_protobuf_message() -> None:
    with pytest.raises(BridgeError, match="malformed message") as caught:
        parse(rsm_pb2.FetchSegmentRequest(), b"\xff\xff\xff")
    assert caught.value.kind == "bad_request"
