"""REST catalogs that fall silent later, and credentials that a server quotes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import UnauthorizedError
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import ReadTimeout

from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.connect.rest import Timeouts
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.tables.names import Owner
from iceberg_catalog.tables.tables import ensure_table
from tests.support.answering_server import Answer, AnsweringServer, answering

SECRET = "hunter2-hunter2"
QUICK = Timeouts(1000, 300)
CONFIG: Answer = (200, {"defaults": {}, "overrides": {}})


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering() as running:
        running.answers = lambda _: CONFIG
        yield running


def test_every_request_after_the_first_has_time_outs_too(server: AnsweringServer) -> None:
    catalog = open_catalog(CatalogSettings("r", {"type": "rest", "uri": server.uri}, QUICK))
    server.answers = lambda _: None
    started = time.monotonic()
    with pytest.raises(ReadTimeout):
        catalog.list_namespaces()
    assert time.monotonic() - started < 5


def test_signed_requests_have_them(server: AnsweringServer) -> None:
    properties = {
        "type": "rest",
        "uri": server.uri,
        "rest.sigv4-enabled": "true",
        "client.region": "us-east-1",
        "client.access-key-id": "someone",
        "client.secret-access-key": SECRET,
    }
    catalog = open_catalog(CatalogSettings("r", properties, QUICK))
    assert server.seen[0].headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=someone/")
    server.answers = lambda _: None
    started = time.monotonic()
    with pytest.raises((ReadTimeout, RequestsConnectionError)):
        catalog.list_namespaces()
    assert time.monotonic() - started < 10


def oauth2(server: AnsweringServer) -> dict[str, Any]:
    how = {"client_id": "someone", "client_secret": SECRET, "token_url": f"{server.uri}/tokens", "scope": "all"}
    return {"type": "rest", "uri": server.uri, "auth": {"type": "oauth2", "oauth2": how}}


def test_a_token_is_fetched_and_sent(server: AnsweringServer) -> None:
    token = {"access_token": "fresh", "token_type": "bearer", "expires_in": 3600}
    server.answers = lambda request: (200, token) if request.path == "/tokens" else CONFIG
    open_catalog(CatalogSettings("r", oauth2(server), QUICK)).close()
    first, second = server.seen[:2]
    assert first.path == "/tokens"
    assert first.headers["Authorization"].startswith("Basic ")
    assert first.body == b"grant_type=client_credentials&scope=all"
    assert second.path.startswith("/v1/config")
    assert second.headers["Authorization"] == "Bearer fresh"


def test_a_token_server_that_is_silent_is_given_up(server: AnsweringServer) -> None:
    server.answers = lambda request: None if request.path == "/tokens" else CONFIG
    started = time.monotonic()
    with pytest.raises(CatalogError) as refused:
        open_catalog(CatalogSettings("r", oauth2(server), QUICK))
    assert refused.value.kind == "unavailable"
    assert time.monotonic() - started < 5


def test_a_token_without_an_end_is_refused(server: AnsweringServer) -> None:
    server.answers = lambda _: (200, {"access_token": SECRET, "token_type": "bearer"})
    with pytest.raises(CatalogError, match="set expires_in") as refused:
        open_catalog(CatalogSettings("r", oauth2(server), QUICK))
    assert refused.value.kind == "bad_settings"


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "bad_settings"), (403, "bad_settings"), (500, "unavailable"), (503, "unavailable")]
)
def test_a_refusal_that_quotes_the_token_does_not_show_it(server: AnsweringServer, status: int, kind: str) -> None:
    error = {"message": f"token {SECRET} is unknown", "type": "NotAuthorizedException", "code": status}
    server.answers = lambda _: (status, {"error": error})
    with pytest.raises(CatalogError, match=r"token \[hidden\] is unknown") as refused:
        open_catalog(CatalogSettings("r", {"type": "rest", "uri": server.uri, "token": SECRET}, QUICK))
    assert refused.value.kind == kind
    assert refused.value.__cause__ is None


def test_the_token_is_sent_and_an_expired_one_is_an_error_not_a_loop(server: AnsweringServer) -> None:
    catalog = open_catalog(CatalogSettings("r", {"type": "rest", "uri": server.uri, "token": SECRET}, QUICK))
    error = {"message": "expired", "type": "NotAuthorizedException", "code": 401}
    server.answers = lambda _: (401, {"error": error})
    before = len(server.seen)
    with pytest.raises(UnauthorizedError):
        catalog.list_namespaces()
    assert all(request.headers["Authorization"] == f"Bearer {SECRET}" for request in server.seen)
    assert len(server.seen) - before == 2


def test_table_metadata_in_a_silent_bucket_is_given_up(server: AnsweringServer, tmp_path: Path) -> None:
    server.answers = lambda _: None
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": "s3://bucket/warehouse",
        "s3.endpoint": server.uri,
        "s3.region": "us-east-1",
        "s3.access-key-id": "someone",
        "s3.secret-access-key": SECRET,
    }
    catalog = open_catalog(CatalogSettings("s", properties, QUICK))
    started = time.monotonic()
    with pytest.raises(OSError, match=r"(?i)time|network|curl"):
        ensure_table(catalog, Owner("c", "t", bytes(16)), "raw", data_path="s3://bucket/data")
    assert time.monotonic() - started < 60
    assert server.seen
