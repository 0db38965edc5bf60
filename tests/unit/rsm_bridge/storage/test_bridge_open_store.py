"""Store settings: each reaches its client, every request has a deadline, and what cannot work is said in words."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import SettingsError, StoreError
from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.opening import open_store
from tests.support.answering_server import AnsweringServer, Request, answering
from tests.worlds.maintain_support import make_world


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering() as running:
        yield running


def opened(url: str, options: dict[str, Any], **settings: str) -> ObjectStore:
    return open_store(load_settings(None, {"store": {"url": url, "options": options, **settings}}))


def test_s3_options_reach_the_server(server: AnsweringServer) -> None:
    options = {
        "endpoint": server.uri,
        "region": "eu-central-1",
        "access_key_id": "someone",
        "secret_access_key": "hunter2",
        "session_token": "for-an-hour",
        "allow_http": True,
    }
    store = opened("s3://bucket/base/", options)
    assert store.put_if_absent("a/b", b"bytes")
    (put,) = server.seen
    assert (put.method, put.path, put.body) == ("PUT", "/bucket/base/a/b", b"bytes")
    headers = {name.lower(): value for name, value in put.headers.items()}
    assert "Credential=someone/" in headers["authorization"]
    assert "/eu-central-1/s3/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "for-an-hour"
    assert headers["if-none-match"] == "*"
    assert "x-amz-checksum-sha256" in headers
    assert store.uri("a/b") == "s3://bucket/base/a/b"


def test_s3_credentials_may_come_from_the_environment(server: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    store = opened("s3://bucket", {"endpoint": server.uri, "region": "us-east-1", "allow_http": True})
    assert store.put_if_absent("k", b"")
    assert "Credential=from-the-environment/" in str(server.seen[0].headers)


def gcs_account(server: AnsweringServer) -> dict[str, Any]:
    """A key file that names the server and asks nobody for a token."""
    account = {
        "gcs_base_url": server.uri,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return {"service_account_key": json.dumps(account), "allow_http": True}


def lower_headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def test_gcs_options_reach_the_server(server: AnsweringServer) -> None:
    store = opened("gs://bucket/base", gcs_account(server))
    assert store.put_if_absent("a/b", b"bytes")
    (put,) = server.seen
    assert (put.method, put.path.partition("?")[0], put.body) == (
        "PUT",
        "/bucket/base%2Fa%2Fb",
        b"bytes",
    )
    assert lower_headers(put)["x-goog-if-generation-match"] == "0"
    assert store.uri("a/b") == "gs://bucket/base/a/b"


def test_gcs_swaps_compare_generations(server: AnsweringServer) -> None:
    store = opened("gs://bucket/base", gcs_account(server))
    found = store.read("a/b")
    assert store.replace("a/b", b"bytes", found.version)
    assert lower_headers(server.seen[-1])["x-goog-if-generation-match"] == "17"
    server.answers = lambda _: (412, b"")
    assert not store.replace("a/b", b"bytes", found.version)


@pytest.mark.parametrize("url", ["s3://bucket/base", "az://bucket/base"])
def test_other_swaps_compare_entity_tags(server: AnsweringServer, url: str) -> None:
    keys = {"access_key_id": "someone", "secret_access_key": "hunter2", "region": "nowhere"}
    if url.startswith("az"):
        keys = {"account_name": "acme", "account_key": base64.b64encode(b"hunter2").decode()}
    store = opened(url, {**keys, "endpoint": server.uri, "allow_http": True})
    found = store.read("a/b")
    assert store.replace("a/b", b"bytes", found.version)
    assert lower_headers(server.seen[-1])["if-match"] == '"1"'


@pytest.mark.parametrize("url", ["az://box/base", "abfss://box@acme.dfs.core.windows.net/base"])
def test_azure_options_reach_the_server_and_tables_name_the_account(server: AnsweringServer, url: str) -> None:
    key = base64.b64encode(b"hunter2").decode()
    options = {"endpoint": server.uri, "account_name": "acme", "account_key": key, "allow_http": True}
    store = opened(url, options)
    assert store.put_if_absent("a/b", b"bytes")
    (put,) = server.seen
    headers = {name.lower(): value for name, value in put.headers.items()}
    assert (put.method, put.path, put.body) == ("PUT", "/box/base/a/b", b"bytes")
    assert headers["authorization"].startswith("SharedKey acme:")
    assert headers["if-none-match"] == "*"
    # Iceberg's clients know no az://.
    assert store.uri("a/b") == "abfss://box@acme.dfs.core.windows.net/base/a/b"
    assert store.key("abfss://box@acme.dfs.core.windows.net/base/a/b") == "a/b"


def test_files_go_where_the_url_says(tmp_path: Path) -> None:
    store = opened(f"file://{tmp_path}/with%20blank", {})
    assert isinstance(store, LocalObjectStore)
    assert store.put_if_absent("a/b", b"bytes")
    assert (tmp_path / "with blank" / "a" / "b").read_bytes() == b"bytes"


def test_a_folder_with_a_blank_and_an_umlaut_holds_tables_that_engines_read(tmp_path: Path) -> None:
    world = make_world(tmp_path / "my däta")
    world.copy(3)
    world.publish()
    assert world.offsets() == [0, 1, 2]
    world.check()


@pytest.mark.parametrize("mark", ["%", "#", "?"])
def test_what_engines_read_something_else_in_is_refused(tmp_path: Path, mark: str) -> None:
    folder = tmp_path / f"a{mark}20b"
    with pytest.raises(SettingsError, match=f"no [{mark}] may be in the path"):
        open_store(load_settings(None, {"data_dir": folder}))
    assert not folder.exists()


def silent(server: AnsweringServer, **settings: str) -> ObjectStore:
    server.answers = lambda _: None
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    options = {"endpoint": server.uri, "region": "us-east-1", "allow_http": True, **keys}
    return opened("s3://bucket", options, **settings)


@pytest.mark.parametrize("work", ["read", "range", "head"])
def test_a_silent_store_ends_a_fetch_within_its_time(server: AnsweringServer, work: str) -> None:
    store = silent(server, fetch_timeout="2s")
    asked: list[float] = []
    server.answers = lambda _: asked.append(time.monotonic())
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: store.read("k"),
        "range": lambda: store.get_range("k", 0, 4),
        "head": lambda: store.head_bytes("k", 4),
    }
    started = time.monotonic()
    with pytest.raises(StoreError):
        calls[work]()
    assert time.monotonic() - started < 25
    assert asked[1] - asked[0] > 1.9, "asked again before its time was over; the default is 400 ms"


@pytest.mark.parametrize("work", ["put", "replace", "list", "delete", "size", "upload"])
def test_a_silent_store_ends_everything_else_too(server: AnsweringServer, work: str) -> None:
    store = silent(server, upload_timeout="200ms")

    def upload() -> None:
        with store.open_upload("k") as open_upload:
            open_upload.write(b"bytes")
            open_upload.commit()

    calls: dict[str, Callable[[], object]] = {
        "put": lambda: store.put_if_absent("k", b"x"),
        "replace": lambda: store.replace("k", b"x", "1"),
        "list": lambda: list(store.list_after("p/")),
        "delete": lambda: store.delete_many(["k"]),
        "size": lambda: store.size("k"),
        "upload": upload,
    }
    started = time.monotonic()
    with pytest.raises(StoreError):
        calls[work]()
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"url": "ftp://host/x"}, "store.url: use s3://bucket/prefix"),
        ({"url": "s3:/bucket"}, "store.url: use s3://bucket/prefix"),
        ({"url": "s3://"}, "store.url: names no bucket"),
        ({"url": "s3://user:pass@bucket"}, "store.url: no ?, # or password"),
        ({"url": "s3://bucket?region=x"}, "store.url: no ?, # or password"),
        ({"url": "file://folder"}, "store.url: a folder is file:///folder"),
        ({"url": "file:///"}, "store.url: a folder is file:///folder"),
        ({"url": "abfss://box/base"}, "store.url: an Azure file system is abfss://container@account"),
        ({"url": "s3://bucket", "fetch_timeout": "0s"}, "store.fetch_timeout: it must be more than 0"),
        ({"url": "s3://bucket", "upload_timeout": "0s"}, "store.upload_timeout: it must be more than 0"),
        ({"url": "s3://bucket", "options": {"region": ["a"]}}, "store.options.region"),
        ({"url": "s3://bucket", "options": "none"}, "store.options"),
    ],
)
def test_what_settings_cannot_mean_is_refused(store: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(None, {"store": store})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"url": "s3://bucket", "options": {"acces_key_id": "a"}}, "acces_key_id"),
        ({"url": "s3://bucket", "options": {"allow_http": "maybe"}}, "options.allow_http is true or false, not maybe"),
        ({"url": "az://box/base"}, "az:// needs options.account_name"),
        ({"url": "gs://bucket", "options": {"service_account_key": "not-json-hunter2"}}, "store: "),
    ],
)
def test_what_the_client_refuses_is_said(store: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(SettingsError) as refused:
        open_store(load_settings(None, {"store": store}))
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"store: .*/file/store: "):
        opened(f"file://{tmp_path}/file/store", {})


def test_numbers_and_flags_of_yaml_are_texts() -> None:
    settings = load_settings(None, {"store": {"url": "s3://b", "options": {"allow_http": True, "account_name": 7}}})
    assert settings.store is not None
    assert {name: secret.get_secret_value() for name, secret in settings.store.options.items()} == {
        "allow_http": "true",
        "account_name": "7",
    }
