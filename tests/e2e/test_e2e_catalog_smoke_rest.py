"""Two bridges on a REST catalog whose tokens end soon, and on one that lends keys to files which end too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.commit import commit as commit_module
from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from iceberg_catalog.tables.tables import ensure_table
from tests.support.catalog_smoke import Deployment, smoke
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.key_lender import KeyLender
from tests.support.s3_server import REGION, S3Server
from tests.support.token_gate import CLIENT_ID, CLIENT_SECRET, TokenGate
from tests.worlds.catalog_support import OWNER, STATE
from tierberg.stack.servers.rest_catalog import RestCatalogServer, S3Warehouse
from tierberg.stack.servers.versitygw import VersityGateway
from tierberg.stack.waiting import wait_for

# The first use builds the S3 server and fetches the catalog's jars.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

TOKEN_S = 20.0
KEYS_S = 60.0


@contextmanager
def rest_catalog(folder: Path) -> Iterator[tuple[VersityGateway, S3Server, str, FaultProxy]]:
    """An S3 server, its bucket, and a REST catalog on it behind a proxy."""
    gateway = VersityGateway(folder / "s3")
    try:
        gateway.start()
        s3 = S3Server(gateway.endpoint, gateway.access_key, gateway.secret_key)
        bucket = s3.new_bucket("smoke")
        warehouse = S3Warehouse(
            uri=f"s3://{bucket}/warehouse", endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key
        )
        server = RestCatalogServer(folder / "catalog", warehouse)
        try:
            server.start()
            with fault_proxy(server.port) as proxy:
                yield gateway, s3, bucket, proxy
        finally:
            server.stop()
    finally:
        gateway.stop()


def store(s3: S3Server, bucket: str) -> dict[str, Any]:
    return {"url": f"s3://{bucket}/history", "options": s3.store_options(), "fetch_timeout": "10s"}


@pytest.mark.parametrize("flow", ["auth", "credential"])
def test_tokens_that_end(tmp_path: Path, flow: str) -> None:
    """PyIceberg's OAuth2 manager fetches a new token in time; with `credential` it does after a refusal."""
    with rest_catalog(tmp_path) as (_, s3, bucket, proxy):
        proxy.gate = gate = TokenGate(TOKEN_S)
        tokens = f"{proxy.uri}{gate.path}"
        if flow == "auth":
            oauth2 = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "token_url": tokens}
            how: dict[str, Any] = {"auth": {"type": "oauth2", "oauth2": oauth2}}
        else:
            how = {"credential": f"{CLIENT_ID}:{CLIENT_SECRET}", "oauth2-server-uri": tokens}
        properties = {"type": "rest", "uri": proxy.uri, **how, **s3.catalog_properties()}
        given = Deployment(
            store(s3, bucket),
            {"name": "lake", "properties": properties},
            lambda: {CLIENT_SECRET, s3.secret_key, *gate.tokens},
        )
        smoke(given, tmp_path, lambda: time.sleep(TOKEN_S + 1))
        assert len(gate.tokens) > 4
        assert (gate.refused > 0) == (flow == "credential")


def test_a_wrong_client_secret_is_refused(tmp_path: Path) -> None:
    status, _ = TokenGate(TOKEN_S).exchange(None, b"grant_type=client_credentials&client_id=someone&client_secret=no")
    assert status == 401


def test_lent_keys_that_end(tmp_path: Path) -> None:
    """The bridges have keys of their own for the history, and none but the lent ones for the tables' metadata."""
    with rest_catalog(tmp_path) as (gateway, s3, bucket, proxy), KeyLender(gateway, KEYS_S) as lender:
        proxy.edit = lender.edit
        properties = {"type": "rest", "uri": proxy.uri, "s3.endpoint": s3.endpoint, "s3.region": REGION}
        given = Deployment(
            store(s3, bucket),
            {"name": "lake", "properties": properties},
            lambda: {s3.secret_key, *lender.secrets},
        )
        smoke(given, tmp_path, lambda: time.sleep(KEYS_S + 1))
        assert len(lender.ended) >= 2


def test_a_commit_does_not_use_keys_that_ended_since_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a long run: the head was read with keys that have ended when the manifests are to be written."""
    with rest_catalog(tmp_path) as (gateway, s3, _, proxy), KeyLender(gateway, 5.0) as lender:
        proxy.edit = lender.edit
        properties = {"type": "rest", "uri": proxy.uri, "s3.endpoint": s3.endpoint, "s3.region": REGION}
        catalog = open_catalog(CatalogSettings("lake", properties))
        table = ensure_table(catalog, OWNER, "raw", data_path="s3://elsewhere/data")
        head = LiveFiles().read(table)
        first = len(lender.ended)
        wait_for("the keys to end", lambda: len(lender.ended) > first, 30)
        with monkeypatch.context() as without:
            without.setattr(commit_module, "renewed", lambda _, stale: stale)
            with pytest.raises(OSError, match=r"(?i)access|key"):
                commit(catalog, head, Change(), STATE, commit_id="stale", as_of_ms=0)
        outcome = commit(catalog, head, Change(), STATE, commit_id="renewed", as_of_ms=0)
        assert outcome.kind == "committed"
        catalog.close()
