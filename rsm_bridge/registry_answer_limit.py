"""Bounds what one answer of the registry may bring into memory, while it comes in.

The registry's client reads every answer whole, however large, and unpacks it. It has no setting for that, so its HTTP
session is given a hook; where a later release keeps its session elsewhere, the deadline alone bounds an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rsm_bridge.limits import REGISTRY_ANSWER_BYTES_MAX
from rsm_bridge.registry_errors import AnswerTooLargeError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient


def limit_answers(client: SchemaRegistryClient) -> None:
    """Makes the client fail: AnswerTooLargeError above REGISTRY_ANSWER_BYTES_MAX, ValueError at a packed answer."""
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    session = getattr(getattr(client, "_rest_client", None), "session", None)
    if not isinstance(session, httpx.Client):
        return

    class Limited(httpx.SyncByteStream):  # type: ignore[misc,name-defined,unused-ignore]  # untyped here
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            left = REGISTRY_ANSWER_BYTES_MAX
            for part in self._stream:
                left -= len(part)
                if left < 0:
                    raise AnswerTooLargeError(f"an answer of more than {REGISTRY_ANSWER_BYTES_MAX} bytes")
                yield part

        def close(self) -> None:
            self._stream.close()

    def hook(response: Any) -> None:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ValueError("a packed answer, which was not asked for")
        response.stream = Limited(response.stream)

    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {"response": [hook]}
