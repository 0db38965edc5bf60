"""Confluent's registry client with our settings. An optional extra: imported here only, inside functions.

Bounds what one answer of the registry may bring into memory, while it comes in.

The registry's client reads every answer whole, however large, and unpacks it. It has no setting for that, so its HTTP
session is given a hook; where a later release keeps its session elsewhere, the deadline alone bounds an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rsm_bridge.config.registry import SchemaRegistrySettings
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import REGISTRY_ANSWER_BYTES_MAX
from rsm_bridge.values.registry.errors import AnswerTooLargeError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient


def open_client(settings: SchemaRegistrySettings) -> SchemaRegistryClient:
    """A client that asks nothing yet, and each of the addresses once for everything.

    Raises:
        SettingsError: the extra `typed` is not installed, or a file of `tls` cannot be used.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise SettingsError(
            "schema_registry: the library for it is not installed; pip install 'tierberg[typed]'"
        ) from error
    try:
        client = SchemaRegistryClient(_configuration(settings))
    except (OSError, ValueError) as error:
        raise SettingsError(f"schema_registry.tls: {error}") from error
    limit_answers(client)
    return client


def is_answered(error: Exception) -> bool:
    """Whether a whole HTTP response had come when the client raised this: it is about what the response says."""
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    return not (isinstance(error, OSError | httpx.TransportError) or is_unaskable(error))


def is_unaskable(error: Exception) -> bool:
    """Whether the client raised this because no request can be made of what it was to ask, or of its settings."""
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    return isinstance(error, UnicodeEncodeError | httpx.InvalidURL)


def _configuration(settings: SchemaRegistrySettings) -> dict[str, Any]:
    urls = settings.urls()
    chosen: dict[str, Any] = {
        "url": ",".join(urls),
        # Of a connection, and of each wait for bytes; the whole is bounded by who asks.
        "timeout": settings.request_timeout / len(urls),
        "max.retries": 0,
        "cache.latest.ttl.sec": 0,
    }
    if settings.password is not None:
        chosen["basic.auth.user.info"] = f"{settings.username}:{settings.password.get_secret_value()}"
    if settings.bearer_token is not None:
        chosen["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        chosen["bearer.auth.token"] = settings.bearer_token.get_secret_value()
        chosen["bearer.auth.logical.cluster"] = settings.logical_cluster or ""
    tls = settings.tls
    if tls is not None:
        files = {
            "ssl.ca.location": tls.ca_file,
            "ssl.certificate.location": tls.certificate_file,
            "ssl.key.location": tls.key_file,
        }
        for name, path in files.items():
            if path is not None:
                # The library's own error does not name the file.
                with path.open("rb"):
                    chosen[name] = str(path)
        if tls.key_password is not None:
            chosen["ssl.key.password"] = tls.key_password.get_secret_value()
    return chosen


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
