"""A bridge that starts while its catalog or store is away says so within seconds, and when it is back."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from structlog.testing import capture_logs

from rsm_bridge.limits import REACH_AGAIN_SECONDS, REACH_REMIND_SECONDS, REACH_SECONDS, REACH_SOUND_SECONDS
from rsm_bridge.serving.reachability import Dependency, Reachability
from tests.support.bridge_process import BridgeProcess, bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of
from tierberg.stack.ports import free_ports

#: A few seconds, on a busy machine.
SAID_SECONDS_MAX = 10.0


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """Accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    yield free_ports(1)[0]


def rest_at(port: int) -> dict[str, Any]:
    return {"properties": {"type": "rest", "uri": f"http://user:secret@127.0.0.1:{port}"}}


def s3_at(port: int) -> dict[str, Any]:
    options = {"endpoint": f"http://127.0.0.1:{port}", "allow_http": "true", "region": "x"}
    options |= {"access_key_id": "a", "secret_access_key": "b"}
    # Stopping waits for what the publisher has asked.
    return {"url": "s3://bucket", "upload_timeout": "1s", "options": options}


def lines(logs: list[Any], about: str) -> list[Any]:
    return [line for line in logs if line["event"].startswith(f"the {about} can")]


@pytest.mark.parametrize("server", [nobody, silent_server])
def test_a_catalog_that_is_away_at_the_start(tmp_path: Path, server: Any) -> None:
    with (
        server() as port,
        capture_logs() as logs,
        bridge_thread(test_settings(tmp_path, catalog=rest_at(port), metrics_listen="127.0.0.1:0")) as bridge,
    ):
        eventually(lambda: len(lines(logs, "catalog")) > 0, SAID_SECONDS_MAX)
        (said,) = lines(logs, "catalog")
        assert "copies and fetches go on" in said["event"]
        assert said["log_level"] == "warning"
        assert said["where"] == f"http://127.0.0.1:{port}"
        assert said["retry_s"] == REACH_AGAIN_SECONDS
        assert "secret" not in str(said)
        with ShimClient(bridge.address) as shim:
            segment = segment_of(LogBuilder().fill(batches=2))
            assert shim.fetch(shim.copied(segment)) == segment.data
        with urlopen(f"http://{bridge.metrics_address}/readyz", timeout=10) as page:
            text = page.read().decode()
        assert text.startswith("ok; the catalog cannot be reached: ")
        assert bridge.reach.first_words() == "store=ok catalog=away"


@pytest.mark.parametrize("server", [nobody, silent_server])
def test_a_store_that_is_away_at_the_start(tmp_path: Path, server: Any) -> None:
    with (
        server() as port,
        capture_logs() as logs,
        bridge_thread(test_settings(tmp_path, store=s3_at(port))) as bridge,
    ):
        eventually(lambda: len(lines(logs, "store")) > 0, SAID_SECONDS_MAX)
        assert "copies, fetches and deletes fail" in lines(logs, "store")[0]["event"]
        assert bridge.reach.first_words().startswith("store=away")


def test_the_ready_line_says_it(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "t.yaml"
    config.write_text(f"catalog:\n  properties: {{type: rest, uri: 'http://127.0.0.1:{port}'}}\n")
    with BridgeProcess("--config", str(config), "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0") as bridge:
        assert bridge.ready_line.rstrip().endswith("store=ok catalog=away")
        assert bridge.stop() == 0
        assert "the catalog cannot be reached" in bridge.errors()


def test_an_outage_is_said_once_and_its_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REACH_SECONDS", "REACH_AGAIN_SECONDS", "REACH_SOUND_SECONDS"):
        monkeypatch.setattr(f"rsm_bridge.serving.reachability.{name}", 0.05)
    assert REACH_SECONDS < REACH_SOUND_SECONDS < REACH_REMIND_SECONDS
    from rsm_bridge.logs import logger

    release, mood, asked = threading.Event(), ["refuse"], []

    def ask() -> None:
        asked.append(threading.current_thread())
        if mood[0] == "refuse":
            raise OSError("refused")
        if mood[0] == "hang":
            release.wait(20)

    with capture_logs() as logs:
        place = Dependency(name="store", where="here", ask=ask, without="nothing works")
        watch = Reachability((place,), logger("test"))
        watch.start()
        eventually(lambda: place.said == "refused")
        time.sleep(0.5)
        mood[0] = "hang"
        eventually(lambda: "no answer within" in (place.said or ""))
        before = len(asked)
        time.sleep(0.5)
        assert len(asked) == before, "one question at a time"
        mood[0] = "well"
        release.set()
        eventually(lambda: place.said is None)
        watch.stop()
    assert [line["log_level"] for line in lines(logs, "store")] == ["warning", "info"]
