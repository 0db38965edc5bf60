"""Errors as gRPC statuses (proto/tierberg/v1/rsm.proto, "Errors")."""

from __future__ import annotations

import grpc

from converter.errors import SegmentError
from rsm_bridge.errors import BridgeError, ErrorKind

ERROR_TRAILER = "tierberg-error"
PROTOCOL_HEADER = "tierberg-protocol"

CODES: dict[ErrorKind, grpc.StatusCode] = {
    "invalid_segment": grpc.StatusCode.INVALID_ARGUMENT,
    "damaged_in_transit": grpc.StatusCode.INVALID_ARGUMENT,
    "bad_request": grpc.StatusCode.INVALID_ARGUMENT,
    "corrupt_object": grpc.StatusCode.DATA_LOSS,
    "unsupported_version": grpc.StatusCode.FAILED_PRECONDITION,
    "protocol_mismatch": grpc.StatusCode.FAILED_PRECONDITION,
    "foreign_segment": grpc.StatusCode.FAILED_PRECONDITION,
    "not_allowed": grpc.StatusCode.PERMISSION_DENIED,
    "not_found": grpc.StatusCode.NOT_FOUND,
    "no_index": grpc.StatusCode.NOT_FOUND,
    "segment_deleted": grpc.StatusCode.NOT_FOUND,
    "overloaded": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "store_unavailable": grpc.StatusCode.UNAVAILABLE,
    "deadline": grpc.StatusCode.DEADLINE_EXCEEDED,
    "cancelled": grpc.StatusCode.CANCELLED,
    "internal": grpc.StatusCode.INTERNAL,
}


def explain(error: BaseException) -> tuple[ErrorKind, str]:
    """Kind and one sentence of any exception. What nobody expected is `internal` and names only its type."""
    if isinstance(error, BridgeError | SegmentError):
        return error.kind, str(error)
    if isinstance(error, TimeoutError):
        return "deadline", str(error) or "the deadline has passed"
    return "internal", f"unexpected {type(error).__name__}: {str(error).partition(chr(10))[0]}"
