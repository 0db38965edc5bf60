"""Who may talk to a bridge with mutual TLS: only clients with a certificate of the right authority."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from benchmarks.certificates import Certificates, make_certificates
from rsm_bridge.errors import SettingsError
from rsm_bridge.serving.service import Running
from rsm_bridge.status.check.command import CheckOptions, check_config
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, ShimError, segment_of


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "theirs")


def tls(of: Certificates, **changes: str) -> dict[str, str]:
    return {
        "certificate_file": str(of.bridge.certificate),
        "key_file": str(of.bridge.key),
        "client_ca_file": str(of.authority),
        **changes,
    }


@pytest.fixture(scope="module")
def bridge(ours: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with bridge_thread(test_settings(tmp_path_factory.mktemp("tls") / "data", tls=tls(ours))) as running:
        yield running


def client(bridge: Running, trust: Certificates, own: Certificates | None) -> ShimClient:
    credentials = grpc.ssl_channel_credentials(
        trust.authority.read_bytes(),
        None if own is None else own.broker.key.read_bytes(),
        None if own is None else own.broker.certificate.read_bytes(),
    )
    return ShimClient(bridge.address, credentials, timeout=10)


def test_the_right_certificate_is_served(bridge: Running, ours: Certificates) -> None:
    with client(bridge, ours, ours) as shim:
        sent = segment_of(LogBuilder().fill(batches=3))
        assert shim.fetch(shim.copied(sent)) == sent.data


@pytest.mark.parametrize("case", ["none", "other authority", "plaintext", "bridge not trusted"])
def test_others_are_refused_and_harm_nobody(
    bridge: Running, ours: Certificates, theirs: Certificates, case: str
) -> None:
    segment = segment_of(LogBuilder().fill(batches=1))
    wrong: Callable[[], ShimClient] = {
        "none": lambda: client(bridge, ours, None),
        "other authority": lambda: client(bridge, ours, theirs),
        "plaintext": lambda: ShimClient(bridge.address, timeout=10),
        "bridge not trusted": lambda: client(bridge, theirs, ours),
    }[case]
    with wrong() as shim:
        for call in (shim.copy, shim.fetch, shim.delete):
            with pytest.raises(ShimError) as failed:
                call(segment)
            assert failed.value.code is grpc.StatusCode.UNAVAILABLE
    assert not list(bridge.store.list_after(f"index/{segment.topic_id.hex()}/"))
    with client(bridge, ours, ours) as shim:
        assert shim.fetch(shim.copied(segment)) == segment.data


@pytest.mark.parametrize("field", ["certificate_file", "key_file", "client_ca_file"])
@pytest.mark.parametrize("damage", ["missing", "no PEM", "cut"])
def test_unusable_files_keep_a_bridge_from_starting(
    ours: Certificates, tmp_path: Path, field: str, damage: str
) -> None:
    path = tmp_path / "file.pem"
    if damage == "no PEM":
        path.write_bytes(b"\xff" * 100)
    elif damage == "cut":
        path.write_bytes(Path(tls(ours)[field]).read_bytes()[:30])
    with (
        pytest.raises(SettingsError),
        bridge_thread(test_settings(tmp_path / "data", tls=tls(ours, **{field: str(path)}))),
    ):
        pass


def test_a_key_of_another_certificate_is_refused_at_the_start_and_by_config_check(
    ours: Certificates, theirs: Certificates, tmp_path: Path
) -> None:
    section = tls(ours, key_file=str(theirs.bridge.key))
    said = "tls.certificate_file .* and tls.key_file .* do not belong together"
    with (
        pytest.raises(SettingsError, match=said),
        bridge_thread(test_settings(tmp_path / "data", tls=section)),
    ):
        pass
    config = tmp_path / "tierberg.yaml"
    config.write_text(json.dumps({"data_dir": str(tmp_path / "data"), "tls": section}))
    with pytest.raises(SettingsError, match=said):
        check_config(CheckOptions(config=config, topics=("orders",), ask_kafka=False))
    words = [sys.executable, "-c", "from tierberg.cli import main; main()", "serve", "--config", str(config)]
    found = subprocess.run(words, check=False, timeout=120, capture_output=True, text=True)
    assert (found.returncode, bool(re.search(said, found.stderr))) == (2, True), found.stderr
    assert not (tmp_path / "data" / "numba-cache").exists(), "said before kernels are compiled"
