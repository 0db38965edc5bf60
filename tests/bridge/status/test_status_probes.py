"""`/metrics`, `/healthz` and `/readyz` of a bridge, sound and with its parts away."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rsm_bridge.limits
from converter.types import IndexType
from rsm_bridge.errors import SettingsError
from rsm_bridge.limits import START_STOP_SECONDS_MAX, STORE_REFUSAL_SECONDS_MAX, STORE_REFUSAL_SECONDS_MIN
from rsm_bridge.metrics.metrics import Metrics
from rsm_bridge.serving.probes import Probes
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.gather import Wanted, gather
from rsm_bridge.storage.writes import StoreWrites
from tests.oracle.transactions import producer_snapshot
from tests.support.bridge_process import BridgeProcess, bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, ShimError, segment_of
from tierberg.stack.ports import accepts, free_ports


def get(address: str | None, path: str) -> tuple[int, str]:
    """Status and body."""
    assert address is not None
    try:
        with urlopen(f"http://{address}{path}", timeout=10) as page:
            return page.status, page.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def gauges(address: str | None, name: str) -> dict[tuple[str, ...], float]:
    """Value by topic, and partition where it has one."""
    status, text = get(address, "/metrics")
    assert status == 200
    return {
        tuple(sample.labels[label] for label in ("topic", "partition") if label in sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_every_metric_is_in_the_docs() -> None:
    told = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    made = Metrics()
    names = [f"{family.name}_total" if family.type == "counter" else family.name for family in made.registry.collect()]
    assert len(names) > 30
    assert [name for name in names if f"`{name}" not in told] == []


def test_what_is_watched_for_is_counted_from_nought(tmp_path: Path) -> None:
    """A rate over time does not see the first event of a series that begins with it."""
    with bridge_thread(test_settings(tmp_path, metrics_listen="127.0.0.1:0")) as bridge:
        _, text = get(bridge.metrics_address, "/metrics")
    for line in (
        'tierberg_requests_total{kind="corrupt_object",method="fetch"} 0.0',
        'tierberg_requests_total{kind="store_unavailable",method="copy"} 0.0',
        'tierberg_quarantined_batches_total{cause="bad_crc"} 0.0',
        'tierberg_verbatim_segments_total{reason="internal"} 0.0',
        'tierberg_dead_letters_total{code="undecodable"} 0.0',
        'tierberg_publishes_total{outcome="failed"} 0.0',
    ):
        assert line in text


def test_a_bridge_that_accepts_and_says_nothing_is_away_with_tls_too(tmp_path: Path) -> None:
    """A process that stands still: the kernel takes connections for it."""
    certificate = {"certificate_file": tmp_path / "c", "key_file": tmp_path / "k"}
    with socket.create_server(("127.0.0.1", 0)) as hole:
        address = f"127.0.0.1:{hole.getsockname()[1]}"
        settings = test_settings(tmp_path, listen=address, tls=certificate)
        found = gather(settings, Wanted(None, address, 5))
    assert found.bridge_problem is not None
    assert "timed out" in found.bridge_problem.message


def with_page(tmp_path: Path, **changes: Any) -> Any:
    return bridge_thread(test_settings(tmp_path, metrics_listen="127.0.0.1:0", **changes))


def test_a_sound_bridge_is_alive_and_ready(tmp_path: Path) -> None:
    with with_page(tmp_path) as running:
        assert get(running.metrics_address, "/healthz") == (200, "ok\n")
        assert get(running.metrics_address, "/readyz") == (200, "ok\n")
        assert get(running.metrics_address, "/readyz?verbose") == (200, "ok\n")
        assert get(running.metrics_address, "/metrics")[0] == 200
        assert get(running.metrics_address, "/else")[0] == 404


def test_a_store_that_is_gone_makes_it_unready_and_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.serving.probes.PROBE_FRESH_SECONDS", 0.0)
    with with_page(tmp_path) as running:
        assert get(running.metrics_address, "/readyz")[0] == 200
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        status, said = get(running.metrics_address, "/readyz")
        assert status == 503
        assert "the store cannot be reached" in said
        assert get(running.metrics_address, "/healthz")[0] == 200
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        assert get(running.metrics_address, "/readyz")[0] == 200


def test_a_store_that_takes_no_copies_is_said_until_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers all the while: a file is where the folder of data files would be."""
    monkeypatch.setattr("rsm_bridge.storage.writes.STORE_REFUSAL_SECONDS_MIN", 0.01)
    settings = test_settings(tmp_path, metrics_listen="127.0.0.1:0")
    segment = segment_of(LogBuilder().fill(batches=3))
    with bridge_thread(settings) as running, ShimClient(running.address) as shim:

        def said() -> str | None:
            report = assess(gather(settings, Wanted(None, running.address, 10.0)))
            return next((item.said for item in report.findings if item.code is CauseCode.STORE_REFUSES), None)

        in_the_way = Path(running.store.root_uri.removeprefix("file://")) / "data"
        in_the_way.touch()
        for tries in range(3):
            assert (said() is not None) is (tries > 1)
            with pytest.raises(ShimError, match="data/"):
                shim.copied(segment)
            time.sleep(0.02)
        status, page = get(running.metrics_address, "/readyz")
        assert status == 200
        assert page.startswith("ok; the store takes no copies: data/")
        assert "Not a directory" in (said() or "")
        in_the_way.unlink()
        shim.copied(segment)
        assert said() is None
        assert get(running.metrics_address, "/readyz") == (200, "ok\n")


