"""The four calls as gRPC sees them: protocol check, error mapping, one log line and one count per call.

Raw bytes in and out (see serving/wire/messages.py). No exception leaves a handler but gRPC's own abort.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import grpc
import structlog
from grpc import aio

from converter.errors import SegmentError
from converter.types import IndexType, SegmentMetadata
from iceberg_catalog import failpoints
from rsm_bridge.config.client_rules import ClientRule
from rsm_bridge.config.settings import LimitSettings
from rsm_bridge.errors import BridgeError, StoreError, release_frames
from rsm_bridge.limits import (
    ANSWER_SECONDS_MAX,
    DELETE_SECONDS_MAX,
    FETCH_CHUNK_BYTES,
    PROTOCOL_VERSION,
    REQUEST_BYTES_MAX,
    START_SECONDS_MAX,
    WARM_UP_BYTES,
)
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.access import Action, Caller, caller_of
from rsm_bridge.serving.copy.call import Copier, CopyCall
from rsm_bridge.serving.fetch.claim import FetchClaim
from rsm_bridge.serving.fetch.fetcher import Fetcher
from rsm_bridge.serving.owner_lookups import OwnerLookups
from rsm_bridge.serving.scheduling.call_pool import CallPool
from rsm_bridge.serving.scheduling.peers import Admission, Peer, peer_of
from rsm_bridge.serving.wire.messages import M, fetch_chunk, parse, segment_metadata
from rsm_bridge.serving.wire.statuses import CODES, ERROR_TRAILER, PROTOCOL_HEADER, explain
from rsm_bridge.storage.keys import index_key
from rsm_bridge.storage.segments.deleter import Deleter, Outcome
from rsm_bridge.storage.writes import StoreWrites

SERVICE = "tierberg.v1.RemoteStorage"
Context = aio.ServicerContext[bytes, bytes]
_WARM_UP = bytes(WARM_UP_BYTES)


@dataclass(slots=True, kw_only=True)
class Handlers:
    """The service.

    Attributes:
        deleted: told about each tombstone.
        clients: rules of client certificates; None: nobody is refused.
        owners: whose topics are, for callers that may write for some clusters only.
        writes: told what became of each copy that the store had to do with.
    """

    copier: Copier
    fetcher: Fetcher
    deleter: Deleter
    control: CallPool
    limits: LimitSettings
    metrics: Metrics
    log: structlog.typing.FilteringBoundLogger
    deleted: Callable[[SegmentMetadata, Outcome], None]
    clients: Sequence[ClientRule] | None
    owners: OwnerLookups
    writes: StoreWrites
    _copies: Admission = field(init=False)
    _fetches: Admission = field(init=False)

    def __post_init__(self) -> None:
        self._copies = Admission(self.limits.copies_max, "copies are running and waiting")
        self._fetches = Admission(self.limits.fetches_max, "fetches are open")

    def methods(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        """What the server registers, by method name."""
        return {
            "CopySegment": grpc.stream_stream_rpc_method_handler(self.copy_segment),
            # Their one request is read by the handler, not before it: admitted first, and with a deadline.
            "FetchSegment": grpc.stream_stream_rpc_method_handler(self.fetch_segment),
            "FetchIndex": grpc.stream_stream_rpc_method_handler(self.fetch_index),
            "DeleteSegment": grpc.stream_unary_rpc_method_handler(self.delete_segment),
        }

    async def copy_segment(self, _: AsyncIterator[bytes], context: Context) -> None:
        """CopySegment. The iterator stays unused: reads happen one by one, under flow control."""

        async def serve(caller: Caller) -> dict[str, object]:
            peer = peer_of(context)

            async def allow(segment: SegmentMetadata) -> Callable[[], None] | None:
                await self._may_write(caller, segment, peer)
                return self._asked_again(caller, segment)

            with self._copies.of(peer):
                try:
                    segment = await CopyCall(copier=self.copier, context=context, allow=allow).run()
                except StoreError as error:
                    self.writes.failed(str(error))
                    raise
            self.writes.worked()
            self.owners.stored(segment.topic_id)
            return {"bytes": segment.segment_size_bytes}

        await self._guard("copy", context, serve)

    async def fetch_segment(self, _: AsyncIterator[bytes], context: Context) -> None:
        """FetchSegment. An empty request is a plugin's warm-up."""

        async def serve(caller: Caller) -> dict[str, object] | None:
            with self._fetches.of(peer_of(context)):
                message = await _asked(rsm_pb2.FetchSegmentRequest(), context)
                if message is None:
                    await self._warm_up(caller, context)
                    return None
                segment, start = _named(message.segment), message.start_position
                end = message.end_position if message.HasField("end_position") else None
                del message  # it may be large, and the fetch stay open
                structlog.contextvars.bind_contextvars(position=start)
                await self._may_read(caller, segment)
                with _located(segment):
                    frames = self.fetcher.frames(segment, start, end)
                    return await self._send("fetch", frames, context, segment.topic_id.hex())

        await self._guard("fetch", context, serve)

    async def fetch_index(self, _: AsyncIterator[bytes], context: Context) -> None:
        """FetchIndex. An empty request is a plugin's warm-up."""

        async def serve(caller: Caller) -> dict[str, object] | None:
            with self._fetches.of(peer_of(context)):
                message = await _asked(rsm_pb2.FetchIndexRequest(), context)
                if message is None:
                    await self._warm_up(caller, context)
                    return None
                segment, kind = _named(message.segment), message.type
                del message
                if kind not in IndexType._value2member_map_:
                    raise BridgeError("bad_request", f"unknown index type {kind}")
                await self._may_read(caller, segment)
                with _located(segment):
                    frames = self.fetcher.file_frames(segment, IndexType(kind))
                    return await self._send("fetch_index", frames, context, segment.topic_id.hex())

        await self._guard("fetch_index", context, serve)

    async def delete_segment(self, _: AsyncIterator[bytes], context: Context) -> bytes:
        """DeleteSegment."""

        async def serve(caller: Caller) -> dict[str, object]:
            message = await _asked(rsm_pb2.DeleteSegmentRequest(), context)
            segment = _named(rsm_pb2.SegmentMetadata() if message is None else message.segment)
            await self._may_write(caller, segment, peer_of(context))
            async with asyncio.timeout(DELETE_SECONDS_MAX):
                outcome = await self.control.submit(self.deleter.delete, segment)
            await failpoints.hit_async("after-tombstone", segment.topic_id.hex())
            if outcome != "unknown_id":  # nothing of an unknown one is cached
                self.fetcher.forget(segment.segment_id)
            self.deleted(segment, outcome)
            return {"outcome": outcome}

        await self._guard("delete", context, serve)
        return rsm_pb2.DeleteSegmentResponse().SerializeToString()

    @staticmethod
    async def _warm_up(caller: Caller, context: Context) -> None:
        """Zeros for a plugin that loads its classes and connects (proto, `FetchSegmentRequest`); reads nothing."""
        if not (caller.may("read") or caller.may("write")):
            raise caller.refused("read", "any cluster")
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await context.write(fetch_chunk(memoryview(_WARM_UP)))

    async def _may_write(self, caller: Caller, segment: SegmentMetadata, peer: Peer) -> None:
        """Raises BridgeError `not_allowed` unless the request's cluster and the topic's own are the caller's."""
        mine = _clusters(caller, "write", segment)
        if mine is None:
            return
        owner = await self.owners.cluster_of(segment.topic_id, peer)
        if owner is not None and owner not in mine:
            raise caller.refused("write", owner)

    def _asked_again(self, caller: Caller, segment: SegmentMetadata) -> Callable[[], None] | None:
        """For a copy's worker, before the index; None where the topic's owner is known and cannot change meanwhile.

        A copy may take an hour. Who began one while nothing of the topic was stored must not end it under a topic that
        is somebody else's by then.
        """
        mine = _clusters(caller, "write", segment)
        if mine is None or self.owners.known(segment.topic_id):
            return None

        def check() -> None:
            owner = self.owners.owner_now(segment.topic_id)
            if owner is not None and owner not in mine:
                raise caller.refused("write", owner)

        return check

    async def _may_read(self, caller: Caller, segment: SegmentMetadata) -> None:
        """Raises BridgeError `not_allowed` unless the request's cluster and the segment's own are the caller's.

        The segment's own is in its directory, which a fetch begins with anyway: who may only read can ask the store for
        nothing but that.
        """
        mine = _clusters(caller, "read", segment)
        if mine is None:
            return
        with self.fetcher.fetching():
            owner = (await self.fetcher.directory(segment)).metadata.cluster_name
        if owner not in mine:
            raise caller.refused("read", owner)

    async def _send(
        self, method: str, frames: AsyncIterator[memoryview], context: Context, topic_id: str
    ) -> dict[str, object]:
        sent = 0
        try:
            with FetchClaim(self.fetcher.fetching) as claim:
                async for frame in frames:
                    await claim.written(context.write(fetch_chunk(frame)))
                    sent += len(frame)
                    await failpoints.hit_async("fetch-send", topic_id)
                    if sent >= FETCH_CHUNK_BYTES:
                        claim.end()
        finally:
            self.metrics.served_bytes.labels(method).inc(sent)
            structlog.contextvars.bind_contextvars(bytes=sent)  # of hang-ups, too
        return {}

    async def _guard(
        self, method: str, context: Context, serve: Callable[[Caller], Awaitable[dict[str, object] | None]]
    ) -> None:
        """Runs one call: metrics, the canonical log line, and its failure as status and trailer.

        serve: gives facts for the line; None: a warm-up, which has none.
        """
        structlog.contextvars.clear_contextvars()
        caller = caller_of(self.clients, context)
        structlog.contextvars.bind_contextvars(peer=caller.name)
        started = time.monotonic()
        facts: dict[str, object] | None = {}
        kind, message = "ok", ""
        failure: Exception | None = None
        try:
            _check_protocol(context)
            await context.send_initial_metadata(((PROTOCOL_HEADER, str(PROTOCOL_VERSION)),))
            facts = await serve(caller)
        except asyncio.CancelledError as error:
            kind, message = "cancelled", "the broker ended the call"
            release_frames(error)
            raise
        except aio.InternalError:
            # gRPC refuses the next read or write of a call that is over, before it cancels the handler.
            kind, message = "cancelled", "the broker ended the call"
        except Exception as error:  # noqa: BLE001 - whatever happens becomes one status
            failure = error
            kind, message = explain(error)
        finally:
            if facts is not None:
                self._account(method, kind, message, time.monotonic() - started, facts, failure)
        if failure is not None:
            error_kind, _ = explain(failure)
            release_frames(failure)
            del failure
            context.set_trailing_metadata(((ERROR_TRAILER, kind),))
            await context.abort(CODES[error_kind], message, ((ERROR_TRAILER, kind),))

    def _account(
        self,
        method: str,
        kind: str,
        message: str,
        seconds: float,
        facts: dict[str, object],
        failure: Exception | None,
    ) -> None:
        self.metrics.requests.labels(method, kind).inc()
        if method != "copy":
            self.metrics.request_seconds.labels(method).observe(seconds)
        if kind == "foreign_segment":
            self.metrics.foreign_segments.labels(method).inc()
        line = self.log.bind(kind=kind, duration_ms=round(seconds * 1000, 1), **facts)
        if kind in ("ok", "cancelled"):
            line.info(method)
        elif kind == "no_index":
            line.info(method, error=message)  # a segment without a TRANSACTION index is usual
        elif kind == "internal":
            line.error(method, error=message, exc_info=failure)
        else:
            line.warning(method, error=message)


