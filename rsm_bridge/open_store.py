"""From settings to an open store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from obstore.exceptions import BaseError
from obstore.store import MemoryStore, from_url

from rsm_bridge.errors import SettingsError
from rsm_bridge.local_store import LocalObjectStore
from rsm_bridge.settings import Settings, StoreSettings
from rsm_bridge.store import ObjectStore, first_line

_CONNECT_FETCH = timedelta(milliseconds=200)
_CONNECT_UPLOAD = timedelta(seconds=5)
_CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "root_certificate", "proxy_url"})


def open_store(settings: Settings) -> ObjectStore:
    """The store the settings name; the folder `store` under `data_dir` without one.

    Raises:
        SettingsError: the client refuses its options.
    """
    if settings.store is None:
        return LocalObjectStore(settings.data_dir / "store")
    scheme = urlsplit(settings.store.url).scheme
    if scheme == "file":
        return LocalObjectStore(Path(url2pathname(urlsplit(settings.store.url).path)))
    if scheme == "memory":
        memory = MemoryStore()
        return ObjectStore(memory, memory, "memory://")
    try:
        return _remote(settings.store)
    except (BaseError, ValueError, TypeError) as error:
        raise SettingsError(f"store: {first_line(error)}") from error


def _remote(settings: StoreSettings) -> ObjectStore:
    options = {name: secret.get_secret_value() for name, secret in settings.options.items()}
    client: dict[str, Any] = {name: options.pop(name) for name in _CLIENT_OPTIONS & options.keys()}
    for flag in ("allow_http", "allow_invalid_certificates"):
        if flag in client:
            client[flag] = client[flag].lower() == "true"
    if urlsplit(settings.url).scheme in ("s3", "s3a"):
        # Each part travels with its SHA-256, which the store checks: damage on the way fails the upload.
        options.setdefault("checksum_algorithm", "sha256")
    fetches = from_url(
        settings.url,
        config=options,  # type: ignore[arg-type]
        client_options={
            **client,  # type: ignore[typeddict-item]
            "timeout": timedelta(seconds=settings.fetch_timeout),
            "connect_timeout": _CONNECT_FETCH,
        },
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=2)},
    )
    uploads = from_url(
        settings.url,
        config=options,  # type: ignore[arg-type]
        client_options={
            **client,  # type: ignore[typeddict-item]
            "timeout": timedelta(seconds=settings.upload_timeout),
            "connect_timeout": _CONNECT_UPLOAD,
        },
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=2 * settings.upload_timeout)},
    )
    return ObjectStore(uploads, fetches, settings.url.rstrip("/"))
