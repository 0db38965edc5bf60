"""Secrets of the settings: handed to the libraries that need them, hidden in everything we say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from iceberg_catalog.connect.redaction import secret_values
from rsm_bridge.config.registry import registry_secrets
from rsm_bridge.config.settings import Settings

#: Variables in which the clients of stores and catalogs look for credentials.
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "PYICEBERG_")


def revealed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Nested properties with secrets as plain values, for a library. Never log them."""
    return {name: _plain(value) for name, value in properties.items()}


def settings_secrets(settings: Settings) -> frozenset[str]:
    """Every credential of the settings and of the clients' environment, as it may show up in a message."""
    store = {} if settings.store is None else revealed(settings.store.options)
    environment = {name: value for name, value in os.environ.items() if name.upper().startswith(_ENVIRONMENT)}
    registry = frozenset[str]() if settings.schema_registry is None else registry_secrets(settings.schema_registry)
    projections = [
        revealed(projection.catalog.properties)
        for rule in settings.topics
        for projection in rule.copies
        if projection.catalog
    ]
    spark = revealed(settings.repartition.spark)
    return registry | secret_values(revealed(settings.catalog.properties), store, environment, spark, *projections)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return revealed(value)
    return value
