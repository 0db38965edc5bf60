"""What a bridge writes is for its own user alone, whatever the umask it was started with."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.errors import SettingsError
from tests.support.bridge_process import BridgeProcess, bridge_thread, test_settings
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of


@contextmanager
def generous() -> Iterator[None]:
    """A process that begins here lets everybody read and write what it makes."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Files and folders that anybody but their owner may read, write or search."""
    found = [folder, *folder.rglob("*")]
    return [str(path) for path in found if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def test_store_catalog_lock_and_cache_and_the_peer_in_the_log(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    rule = {"names": ["CN=broker-1"], "clusters": ["test"], "may": "write"}
    config, data = tmp_path / "tierberg.yaml", tmp_path / "data"
    tls = {**authority.settings(), "clients": [rule]}
    # JSON is YAML.
    config.write_text(
        json.dumps({"data_dir": str(data), "listen": "127.0.0.1:0", "publish_interval": "100ms", "tls": tls})
    )
    with generous():
        process = BridgeProcess("--config", str(config))
    with process as bridge:
        segment = segment_of(LogBuilder().fill(batches=2, size=10_000), topic="private")
        for name, served in (("broker-1", True), ("guest", False)):
            with ShimClient(bridge.address, authority.credentials(name)) as shim:
                if served:
                    segment = shim.copied(segment)
                    assert shim.fetch(segment) == segment.data
                    shim.delete(segment)
                    segment = shim.copied(segment_of(LogBuilder().fill(batches=2), topic="private"))
                else:
                    try:
                        shim.fetch(segment)
                    except Exception as error:  # noqa: BLE001 the log is what is looked at
                        assert "PERMISSION_DENIED" in str(error)  # noqa: PT017
        with closing(open_catalog(embedded_settings(data))) as catalog:
            eventually(lambda: catalog.table_exists("kafka.private"))
        bridge.stop()
        lines = [json.loads(line) for line in bridge.errors().splitlines() if line.startswith("{")]
    assert {path.name for path in data.iterdir()} >= {"store", "warehouse", "catalog.db", "bridge.lock"}
    assert list((data / "store").rglob("*.parquet"))
    assert open_to_others(data) == []
    calls = {(line["event"], line["kind"], line["peer"]) for line in lines if "kind" in line}
    assert {
        ("copy", "ok", "CN=broker-1"),
        ("delete", "ok", "CN=broker-1"),
        ("fetch", "not_allowed", "CN=guest"),
    } <= calls


def test_a_socket_takes_no_place_that_is_taken(tmp_path: Path) -> None:
    """Of another bridge, which would run on and be reached no more, or of a file; what a killed one has left goes."""
    listen = f"unix:{tmp_path}/s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/s")
    with bridge_thread(test_settings(tmp_path / "one", listen=listen)) as bridge:
        with pytest.raises(SettingsError, match=f"another process listens on {tmp_path}/s"):
            bridge_thread(test_settings(tmp_path / "two", listen=listen)).__enter__()
        with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waits:
            busy.bind(f"{tmp_path}/busy")
            busy.listen(0)
            waits.connect(f"{tmp_path}/busy")
            with pytest.raises(SettingsError, match="busy cannot be taken: "):
                bridge_thread(test_settings(tmp_path / "two", listen=f"unix:{tmp_path}/busy")).__enter__()
        with ShimClient(bridge.address) as shim:
            shim.copied(segment_of(one_batch()))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingsError, match=r"file is there already and is no socket"):
        bridge_thread(test_settings(tmp_path / "two", listen=f"unix:{tmp_path}/file")).__enter__()
    assert (tmp_path / "file").read_text() == "mine"


def one_batch() -> LogBuilder:
    log = LogBuilder()
    log.batch([b"x"])
    return log


def test_the_socket_is_for_its_user_and_group(tmp_path: Path) -> None:
    with generous(), bridge_thread(test_settings(tmp_path / "data", listen=f"unix:{tmp_path}/s")):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660
