"""Confluent's registry client with our settings. An optional extra: imported here only, inside functions."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from iceberg_catalog.redaction import secret_values
from rsm_bridge.errors import SettingsError
from rsm_bridge.registry_answer_limit import limit_answers
from rsm_bridge.registry_settings import SchemaRegistrySettings

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


def registry_secrets(settings: SchemaRegistrySettings) -> frozenset[str]:
    """Its credentials, as they may show up in a message."""
    password = None if settings.password is None else settings.password.get_secret_value()
    given = {
        "password": settings.password,
        "token": settings.bearer_token,
        "key_password": None if settings.tls is None else settings.tls.key_password,
    }
    named = {name: secret.get_secret_value() for name, secret in given.items() if secret is not None}
    if password is not None:
        named["authorization"] = base64.b64encode(f"{settings.username}:{password}".encode()).decode()
    return secret_values(named)


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
