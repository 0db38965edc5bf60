"""The shim's calls without a broker: copies and fetches over gRPC, payloads handed through as raw bytes."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import grpc
from crc32c import crc32c

from benchmarks.limits import CALL_S, FRAME_BYTES
from converter.types import IndexType, SegmentMetadata
from rsm_bridge.limits import PROTOCOL_VERSION
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.wire.statuses import PROTOCOL_HEADER

SERVICE = "/tierberg.v1.RemoteStorage/"
HEADERS = ((PROTOCOL_HEADER, str(PROTOCOL_VERSION)),)
# As the shim's channels: no more than a small window ahead of the reader.
_OPTIONS = (
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.http2.lookahead_bytes", 256 * 1024),
    ("grpc.http2.bdp_probe", 0),
)
_POSITION_FIELD, _DATA_FIELD, _CRC_FIELD = b"\x20", b"\x2a", b"\x35"
_NO_PRODUCERS = struct.pack(">i", 0)


@dataclass(slots=True)
class _Outcome:
    """What a copy's answer stream has said so far; `done` is set when it has ended."""

    done: threading.Event
    custom_metadata: bytes = b""


class BridgeClient:
    """One channel to a bridge; safe for use by many threads. Use as a context manager."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._copy = self._channel.stream_stream(f"{SERVICE}CopySegment", None, None)
        self._fetch = self._channel.unary_stream(f"{SERVICE}FetchSegment", None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def copy(self, metadata: SegmentMetadata, data: memoryview) -> SegmentMetadata:
        """Copies one segment; returns its metadata with the custom metadata that Kafka would keep.

        Raises:
            grpc.RpcError: the copy failed.
            RuntimeError: it ended without a result, or asked for a restart.
        """
        outcome = _Outcome(threading.Event())
        try:
            for answer in self._copy(_requests(metadata, data, outcome.done), timeout=CALL_S, metadata=HEADERS):
                message = rsm_pb2.CopyResponse.FromString(answer)
                if message.HasField("restart"):
                    raise RuntimeError(f"the bridge asks for a restart: {message.restart.reason}")
                if message.HasField("result"):
                    outcome.custom_metadata = message.result.custom_metadata
                    outcome.done.set()
        finally:
            outcome.done.set()
        if not outcome.custom_metadata:
            raise RuntimeError("the copy ended without a result")
        return replace(metadata, custom_metadata=outcome.custom_metadata)

    def fetch(self, metadata: SegmentMetadata, position: int, bytes_max: int) -> int:
        """Reads from `position` until `bytes_max` bytes or the segment's end, then hangs up, as a broker does.

        Returns the bytes read. Raises grpc.RpcError when the fetch fails.
        """
        request = rsm_pb2.FetchSegmentRequest(segment=_segment(metadata), start_position=position)
        call = self._fetch(request.SerializeToString(), timeout=CALL_S, metadata=HEADERS)
        read = 0
        for chunk in call:
            read += len(rsm_pb2.FetchChunk.FromString(chunk).data)
            if read >= bytes_max:
                call.cancel()  # type: ignore[no-untyped-call]
                break
        return read


def _requests(metadata: SegmentMetadata, data: memoryview, done: threading.Event) -> Iterator[bytes]:
    start = rsm_pb2.CopyRequest(start=rsm_pb2.CopyStart(segment=_segment(metadata)))
    yield start.SerializeToString()
    for kind, content in _small_files().items():
        file = rsm_pb2.IndexFile(type=kind.name, data=content, data_crc32c=crc32c(content), size_bytes=len(content))
        yield rsm_pb2.CopyRequest(file=file).SerializeToString()
    for position in range(0, len(data), FRAME_BYTES):
        yield _frame(position, data[position : position + FRAME_BYTES])
    yield rsm_pb2.CopyRequest(end=rsm_pb2.CopyEnd(size_bytes=len(data))).SerializeToString()
    # The call stays open on our side until the bridge has answered: it might ask for the bytes once more.
    done.wait(CALL_S)


def delete_request(metadata: SegmentMetadata) -> bytes:
    """A serialised DeleteSegmentRequest."""
    return rsm_pb2.DeleteSegmentRequest(segment=_segment(metadata)).SerializeToString()


def _small_files() -> dict[IndexType, bytes]:
    """Kafka's files of a segment without producer ids; the bridge replaces OFFSET and hands back the others."""
    snapshot = struct.pack(">hI", 1, crc32c(_NO_PRODUCERS)) + _NO_PRODUCERS
    return {
        IndexType.OFFSET: b"",
        IndexType.TIMESTAMP: b"",
        IndexType.PRODUCER_SNAPSHOT: snapshot,
        IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    }


def _frame(position: int, data: memoryview) -> bytes:
    parts = (
        _POSITION_FIELD,
        _varint(position),
        _DATA_FIELD,
        _varint(len(data)),
        data,
        _CRC_FIELD,
        struct.pack("<I", crc32c(data)),
    )
    return b"".join(parts)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _segment(metadata: SegmentMetadata) -> rsm_pb2.SegmentMetadata:
    return rsm_pb2.SegmentMetadata(
        cluster_name=metadata.cluster_name,
        topic=metadata.topic,
        topic_id=metadata.topic_id,
        partition=metadata.partition,
        segment_id=metadata.segment_id,
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        max_timestamp_ms=metadata.max_timestamp_ms,
        broker_id=metadata.broker_id,
        event_timestamp_ms=metadata.event_timestamp_ms,
        segment_size_bytes=metadata.segment_size_bytes,
        leader_epochs=[
            rsm_pb2.LeaderEpoch(epoch=epoch.epoch, start_offset=epoch.start_offset) for epoch in metadata.leader_epochs
        ],
        custom_metadata=metadata.custom_metadata,
    )
