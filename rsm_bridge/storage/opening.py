"""From settings to an open store."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from obstore.exceptions import BaseError
from obstore.store import MemoryStore, from_url

from iceberg_catalog.connect.open import embedded_has_tables
from iceberg_catalog.connect.redaction import hide
from rsm_bridge.config.secrets import settings_secrets
from rsm_bridge.config.settings import Settings, StoreSettings
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import FETCH_PATIENCE_SECONDS
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.object_store import ObjectStore, first_line
from rsm_bridge.storage.read_clients import ReadClients

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

_CONNECT_FETCH = timedelta(milliseconds=200)
_RETRY_FETCH_SECONDS = 2.0
_CONNECT_PATIENT = timedelta(seconds=2)
_CONNECT_UPLOAD = timedelta(seconds=5)
_CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "root_certificate", "proxy_url"})
_FLAGS = {"true": True, "false": False}


def open_store(settings: Settings) -> ObjectStore:
    """The store the settings name; the folder `store` under `data_dir` without one.

    Raises:
        SettingsError: the client refuses its options, or the folder of a catalog with tables is gone.
    """
    if settings.store is None:
        return _folder(settings, settings.data_dir / "store")
    scheme = urlsplit(settings.store.url).scheme
    if scheme == "file":
        return _folder(settings, Path(url2pathname(urlsplit(settings.store.url).path)))
    if scheme == "memory":
        memory = MemoryStore()
        return ObjectStore(memory, ReadClients(memory), "memory://")
    try:
        return _remote(settings.store)
    except (BaseError, ValueError, TypeError) as error:
        # What the client says may quote its options, and is all there is to say.
        said = hide(first_line(error), settings_secrets(settings))
        raise SettingsError(f"store: {said}") from None


def open_made_store(settings: Settings) -> ObjectStore:
    """The store of a bridge that has run: what only reads makes no folders where a path is mistaken.

    Raises:
        SettingsError: the embedded store is not there, or the client refuses its options.
    """
    if (missing := store_missing(settings)) is not None:
        raise SettingsError(missing)
    return open_store(settings)


def store_missing(settings: Settings) -> str | None:
    """That no bridge has made an embedded store there; None where one has, or the store is another's to make."""
    if settings.store is not None:
        return None
    try:
        if (settings.data_dir / "store").is_dir():
            return None
        return f"no store in {settings.data_dir.resolve()}: is it the bridge's data_dir?"
    except OSError as error:  # a name that is too long, a folder nobody may look into
        return f"no store in {settings.data_dir}: {error.strerror}: is it the bridge's data_dir?"


def _folder(settings: Settings, folder: Path) -> LocalObjectStore:
    """Makes the folder, but not where a catalog has tables already: each has objects, which are elsewhere then."""
    if found := sorted(set("#?%") & set(str(folder.resolve()))):
        raise SettingsError(f"store: {folder}: no {found[0]} may be in the path: engines read something else in it")
    try:
        empty = not folder.is_dir() or next(folder.iterdir(), None) is None
        if empty and embedded_has_tables(settings.data_dir):
            raise SettingsError(
                f"store: nothing is in {folder}, and the catalog in {settings.data_dir} has tables: is the disk of the "
                "store mounted? Where an empty store is meant, move the catalog away too"
            )
        return LocalObjectStore(folder)
    except (BaseError, OSError) as error:
        raise SettingsError(f"store: {folder}: {first_line(error)}") from error


def _remote(settings: StoreSettings) -> ObjectStore:
    options = {name: secret.get_secret_value() for name, secret in settings.options.items()}
    client: dict[str, Any] = {name: options.pop(name) for name in _CLIENT_OPTIONS & options.keys()}
    for flag in {"allow_http", "allow_invalid_certificates"} & client.keys():
        if client[flag].lower() not in _FLAGS:
            raise ValueError(f"options.{flag} is true or false, not {client[flag]}")
        client[flag] = _FLAGS[client[flag].lower()]
    if urlsplit(settings.url).scheme in ("s3", "s3a"):
        # Each part travels with its SHA-256, which the store checks: damage on the way fails the upload.
        options.setdefault("checksum_algorithm", "sha256")

    def client_with(timeout: float, connect: timedelta, retries: int, retry_seconds: float) -> Client:
        # Which options there are depends on the URL: obstore checks them, the type checker cannot.
        opened: Client = from_url(  # type: ignore[call-overload]
            settings.url,
            config=options,
            client_options={**client, "timeout": timedelta(seconds=timeout), "connect_timeout": connect},
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=retry_seconds)},
        )
        return opened

    root_uri = _table_uri(settings.url.rstrip("/"), options)
    uploads = client_with(settings.upload_timeout, _CONNECT_UPLOAD, 5, 2 * settings.upload_timeout)
    quick = client_with(settings.fetch_timeout, _CONNECT_FETCH, 2, max(_RETRY_FETCH_SECONDS, settings.fetch_timeout))
    patient = None
    if settings.fetch_timeout < FETCH_PATIENCE_SECONDS:
        # A refusal is asked again within this time, silence is not.
        patient = client_with(FETCH_PATIENCE_SECONDS, _CONNECT_PATIENT, 3, FETCH_PATIENCE_SECONDS)
    return ObjectStore(uploads, ReadClients(quick, patient, settings.fetch_timeout), root_uri)


def _table_uri(url: str, options: dict[str, str]) -> str:
    """The root as Iceberg's clients know it: for `az://` the `abfss://` form, which names the account too."""
    parts = urlsplit(url)
    if parts.scheme != "az":
        return url
    account = options.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ValueError("az:// needs options.account_name, which is part of every name in the table")
    return f"abfss://{parts.netloc}@{account}.dfs.core.windows.net{parts.path}"
