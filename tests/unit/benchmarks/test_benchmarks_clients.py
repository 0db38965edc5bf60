"""Client processes: readiness, results, failures and deadlines; segments handed to them by file; certificates."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from benchmarks.bridge_client import _frame, _segment
from benchmarks.certificates import make_certificates
from benchmarks.clients.latency import _DUE, due_ns
from benchmarks.clients.process import Client, ClientError, run_together
from benchmarks.clients.protocol import number, text
from benchmarks.segment_file import as_copy, open_segment, write_segment
from benchmarks.segments import segment
from rsm_bridge.proto import rsm_pb2
from rsm_bridge.serving.wire.messages import Frame, Start, parse_copy_request

PROGRAM = """
import json, sys, time
settings = json.loads(sys.argv[1])
if settings.get("dies"):
    sys.exit(3)
print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
time.sleep(settings.get("sleeps", 0))
print(json.dumps({"doubled": settings["value"] * 2}), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs PROGRAM in place of every client."""
    path = tmp_path / "client.py"
    path.write_text(PROGRAM)
    real = subprocess.Popen

    def start(argv: list[str], **options: Any) -> subprocess.Popen[str]:
        assert argv[:3] == [sys.executable, "-m", "benchmarks.clients.any"]
        return real([sys.executable, str(path), argv[3]], **options)

    monkeypatch.setattr(subprocess, "Popen", start)


@pytest.mark.usefixtures("program")
def test_clients_start_together_and_answer() -> None:
    results, wall_s = run_together("any", [{"value": 2}, {"value": 5, "sleeps": 0.3}])
    assert [result["doubled"] for result in results] == [4.0, 10.0]
    assert wall_s >= 0.3


@pytest.mark.usefixtures("program")
def test_a_client_that_dies_is_an_error() -> None:
    with pytest.raises(ClientError, match="ended with code 3"):
        run_together("any", [{"value": 1, "dies": True}])


@pytest.mark.usefixtures("program")
def test_a_slow_client_is_an_error_and_is_killed() -> None:
    with Client("any", {"value": 1, "sleeps": 60}) as client:
        client.wait_ready()
        client.go()
        with pytest.raises(ClientError, match="nothing within"):
            client.result(timeout_s=0.2)
        pid = client.pid
    assert client._process.poll() is not None
    assert pid == client._process.pid


def test_settings_are_checked_by_type() -> None:
    assert (text({"a": "x"}, "a"), number({"a": 3}, "a")) == ("x", 3)
    with pytest.raises(TypeError):
        text({"a": 3}, "a")
    with pytest.raises(TypeError):
        number({"a": "3"}, "a")
    with pytest.raises(KeyError):
        text({}, "a")


def test_a_segment_file_brings_back_bytes_and_metadata(tmp_path: Path) -> None:
    one = segment("synthetic-100", "none", "16k", 100_000)
    found = open_segment(write_segment(one, tmp_path / "segment"))
    assert bytes(found.data) == one.data
    assert found.metadata == one.metadata


def test_copies_of_a_segment_are_segments_of_their_own() -> None:
    one = segment("synthetic-100", "none", "16k", 100_000).metadata
    copies = [as_copy(one, "t", 0), as_copy(one, "t", 1), as_copy(one, "u", 0)]
    assert len({copy.segment_id for copy in copies}) == 3
    assert copies[0].topic_id == copies[1].topic_id != copies[2].topic_id
    assert {(copy.start_offset, copy.end_offset) for copy in copies} == {(one.start_offset, one.end_offset)}


def test_frames_and_metadata_are_read_by_the_bridge_as_they_were_meant() -> None:
    payload = bytes(range(256)) * 4096
    for position in (0, 1, 1 << 30):
        frame = parse_copy_request(_frame(position, memoryview(payload)))
        assert isinstance(frame, Frame)
        frame.check()
        assert (frame.position, bytes(frame.data)) == (position, payload)
    metadata = segment("synthetic-100", "none", "16k", 100_000).metadata
    start = parse_copy_request(
        rsm_pb2.CopyRequest(start=rsm_pb2.CopyStart(segment=_segment(metadata))).SerializeToString()
    )
    assert isinstance(start, Start)
    assert start.described() == metadata


def test_a_value_carries_the_time_it_was_due() -> None:
    assert due_ns(_DUE.pack(1_700_000_000_123_456_789) + b"rest") == 1_700_000_000_123_456_789


def test_certificates_are_signed_by_their_authority_for_both_ends(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "tls")
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    for pair in (files.bridge, files.broker):
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        certificate.verify_directly_issued_by(authority)
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert set(uses) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
        assert b"BEGIN PRIVATE KEY" in pair.key.read_bytes()