def test_what_the_store_refused_is_old_news_where_nobody_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("rsm_bridge.storage.writes.time", SimpleNamespace(monotonic=lambda: now[0]))
    writes = StoreWrites()
    for seconds, refused in ((0.0, False), (STORE_REFUSAL_SECONDS_MIN - 1, False), (1, True)):
        now[0] += seconds
        writes.failed("quota\nexceeded")
        assert (writes.refusal() == "quota") is refused
    now[0] += STORE_REFUSAL_SECONDS_MAX
    assert writes.refusal() == "quota"
    now[0] += 1
    assert writes.refusal() is None
    writes.failed("quota")
    assert writes.refusal() is None
    now[0] += STORE_REFUSAL_SECONDS_MIN
    writes.failed("quota")
    assert writes.refusal() == "quota"
    writes.worked()
    assert writes.refusal() is None
    writes.failed("a moment")
    assert writes.refusal() is None


def test_a_catalog_that_is_away_leaves_it_ready_and_copying(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    catalog = {"properties": {"type": "rest", "uri": f"http://127.0.0.1:{port}"}}
    with with_page(tmp_path, catalog=catalog) as running, ShimClient(running.address) as shim:
        shim.copied(segment_of(LogBuilder().fill(batches=3)))
        eventually(lambda: 'tierberg_publishes_total{outcome="failed"}' in get(running.metrics_address, "/metrics")[1])
        status, said = get(running.metrics_address, "/readyz")
        assert status == 200
        assert said.startswith("ok; the catalog cannot be reached")
        assert gauges(running.metrics_address, "tierberg_partition_tiered_end_offset") == {("orders", "0"): 30}
        assert gauges(running.metrics_address, "tierberg_partition_frontier_offset") == {("orders", "0"): -1}
        eventually(lambda: gauges(running.metrics_address, "tierberg_table_unpublished_seconds")["orders",] > 0.2)


def test_a_second_page_on_one_port_is_a_setting_to_change(tmp_path: Path) -> None:
    with with_page(tmp_path / "a") as running:
        taken = test_settings(tmp_path / "b", metrics_listen=running.metrics_address)
        why = "metrics_listen: cannot listen on .*: another process uses this port; stop it, or choose another port"
        with pytest.raises(SettingsError, match=f"{why}$"), bridge_thread(taken):
            pytest.fail("two bridges share one port")


def test_a_second_bridge_on_one_port_is_a_setting_to_change(tmp_path: Path) -> None:
    with with_page(tmp_path / "a") as running:
        taken = test_settings(tmp_path / "b", listen=running.address)
        why = f"listen: cannot listen on {running.address}: another process uses this port; stop it, or choose another"
        with pytest.raises(SettingsError, match=f"{why} port$"), bridge_thread(taken):
            pytest.fail("two bridges share one port")


@pytest.mark.parametrize(
    ("listen", "why"),
    [("192.0.2.1:0", "no interface of this machine has this address"), ("unix:/no/such/folder/s", "")],
)
def test_what_else_keeps_a_bridge_from_an_address(tmp_path: Path, listen: str, why: str) -> None:
    settings = test_settings(tmp_path, listen=listen, insecure=True)
    with (
        pytest.raises(SettingsError, match=f"listen: cannot listen on {listen}: {why}") as refused,
        bridge_thread(settings),
    ):
        pytest.fail("nobody can listen there")
    assert "GRPC_" not in str(refused.value)


def test_gauges_follow_a_copy_into_the_table(tmp_path: Path) -> None:
    log = LogBuilder().fill(batches=3)
    log.batch([b"broken"] * 5, bad_crc=True, visible=False)
    with with_page(tmp_path) as running, ShimClient(running.address) as shim:
        shim.copied(segment_of(log))
        eventually(
            lambda: gauges(running.metrics_address, "tierberg_partition_frontier_offset") == {("orders", "0"): 35}
        )
        assert gauges(running.metrics_address, "tierberg_partition_tiered_end_offset") == {("orders", "0"): 35}
        assert gauges(running.metrics_address, "tierberg_partition_unpublished_seconds") == {("orders", "0"): 0}
        assert gauges(running.metrics_address, "tierberg_partition_waiting_seconds") == {("orders", "0"): 0}
        assert gauges(running.metrics_address, "tierberg_table_quarantined_batches") == {("orders",): 1}
        assert gauges(running.metrics_address, "tierberg_table_foreign_files") == {("orders",): 0}


def test_the_waiting_age_grows_until_the_marker_comes(tmp_path: Path) -> None:
    log = LogBuilder().fill(batches=1)
    log.batch([b"open"] * 5, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10)
    first = segment_of(log, files={IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(7, 10)])})
    rest = LogBuilder(next_offset=log.next_offset)
    rest.control(7, commit=True)
    with with_page(tmp_path) as running, ShimClient(running.address) as shim:
        shim.copied(first)
        eventually(lambda: gauges(running.metrics_address, "tierberg_partition_waiting_seconds").get(("orders", "0")))
        assert gauges(running.metrics_address, "tierberg_table_waiting_seconds")["orders",] > 0
        shim.copied(segment_of(rest, topic_id=first.topic_id))
        eventually(
            lambda: gauges(running.metrics_address, "tierberg_partition_frontier_offset") == {("orders", "0"): 16}
        )
        eventually(
            lambda: gauges(running.metrics_address, "tierberg_partition_waiting_seconds") == {("orders", "0"): 0}
        )


