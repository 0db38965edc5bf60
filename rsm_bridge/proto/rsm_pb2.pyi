from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IndexType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INDEX_TYPE_UNSPECIFIED: _ClassVar[IndexType]
    OFFSET: _ClassVar[IndexType]
    TIMESTAMP: _ClassVar[IndexType]
    PRODUCER_SNAPSHOT: _ClassVar[IndexType]
    TRANSACTION: _ClassVar[IndexType]
    LEADER_EPOCH: _ClassVar[IndexType]
INDEX_TYPE_UNSPECIFIED: IndexType
OFFSET: IndexType
TIMESTAMP: IndexType
PRODUCER_SNAPSHOT: IndexType
TRANSACTION: IndexType
LEADER_EPOCH: IndexType

class SegmentMetadata(_message.Message):
    __slots__ = ("cluster_name", "topic", "topic_id", "partition", "segment_id", "start_offset", "end_offset", "max_timestamp_ms", "broker_id", "event_timestamp_ms", "segment_size_bytes", "leader_epochs", "custom_metadata")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_METADATA_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    topic: str
    topic_id: bytes
    partition: int
    segment_id: bytes
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    leader_epochs: _containers.RepeatedCompositeFieldContainer[LeaderEpoch]
    custom_metadata: bytes
    def __init__(self, cluster_name: _Optional[str] = ..., topic: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., segment_id: _Optional[bytes] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., max_timestamp_ms: _Optional[int] = ..., broker_id: _Optional[int] = ..., event_timestamp_ms: _Optional[int] = ..., segment_size_bytes: _Optional[int] = ..., leader_epochs: _Optional[_Iterable[_Union[LeaderEpoch, _Mapping]]] = ..., custom_metadata: _Optional[bytes] = ...) -> None: ...

class LeaderEpoch(_message.Message):
    __slots__ = ("epoch", "start_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start_offset: int
    def __init__(self, epoch: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("start", "file", "end", "position", "data", "data_crc32c")
    START_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DATA_CRC32C_FIELD_NUMBER: _ClassVar[int]
    start: CopyStart
    file: IndexFile
    end: CopyEnd
    position: int
    data: bytes
    data_crc32c: int
    def __init__(self, start: _Optional[_Union[CopyStart, _Mapping]] = ..., file: _Optional[_Union[IndexFile, _Mapping]] = ..., end: _Optional[_Union[CopyEnd, _Mapping]] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ..., data_crc32c: _Optional[int] = ...) -> None: ...

class CopyStart(_message.Message):
    __slots__ = ("segment", "later_transaction_indexes", "later_transaction_indexes_complete")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    LATER_TRANSACTION_INDEXES_FIELD_NUMBER: _ClassVar[int]
    LATER_TRANSACTION_INDEXES_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    segment: SegmentMetadata
    later_transaction_indexes: _containers.RepeatedCompositeFieldContainer[LaterTransactionIndex]
    later_transaction_indexes_complete: bool
    def __init__(self, segment: _Optional[_Union[SegmentMetadata, _Mapping]] = ..., later_transaction_indexes: _Optional[_Iterable[_Union[LaterTransactionIndex, _Mapping]]] = ..., later_transaction_indexes_complete: _Optional[bool] = ...) -> None: ...

class LaterTransactionIndex(_message.Message):
    __slots__ = ("base_offset", "data", "data_crc32c")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DATA_CRC32C_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    data: bytes
    data_crc32c: int
    def __init__(self, base_offset: _Optional[int] = ..., data: _Optional[bytes] = ..., data_crc32c: _Optional[int] = ...) -> None: ...

class IndexFile(_message.Message):
    __slots__ = ("type", "data", "data_crc32c", "position", "size_bytes")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DATA_CRC32C_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    type: IndexType
    data: bytes
    data_crc32c: int
    position: int
    size_bytes: int
    def __init__(self, type: _Optional[_Union[IndexType, str]] = ..., data: _Optional[bytes] = ..., data_crc32c: _Optional[int] = ..., position: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class CopyEnd(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class CopyResponse(_message.Message):
    __slots__ = ("heartbeat", "result", "restart")
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    heartbeat: Heartbeat
    result: CopyResult
    restart: Restart
    def __init__(self, heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., result: _Optional[_Union[CopyResult, _Mapping]] = ..., restart: _Optional[_Union[Restart, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("received_bytes", "stage", "copies_ahead")
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    COPIES_AHEAD_FIELD_NUMBER: _ClassVar[int]
    received_bytes: int
    stage: str
    copies_ahead: int
    def __init__(self, received_bytes: _Optional[int] = ..., stage: _Optional[str] = ..., copies_ahead: _Optional[int] = ...) -> None: ...

class Restart(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class CopyResult(_message.Message):
    __slots__ = ("custom_metadata",)
    CUSTOM_METADATA_FIELD_NUMBER: _ClassVar[int]
    custom_metadata: bytes
    def __init__(self, custom_metadata: _Optional[bytes] = ...) -> None: ...

class FetchSegmentRequest(_message.Message):
    __slots__ = ("segment", "start_position", "end_position")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    START_POSITION_FIELD_NUMBER: _ClassVar[int]
    END_POSITION_FIELD_NUMBER: _ClassVar[int]
    segment: SegmentMetadata
    start_position: int
    end_position: int
    def __init__(self, segment: _Optional[_Union[SegmentMetadata, _Mapping]] = ..., start_position: _Optional[int] = ..., end_position: _Optional[int] = ...) -> None: ...

class FetchIndexRequest(_message.Message):
    __slots__ = ("segment", "type")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    segment: SegmentMetadata
    type: IndexType
    def __init__(self, segment: _Optional[_Union[SegmentMetadata, _Mapping]] = ..., type: _Optional[_Union[IndexType, str]] = ...) -> None: ...

class FetchChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class DeleteSegmentRequest(_message.Message):
    __slots__ = ("segment",)
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    segment: SegmentMetadata
    def __init__(self, segment: _Optional[_Union[SegmentMetadata, _Mapping]] = ...) -> None: ...

class DeleteSegmentResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
