"""What peers send: gRPC messages as bytes, whole copies as streams of them to a real server, answers of a registry."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import crc32c
import grpc

from converter.segment.warmup import warm
from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.errors import BridgeError
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.wire.messages import parse, parse_copy_request, segment_metadata
from rsm_bridge.values.registry.errors import SchemaLookupError
from rsm_bridge.values.registry.registry import SchemaRegistry
from tests.fuzz.envelope import packed, unpacked
from tests.fuzz.mutate import TEXTS, any_json, bent, bent_json, number, written
from tests.fuzz.outcome import worded
from tests.fuzz.segments import Segments
from tests.fuzz.target import MIB, Outcome, Target, WrongError
from tests.support.answering_server import AnsweringServer, answering
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.shim_client import HEADERS, SERVICE

_CALL_SECONDS = 40.0
#: What lies in a store is listed and published while the next inputs run: each would take longer than the one before.
_INPUTS_OF_A_BRIDGE = 2000
_KINDS = ("bad_request", "damaged_in_transit")


def _number(value: int) -> Any:
    """Protobuf takes numbers that the enum does not name."""
    return value


def _metadata(rng: random.Random) -> rsm_pb2.SegmentMetadata:
    message = rsm_pb2.SegmentMetadata(
        cluster_name="c",
        topic="flights",
        topic_id=bytes(range(16)),
        partition=3,
        segment_id=rng.randbytes(16),
        start_offset=100,
        end_offset=199,
        max_timestamp_ms=5,
        broker_id=1,
        segment_size_bytes=4096,
        leader_epochs=[rsm_pb2.LeaderEpoch(epoch=0, start_offset=0), rsm_pb2.LeaderEpoch(epoch=4, start_offset=120)],
    )
    if rng.random() < 0.5:
        field: Any = rng.choice(list(message.DESCRIPTOR.fields))
        if field.is_repeated or field.message_type is not None:
            message.ClearField(field.name)
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, rng.choice(TEXTS).encode("utf-8", "replace").decode())
        elif field.type == field.TYPE_BYTES:
            setattr(message, field.name, rng.randbytes(rng.choice((0, 15, 16, 17, 129))))
        else:
            with suppress(ValueError):
                setattr(message, field.name, number(rng, 64))
    return message


def _request(rng: random.Random) -> rsm_pb2.CopyRequest:
    kind = rng.randrange(4)
    if kind == 0:
        later = [
            rsm_pb2.LaterTransactionIndex(base_offset=200 + 100 * n, data=data, data_crc32c=crc32c.crc32c(data))
            for n, data in enumerate(rng.randbytes(rng.choice((0, 34, 68, 7))) for _ in range(rng.randrange(3)))
        ]
        start = rsm_pb2.CopyStart(segment=_metadata(rng), later_transaction_indexes=later)
        return rsm_pb2.CopyRequest(start=start)
    data = rng.randbytes(rng.choice((0, 1, 61, 500)))
    if kind == 1:
        file = rsm_pb2.IndexFile(
            type=_number(rng.choice((0, 1, 2, 3, 4, 5))),
            data=data,
            data_crc32c=crc32c.crc32c(data),
            position=rng.choice((0, 0, 500, -1, 2**62)),
            size_bytes=rng.choice((len(data), len(data) + 1, 0, -1, 128 * MIB, 128 * MIB + 1, 2**63 - 1)),
        )
        return rsm_pb2.CopyRequest(file=file)
    if kind == 2:
        return rsm_pb2.CopyRequest(end=rsm_pb2.CopyEnd(size_bytes=rng.choice((0, 4096))))
    return rsm_pb2.CopyRequest(position=rng.choice((0, 500, 2**40)), data=data, data_crc32c=crc32c.crc32c(data))


class Messages(Target):
    """One message of a copy, and one segment's metadata: parsed, or one error."""

    name = "grpc-messages"
    memory_bytes_max = 64 * MIB

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        data = _request(rng).SerializeToString() if not corpus or rng.random() < 0.7 else rng.choice(corpus)
        return bent(data, rng) if rng.random() < 0.8 else data

    def run(self, data: bytes) -> Outcome:
        try:
            found: object = parse_copy_request(data)
            words = type(found).__name__
        except BridgeError as error:
            words = _refusal(error)
        try:
            segment_metadata(parse(rsm_pb2.SegmentMetadata(), data))
            words += " metadata"
        except BridgeError as error:
            words += f" {_refusal(error)}"
        return Outcome(words)