def test_a_process_answers_probes_until_it_ends(tmp_path: Path) -> None:
    with BridgeProcess(
        "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"
    ) as one:
        address = next(word.partition("=")[2] for word in one.ready_line.split() if word.startswith("metrics="))
        assert get(address, "/healthz") == (200, "ok\n")
        assert get(address, "/readyz") == (200, "ok\n")
        shutil.rmtree(tmp_path / "store")
        eventually(lambda: get(address, "/readyz")[0] == 503)
        assert one.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_alive_and_not_ready_while_kernels_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cold"))
    (port,) = free_ports(1)
    page = f"127.0.0.1:{port}"
    arguments = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics-listen", page)
    with BridgeProcess(*arguments, expect_ready=False) as one:
        eventually(lambda: accepts(port), 120)
        eventually(lambda: get(page, "/readyz") == (503, "starting: compiling kernels\n"))
        assert get(page, "/healthz") == (200, "ok\n")
        eventually(lambda: get(page, "/readyz")[0] == 200, 240)
        assert get(page, "/healthz") == (200, "ok\n")
        assert one.stop() == 0


class _Store:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def check(self) -> None:
        self.asked += 1


def probes_of(loop: asyncio.AbstractEventLoop, store: _Store) -> Probes:
    return Probes(loop=loop, store=store)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bridge_that_compiles_kernels_ends_when_it_is_told_to(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on for up to two minutes; Kubernetes kills after half a minute."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cold"))
    with BridgeProcess("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", expect_ready=False) as one:
        eventually(lambda: "compiling kernels" in one.errors(), 60)
        started = time.monotonic()
        one.process.send_signal(number)
        assert one.process.wait(60) == 0
        assert time.monotonic() - started < START_STOP_SECONDS_MAX + 5
        assert "stopped before the bridge was ready" in one.errors()


def test_not_ready_before_the_kernels_are_loaded() -> None:
    loop, store = asyncio.new_event_loop(), _Store()
    probes = probes_of(loop, store)
    assert probes.ready() == "starting: loading kernels"
    probes.compiling.set()
    assert probes.ready() == "starting: compiling kernels"
    assert store.asked == 0
    probes.warm.set()
    assert probes.ready() is None
    loop.close()


def test_many_probes_ask_the_store_once() -> None:
    loop, store = asyncio.new_event_loop(), _Store()
    probes = probes_of(loop, store)
    probes.warm.set()
    assert [probes.ready() for _ in range(50)] == [None] * 50
    assert store.asked == 1
    assert rsm_bridge.limits.PROBE_FRESH_SECONDS >= 1
    loop.close()


def test_an_event_loop_that_hangs_or_ended_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.serving.probes.PROBE_SECONDS", 0.2)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    probes = probes_of(loop, _Store())
    assert probes.alive() is None
    release = threading.Event()
    loop.call_soon_threadsafe(release.wait)
    said = probes.alive()
    assert said is not None
    assert "has not answered" in said
    release.set()
    eventually(lambda: probes.alive() is None)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
    assert probes.alive() == "the event loop is closed"