async def _asked(message: M, context: Context) -> M | None:
    """The one request of a call that sends no payload; None: an empty one.

    Raises:
        BridgeError: `bad_request`; `deadline` when it does not come in time.
    """
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            request = await context.read()
    except TimeoutError as error:
        raise BridgeError("deadline", f"no request for {START_SECONDS_MAX:.0f} s") from error
    if not isinstance(request, bytes):
        raise BridgeError("bad_request", "the client closed the call before its request")
    if len(request) > REQUEST_BYTES_MAX:
        raise BridgeError("bad_request", f"a request of {len(request)} bytes, more than {REQUEST_BYTES_MAX}")
    return parse(message, request) if request else None


def _named(message: rsm_pb2.SegmentMetadata) -> SegmentMetadata:
    """The segment of a request, named in the log."""
    segment = segment_metadata(message)
    structlog.contextvars.bind_contextvars(
        topic=segment.topic, partition=segment.partition, segment=segment.segment_id.hex()
    )
    return segment


@contextlib.contextmanager
def _located(segment: SegmentMetadata) -> Iterator[None]:
    """Names the index in errors about its own bytes and those it stands for: whoever restores them needs a key."""
    try:
        yield
    except SegmentError as error:
        raise BridgeError(error.kind, f"{index_key(segment)} and what it names: {error}") from error


def _clusters(caller: Caller, action: Action, segment: SegmentMetadata) -> frozenset[str] | None:
    """The caller's, None for all; raises BridgeError `not_allowed` unless the request's is among them."""
    mine = caller.clusters(action)
    if mine is not None and segment.cluster_name not in mine:
        raise caller.refused(action, segment.cluster_name)
    return mine


def _check_protocol(context: Context) -> None:
    """Refuses a client that speaks another version, naming both."""
    theirs = [value for key, value in context.invocation_metadata() or () if key == PROTOCOL_HEADER]
    if theirs != [str(PROTOCOL_VERSION)]:
        said = "none" if not theirs else ", ".join(str(value) for value in theirs)
        raise BridgeError(
            "protocol_mismatch", f"the client speaks tierberg-protocol {said}, this bridge {PROTOCOL_VERSION}"
        )