def _refusal(error: BridgeError) -> str:
    if error.kind not in _KINDS:
        raise WrongError(f"{error.kind}: {error}")
    return worded(error)


class Streams(Target):
    """Sequences of messages to a bridge that runs here, cut off anywhere: each call ends, the next is served."""

    name = "grpc-streams"
    memory_bytes_max = 256 * MIB
    seconds_max = 60.0

    def prepare(self) -> None:
        self._open = ExitStack()
        self._begin()
        warm()  # a first copy may compile for longer than a call may take
        for seed in range(20):
            self.run(self.make(random.Random(seed), ()))

    def _begin(self) -> None:
        """A new bridge with an empty store."""
        self._inputs = 0
        # Only how long the bridge waits for the reason hangs on it; a third of all inputs would wait for half a second.
        self._open.enter_context(patch("rsm_bridge.serving.copy.call.CANCEL_NOTICE_SECONDS", 0.02))
        folder = Path(self._open.enter_context(TemporaryDirectory(prefix="tierberg-fuzz-")))
        bridge = self._open.enter_context(bridge_thread(test_settings(folder, publish_interval="5s")))
        self._channel = self._open.enter_context(grpc.insecure_channel(bridge.address))

    def close(self) -> None:
        self._open.close()

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        if self._inputs >= _INPUTS_OF_A_BRIDGE:
            self._open.close()
            self._begin()
        self._inputs += 1
        method = rng.choice(("CopySegment",) * 4 + ("FetchSegment", "FetchIndex", "DeleteSegment"))
        if method != "CopySegment":
            kinds: dict[str, Any] = {
                "FetchSegment": rsm_pb2.FetchSegmentRequest,
                "FetchIndex": rsm_pb2.FetchIndexRequest,
                "DeleteSegment": rsm_pb2.DeleteSegmentRequest,
            }
            message = kinds[method](segment=_metadata(rng))
            if method == "FetchSegment":
                message.start_position = rng.choice((0, 5, 2**31, 2**63 - 1))
            data = message.SerializeToString()
            return packed({"method": method}, [bent(data, rng) if rng.random() < 0.3 else data])
        messages = _whole_copy(rng)
        for _ in range(rng.choice((0, 1, 1, 3))):
            at = rng.randrange(len(messages))
            action = rng.randrange(5)
            if action == 0:
                del messages[at:]
            elif action == 1:
                messages.insert(at, _request(rng).SerializeToString())
            elif action == 2:
                messages[at] = bent(messages[at], rng)
            elif action == 3:
                messages.insert(at, messages[rng.randrange(len(messages))])
            else:
                del messages[at]
            if not messages:
                break
        facts = {"method": method, "hang_up": rng.random() < 0.1, "times": rng.choice((1, 1, 1, 2))}
        return packed(facts, messages)

    def run(self, data: bytes) -> Outcome:
        facts, messages = unpacked(data)
        first, *again = [self._call(facts, messages) for _ in range(facts.get("times", 1))]
        if first.endswith("StatusCode.OK ") and any(words != first for words in again):
            raise WrongError(f"{first}, and the same again: {again}")
        return Outcome(" ".join((first, *again)))

    def _call(self, facts: dict[str, Any], messages: list[bytes]) -> str:
        """How one call ended."""
        path = f"{SERVICE}{facts['method']}"
        more: dict[str, Any] = {"metadata": HEADERS, "timeout": _CALL_SECONDS}
        channel: Any = self._channel
        call: Any
        if facts["method"] == "CopySegment":
            call = channel.stream_stream(path)(iter(messages), **more)
        elif facts["method"] == "DeleteSegment":
            call = channel.unary_unary(path).future(messages[0], **more)
        else:
            call = channel.unary_stream(path)(messages[0], **more)
        if facts.get("hang_up"):
            call.cancel()
            return "hung up"
        with suppress(grpc.RpcError):
            call.result() if facts["method"] == "DeleteSegment" else list(call)
        code = call.code()
        kind = next((item.value for item in call.trailing_metadata() or () if item.key == "tierberg-error"), "")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED and kind != "deadline":
            raise WrongError(f"{facts['method']} does not end within {_CALL_SECONDS:g} s")
        if kind == "internal" or (code != grpc.StatusCode.OK and not kind):
            raise WrongError(f"{facts['method']} ends with {code} {kind!r}: {call.details()}")
        return f"{facts['method']} {code} {kind}"


