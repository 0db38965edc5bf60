"""A real bridge whose catalog and store refuse it and quote its credentials back: nothing of them is logged."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from tests.support.answering_server import AnsweringServer, Request, answering
from tests.support.bridge_process import BridgeProcess
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, ShimError, segment_of

SECRETS = ("catalog-hunter2", "store-hunter2", "environment-hunter2")


def wait_for_line(bridge: BridgeProcess, text: str, seconds: float = 30) -> str:
    end = time.monotonic() + seconds
    while text not in bridge.errors():
        assert time.monotonic() < end, f"no {text} in:\n{bridge.errors()}"
        time.sleep(0.1)
    return bridge.errors()


def quoting(request: Request) -> tuple[int, dict[str, object]]:
    said = f"refused {SECRETS[0]} and {SECRETS[2]}, sent {request.headers.get('Authorization')}"
    return 401, {"error": {"message": said, "type": "NotAuthorizedException", "code": 401}}


def start(folder: Path, settings: dict[str, object]) -> BridgeProcess:
    config = folder / "tierberg.yaml"
    config.write_text(yaml.safe_dump({"publish_interval": "100ms", **settings}))
    return BridgeProcess("--config", str(config), "--data-dir", str(folder), "--listen", "127.0.0.1:0")


def test_a_catalog_that_quotes_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[2])
    with answering() as server:
        server.answers = quoting
        properties = {"type": "rest", "uri": server.uri, "token": SECRETS[0]}
        with start(tmp_path, {"catalog": {"properties": properties}}) as bridge, ShimClient(bridge.address) as shim:
            shim.copied(segment_of(LogBuilder().fill(batches=3)))  # a copy needs no catalog
            wait_for_line(bridge, "publishing failed")
            assert bridge.stop() == 0
            said = bridge.errors()
    assert any(request.headers.get("Authorization") == f"Bearer {SECRETS[0]}" for request in server.seen)
    assert "refused [hidden] and [hidden], sent Bearer [hidden]" in said
    assert not any(secret in said for secret in SECRETS)


def test_a_store_that_quotes_the_key(tmp_path: Path) -> None:
    def refusing(request: Request) -> tuple[int, bytes]:
        said = f"<Error><Code>AccessDenied</Code><Message>{SECRETS[1]}</Message></Error>"
        return 403, said.encode()

    with answering() as server:
        server.answers = refusing
        store = {"url": "s3://bucket/root", "options": store_options(server)}
        with start(tmp_path, {"store": store}) as bridge, ShimClient(bridge.address) as shim:
            with pytest.raises(ShimError) as refused:
                shim.copied(segment_of(LogBuilder().fill(batches=3)))
            assert refused.value.kind == "store_unavailable"
            said = wait_for_line(bridge, "store_unavailable")
            bridge.stop()
    assert server.seen
    assert not any(secret in said for secret in SECRETS)


def store_options(server: AnsweringServer) -> dict[str, object]:
    keys = {"access_key_id": "someone", "secret_access_key": SECRETS[1]}
    return {"endpoint": server.uri, "region": "us-east-1", "allow_http": True, **keys}
