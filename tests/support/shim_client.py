"""A client that behaves like the shim in the broker: what it sends, in which order, and what it does with answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from queue import Queue
from types import TracebackType
from typing import Any, Self

import grpc
from crc32c import crc32c

from converter.types import IndexType
from rsm_bridge.proto import rsm_pb2
from tests.support.kafka_log import LogBuilder, checkpoint, empty_producer_snapshot

FRAME_BYTES = 1024 * 1024
SERVICE = "/tierberg.v1.RemoteStorage/"
HEADERS = (("tierberg-protocol", "1"),)


@dataclass(frozen=True)
class Segment:
    """A closed segment on a broker's disk."""

    data: bytes
    start_offset: int
    end_offset: int
    topic: str = "orders"
    topic_id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    partition: int = 0
    segment_id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    files: Mapping[IndexType, bytes] = field(default_factory=dict)
    custom_metadata: bytes = b""
    cluster: str = "test"
    later: tuple[tuple[int, bytes], ...] = ()  # transaction indexes of later segments, by base offset
    later_complete: bool = False  # they are all there are
    max_timestamp_ms: int = 1_700_000_000_000
    event_timestamp_ms: int = 1_700_000_000_000

    def message(self) -> rsm_pb2.SegmentMetadata:
        return rsm_pb2.SegmentMetadata(
            cluster_name=self.cluster,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            segment_id=self.segment_id,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            broker_id=1,
            event_timestamp_ms=self.event_timestamp_ms,
            segment_size_bytes=len(self.data),
            leader_epochs=[rsm_pb2.LeaderEpoch(epoch=epoch, start_offset=start) for epoch, start in self.epochs],
            custom_metadata=self.custom_metadata,
        )

    def finished(self, custom_metadata: bytes) -> Segment:
        return replace(self, custom_metadata=custom_metadata)


def segment_of(log: LogBuilder, **changes: object) -> Segment:
    """The builder's log as a closed segment with the files Kafka would send."""
    files = {
        IndexType.TIMESTAMP: b"\0" * 12,
        IndexType.PRODUCER_SNAPSHOT: empty_producer_snapshot(),
        IndexType.LEADER_EPOCH: checkpoint([(log.epoch, 0)]),
    }
    files.update(changes.pop("files", {}))  # type: ignore[call-overload]
    values: dict[str, object] = {"epochs": ((log.epoch, 0),), **changes}
    return Segment(log.data, log.base_offset, log.next_offset - 1, files=files, **values)  # type: ignore[arg-type]


@dataclass
class CopyAnswer:
    """What a copy came to."""

    custom_metadata: bytes = b""
    stages: list[str] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)


class ShimError(Exception):
    """A failed call: gRPC's code and the trailer's kind."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code()
        kinds = [item.value for item in error.trailing_metadata() or () if item.key == "tierberg-error"]
        self.kind = str(kinds[0]) if kinds else None
        self.details = error.details()


class ShimClient:
    """Calls of one broker on one channel. All calls have deadlines."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None = None, timeout: float = 60.0) -> None:
        options = [
            ("grpc.max_receive_message_length", 64 << 20),
            ("grpc.max_send_message_length", 64 << 20),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self.timeout = timeout
        self.channel = (
            grpc.insecure_channel(target, options)
            if credentials is None
            else grpc.secure_channel(target, credentials, options)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def stub(self, kind: str, method: str) -> Any:
        return getattr(self.channel, kind)(SERVICE + method)

    def copy(self, segment: Segment, *, headers: tuple[tuple[str, str], ...] = HEADERS) -> CopyAnswer:
        """A whole copy, with a restart when the bridge asks for one."""
        outgoing: Queue[bytes | None] = Queue()
        for message in copy_messages(segment):
            outgoing.put(message)
        call = self.stub("stream_stream", "CopySegment")(
            iter(outgoing.get, None), metadata=headers, timeout=self.timeout
        )
        answer = CopyAnswer()
        try:
            for data in call:
                response = rsm_pb2.CopyResponse.FromString(data)
                step = response.WhichOneof("step")
                if step == "heartbeat":
                    answer.stages.append(response.heartbeat.stage)
                elif step == "restart":
                    answer.restarts.append(response.restart.reason)
                    for message in log_messages(segment):
                        outgoing.put(message)
                else:
                    answer.custom_metadata = response.result.custom_metadata
        except grpc.RpcError as error:
            raise ShimError(error) from error
        finally:
            outgoing.put(None)
            call.cancel()
        return answer

    def copied(self, segment: Segment) -> Segment:
        """Copies, and returns the segment as Kafka knows it from then on."""
        return segment.finished(self.copy(segment).custom_metadata)

    def fetch(self, segment: Segment, start: int = 0, end: int | None = None) -> bytes:
        request = rsm_pb2.FetchSegmentRequest(segment=segment.message(), start_position=start)
        if end is not None:
            request.end_position = end
        return self._chunks("FetchSegment", request.SerializeToString())

    def fetch_index(self, segment: Segment, kind: IndexType) -> bytes:
        request = rsm_pb2.FetchIndexRequest(segment=segment.message(), type=rsm_pb2.IndexType.Name(kind))
        return self._chunks("FetchIndex", request.SerializeToString())

    def _chunks(self, method: str, request: bytes) -> bytes:
        call = self.stub("unary_stream", method)(request, metadata=HEADERS, timeout=self.timeout)
        try:
            return b"".join(rsm_pb2.FetchChunk.FromString(chunk).data for chunk in call)
        except grpc.RpcError as error:
            raise ShimError(error) from error

    def delete(self, segment: Segment) -> None:
        request = rsm_pb2.DeleteSegmentRequest(segment=segment.message()).SerializeToString()
        try:
            self.stub("unary_unary", "DeleteSegment")(request, metadata=HEADERS, timeout=self.timeout)
        except grpc.RpcError as error:
            raise ShimError(error) from error


def copy_messages(segment: Segment) -> Iterator[bytes]:
    """All messages of a copy, in order."""
    later = [
        rsm_pb2.LaterTransactionIndex(base_offset=base, data=data, data_crc32c=crc32c(data))
        for base, data in segment.later
    ]
    start = rsm_pb2.CopyStart(
        segment=segment.message(),
        later_transaction_indexes=later,
        later_transaction_indexes_complete=segment.later_complete,
    )
    yield rsm_pb2.CopyRequest(start=start).SerializeToString()
    for kind, data in segment.files.items():
        yield from file_messages(kind, data)
    yield from log_messages(segment)


def file_messages(kind: IndexType, data: bytes) -> Iterator[bytes]:
    """A file beside the log, in pieces."""
    for position in range(0, max(len(data), 1), FRAME_BYTES):
        piece = data[position : position + FRAME_BYTES]
        file = rsm_pb2.IndexFile(
            type=rsm_pb2.IndexType.Name(kind),
            data=piece,
            data_crc32c=crc32c(piece),
            position=position,
            size_bytes=len(data),
        )
        yield rsm_pb2.CopyRequest(file=file).SerializeToString()


def log_messages(segment: Segment) -> Iterator[bytes]:
    """The frames and the end."""
    for position in range(0, len(segment.data), FRAME_BYTES):
        data = segment.data[position : position + FRAME_BYTES]
        yield frame_message(position, data)
    yield rsm_pb2.CopyRequest(end=rsm_pb2.CopyEnd(size_bytes=len(segment.data))).SerializeToString()


def frame_message(position: int, data: bytes, crc: int | None = None) -> bytes:
    checksum = crc32c(data) if crc is None else crc
    return rsm_pb2.CopyRequest(position=position, data=data, data_crc32c=checksum).SerializeToString()