def _whole_copy(rng: random.Random) -> list[bytes]:
    """A copy that works: one segment of a few batches."""
    facts, (segment, index, snapshot) = unpacked(Segments(rng.choice(("none", "zstd"))).make(rng, ()))
    metadata = rsm_pb2.SegmentMetadata(
        cluster_name="c",
        topic="flights",
        topic_id=bytes(range(16)),
        partition=3,
        segment_id=rng.randbytes(16),
        start_offset=facts["start"],
        end_offset=facts["end"],
        segment_size_bytes=len(segment),
        leader_epochs=[rsm_pb2.LeaderEpoch(epoch=epoch, start_offset=first) for epoch, first in facts["epochs"]],
    )
    files = {3: snapshot, 4: index, 5: b"0\n1\n0 0\n"}
    requests = [rsm_pb2.CopyRequest(start=rsm_pb2.CopyStart(segment=metadata))]
    for kind, content in files.items():
        requests += [rsm_pb2.CopyRequest(file=piece) for piece in _pieces(kind, content, rng.choice((1, 50, MIB)))]
    size = rng.choice((37, 1000, 100_000))
    for at in range(0, len(segment), size):
        part = segment[at : at + size]
        requests.append(rsm_pb2.CopyRequest(position=at, data=part, data_crc32c=crc32c.crc32c(part)))
    requests.append(rsm_pb2.CopyRequest(end=rsm_pb2.CopyEnd(size_bytes=len(segment))))
    return [request.SerializeToString() for request in requests]


def _pieces(kind: int, content: bytes, size: int) -> list[rsm_pb2.IndexFile]:
    """A file beside the log; an empty one is one message too."""
    found = []
    for at in range(0, max(len(content), 1), max(size, len(content) // 40)):
        part = content[at : at + max(size, len(content) // 40)]
        found.append(
            rsm_pb2.IndexFile(
                type=_number(kind),
                data=part,
                data_crc32c=crc32c.crc32c(part),
                position=at,
                size_bytes=len(content),
            )
        )
    return found


class Registry(Target):
    """What a schema registry may answer, through the real client: a schema, or one error."""

    name = "registry-answers"
    memory_bytes_max = 64 * MIB

    def prepare(self) -> None:
        self._open = ExitStack()
        self._server: AnsweringServer = self._open.enter_context(answering())
        self._now = 0.0
        settings = SchemaRegistrySettings.model_validate({"url": self._server.uri, "request_timeout": "5s"})
        self._registry = SchemaRegistry(settings, lambda: self._now)
        self._open.callback(self._registry.close)
        self._number = 0

    def close(self) -> None:
        self._open.close()

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        body: Any = {
            "schema": rng.choice(('"long"', "{}", "", *TEXTS[:4])),
            "schemaType": rng.choice(("AVRO", "JSON", "X")),
        }
        if rng.random() < 0.5:
            body |= {"subject": "s", "version": rng.choice((1, 0, -1, 2**70)), "id": rng.choice((1, None, "1"))}
        if rng.random() < 0.3:
            body["references"] = [
                {
                    "name": rng.choice(TEXTS),
                    "subject": rng.choice(("s", *TEXTS[:5])),
                    "version": rng.choice((1, 2, -1, None)),
                }
                for _ in range(rng.choice((1, 2, 40)))
            ]
        answer = written(bent_json(body, rng) if rng.random() < 0.6 else body, rng)
        if rng.random() < 0.1:
            answer = written(any_json(rng), rng)
        return packed(
            {"status": rng.choice((200,) * 8 + (404, 429, 500, 301, 204)), "subject": rng.random() < 0.3}, [answer]
        )

    def run(self, data: bytes) -> Outcome:
        facts, (answer,) = unpacked(data)
        self._server.answers = lambda _: (facts["status"], answer)
        self._server.seen.clear()
        self._now += 10_000.0
        self._number = (self._number + 1) % 2**31
        try:
            found = self._registry.latest("a subject") if facts["subject"] else self._registry.by_id(self._number)
        except SchemaLookupError as error:
            return Outcome(worded(error))
        return Outcome(f"{found.kind} {len(found.references)}")
