"""`tierberg status` on stores that real bridges have filled: exit codes, causes, and sources that are away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner, Result

from converter.types import IndexType
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.config.settings import load_settings
from rsm_bridge.errors import StoreError
from rsm_bridge.limits import STATUS_FAILURES_MAX, STATUS_TOPICS
from rsm_bridge.serving.service import Running
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.gather import beyond_tiered, bridge_address
from rsm_bridge.status.store.facts import stored_topic
from rsm_bridge.status.within import within
from tests.oracle.transactions import producer_snapshot
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, segment_of
from tests.support.status_facts import kafka, kafka_partition, kafka_topic, stored, stored_partition
from tierberg.cli import app
from tierberg.stack.ports import free_ports

RUNNER = CliRunner()


@dataclass(frozen=True)
class Outcome:
    """What the command printed, and its exit code."""

    output: str
    exit_code: int


def command(folder: Path, *arguments: str) -> Result:
    """Through the command line; not beside a bridge of this process, which logs to the same standard output."""
    return RUNNER.invoke(app, ["status", *arguments, "--data-dir", str(folder), "--bridge", "none"])


def run(folder: Path, bridge: str = "none", **options: Any) -> Outcome:
    text, needed = status(StatusOptions(data_dir=folder, bridge=bridge, **options))
    return Outcome(text, int(needed))


def report(folder: Path, bridge: str = "none", **options: Any) -> dict[str, Any]:
    """The JSON form."""
    result = run(folder, bridge, json=True, **options)
    document: dict[str, Any] = json.loads(result.output)
    assert document["needs_person"] == (result.exit_code == 1)
    return document


def codes(document: dict[str, Any]) -> set[str]:
    topics = document["topics"]
    findings = [*document["findings"], *(finding for topic in topics for finding in topic["findings"])]
    findings += [finding for topic in topics for part in topic["partitions"] for finding in part["findings"]]
    return {finding["code"] for finding in findings}


def until(folder: Path, *wanted: str, bridge: str = "none") -> dict[str, Any]:
    """The report once it has these causes, and nothing waits for a commit any more."""
    end = time.monotonic() + 30
    while not set(wanted) <= codes(found := report(folder, bridge=bridge)) or "publishing" in codes(found):
        assert time.monotonic() < end, json.dumps(found, indent=1)
        time.sleep(0.1)
    return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with bridge_thread(test_settings(tmp_path)) as started:
        yield started


def copy(running: Running, *segments: Segment) -> list[Segment]:
    with ShimClient(running.address) as shim:
        return [shim.copied(segment) for segment in segments]


def table_of(folder: Path, name: str = "orders") -> Any:
    return open_catalog(embedded_settings(folder)).load_table(("kafka", name))


def test_tiered_and_published(tmp_path: Path, running: Running) -> None:
    first = segment_of(LogBuilder().fill(batches=3))
    copy(running, first, replace(first, partition=4, segment_id=bytes(16)))
    found = until(tmp_path, "published", bridge=running.address)
    assert found["level"] == "note"  # Kafka was not asked
    assert codes(found) == {"kafka_not_asked", "published"}
    (topic,) = found["topics"]
    assert (topic["topic"], topic["topic_id"], topic["table"]) == ("orders", first.topic_id.hex(), "kafka.orders")
    assert abs(topic["committed_ms"] - found["at_ms"]) < 60_000
    assert [part["partition"] for part in topic["partitions"]] == [0, 4]
    assert {(part["tiered_end"], part["published_end"]) for part in topic["partitions"]} == {(30, 30)}


def test_text_for_people(tmp_path: Path, running: Running) -> None:
    copy(running, segment_of(LogBuilder().fill(batches=3)))
    until(tmp_path, "published")
    result = run(tmp_path, topic="orders")
    assert result.exit_code == 0
    assert result.output.startswith("nobody is needed: 1 tiered topic, 1 partition\n")
    assert "ok orders-0" in result.output


def test_asking_changes_nothing(tmp_path: Path) -> None:
    with bridge_thread(test_settings(tmp_path)) as running:
        copy(running, segment_of(LogBuilder().fill(batches=3)))
        until(tmp_path, "published")

    def everything() -> dict[Path, tuple[int, int]]:
        folders = [tmp_path / "store", tmp_path / "warehouse"]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before, location = everything(), table_of(tmp_path).metadata_location
    assert command(tmp_path).exit_code == 0
    assert everything() == before
    assert table_of(tmp_path).metadata_location == location


def test_an_empty_bridge_needs_nobody(tmp_path: Path, running: Running) -> None:
    found = report(tmp_path, bridge=running.address)
    assert codes(found) == {"kafka_not_asked"}
    assert found["topics"] == []


def test_a_bridge_that_is_away(tmp_path: Path, running: Running) -> None:
    (port,) = free_ports(1)
    found = report(tmp_path, bridge=f"127.0.0.1:{port}")
    assert "bridge_away" in codes(found)
    assert "Connection refused" in str(found)
    assert found["needs_person"]
    assert run(tmp_path, f"127.0.0.1:{port}", accept=("bridge_away",)).exit_code == 0


def test_a_full_disk_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file system says is believed; no copy need have failed before."""
    (tmp_path / "store").mkdir()
    assert "store_full" not in codes(report(tmp_path))
    disk = os.statvfs(tmp_path)
    for full in ({"f_bavail": 16}, {"f_files": 1000, "f_favail": 0}):
        fields = {name: getattr(disk, name) for name in ("f_files", "f_favail", "f_bavail", "f_frsize")}
        monkeypatch.setattr(os, "statvfs", lambda _, found={**fields, **full}: SimpleNamespace(**found))
        assert "store_full" in codes(report(tmp_path))


def test_no_store_is_there(tmp_path: Path) -> None:
    found = report(tmp_path / "wrong")
    assert codes(found) == {"store_away", "kafka_not_asked"}
    result = command(tmp_path / "wrong")
    assert result.exit_code == 1
    assert result.stdout.startswith("somebody is needed: 1 finding in 0 tiered topics, 0 partitions\n\n!! store_away: ")
    assert json.loads(command(tmp_path / "wrong", "--json").stdout)["level"] == "person"
    assert command(tmp_path / "wrong", "--accept", "store_away").exit_code == 0
    assert not (tmp_path / "wrong").exists()  # nothing was made on the way


def test_a_topic_nobody_knows(tmp_path: Path, running: Running) -> None:
    copy(running, segment_of(LogBuilder().fill(batches=1)))
    until(tmp_path, "published")
    result = run(tmp_path, topic="oders")
    assert result.exit_code == 1
    assert "no topic oders is known" in result.output
    assert "orders-0" not in result.output


def test_a_catalog_that_is_away(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    catalog = {"properties": {"type": "rest", "uri": f"http://127.0.0.1:{port}"}}
    config = tmp_path / "tierberg.yaml"
    config.write_text(yaml.safe_dump({"catalog": catalog}))
    with bridge_thread(test_settings(tmp_path, catalog=catalog)) as running:
        copy(running, segment_of(LogBuilder().fill(batches=3)))
        found = report(tmp_path, running.address, config=config)
    assert codes(found) == {"catalog_away", "kafka_not_asked", "tiered"}
    (part,) = found["topics"][0]["partitions"]
    assert (part["tiered_end"], part["published_end"]) == (30, None)


def test_withheld_rows_need_somebody_until_accepted(tmp_path: Path, running: Running) -> None:
    log = LogBuilder().fill(batches=1)
    log.batch([b"broken"] * 5, bad_crc=True, visible=False)
    copy(running, segment_of(log))
    found = until(tmp_path, "published", "quarantined")
    assert found["topics"][0]["quarantined_batches"] == 1
    assert run(tmp_path).exit_code == 1
    assert run(tmp_path, accept=("quarantined",)).exit_code == 0


def test_a_waiting_transaction_is_named(tmp_path: Path, running: Running) -> None:
    log = LogBuilder().fill(batches=1)
    log.batch([b"open"] * 5, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10)
    copy(running, segment_of(log, files={IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(7, 10)])}))
    found = until(tmp_path, "waiting_transaction")
    (part,) = found["topics"][0]["partitions"]
    assert part["waiting"]["first_offset"] == 10
    assert part["waiting"]["producer_id"] == 7
    assert part["lag_s"] >= 0
    assert not found["needs_person"]
    config = tmp_path / "strict.yaml"
    config.write_text("freshness_target: 1ms\n")
    assert run(tmp_path, config=config).exit_code == 1


def test_rows_of_others_in_the_table(tmp_path: Path, running: Running) -> None:
    copy(running, segment_of(LogBuilder().fill(batches=1)))
    until(tmp_path, "published")
    table = table_of(tmp_path)
    schema = table.schema().as_arrow()
    row = {"_kafka_partition": 0, "_kafka_offset": 10_000}
    table.append(pa.Table.from_pylist([{name: row.get(name) for name in schema.names}], schema=schema))
    found = report(tmp_path)
    assert "foreign_files" in codes(found)
    assert found["topics"][0]["foreign_files"] == 1
    assert found["needs_person"]


def test_a_state_object_that_is_gone(tmp_path: Path, running: Running) -> None:
    copy(running, segment_of(LogBuilder().fill(batches=1)))
    until(tmp_path, "published")
    for path in (tmp_path / "store" / "state").rglob("*.json"):
        path.unlink()
    found = report(tmp_path)
    assert "state_damaged" in codes(found)
    assert found["needs_person"]


def test_a_damaged_index_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    with bridge_thread(test_settings(tmp_path)) as running:
        first = segment_of(LogBuilder().fill(batches=3))
        second = segment_of(LogBuilder(next_offset=30).fill(batches=3), topic_id=first.topic_id)
        copy(running, first, second)
        until(tmp_path, "published")
    damaged = next((tmp_path / "store" / "index").rglob(f"*{first.segment_id.hex()}"))
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    found = report(tmp_path)
    assert "index_damaged" in codes(found)
    (topic,) = found["topics"]
    assert damaged.name in next(item["said"] for item in topic["findings"] if item["code"] == "index_damaged")
    assert topic["partitions"][0]["tiered_end"] == 60


def test_a_table_of_another_namespace_is_named_until_it_is_dropped(tmp_path: Path) -> None:
    """Bridges with the old and the new namespace, one after the other; `table drop` as the manual says."""
    segment = segment_of(LogBuilder().fill(batches=3))
    with bridge_thread(test_settings(tmp_path)) as running:
        copy(running, segment)
        until(tmp_path, "published")
    assert "another_table" not in codes(report(tmp_path))
    config = tmp_path / "new.yaml"
    config.write_text("catalog: {namespace: lakehouse}\n")
    (old,) = (item for item in report(tmp_path, config=config)["topics"][0]["findings"] if item["code"] == "table_lost")
    with bridge_thread(test_settings(tmp_path, catalog={"namespace": "lakehouse"})):
        eventually(lambda: "published" in codes(report(tmp_path, config=config)))
    name, _, table = old["said"].partition(", uuid ")
    assert name.startswith("kafka.")
    found = report(tmp_path)["topics"][0]["findings"]
    (new,) = (item for item in found if item["code"] == "another_table")
    assert new["said"].startswith("lakehouse.")
    dropped = RUNNER.invoke(app, ["table", "drop", table, "--data-dir", str(tmp_path), "--config", str(config)])
    assert dropped.exit_code == 0, dropped.output
    assert f"{table}) dropped" in dropped.output
    assert not {"another_table", "table_unreadable"} & codes(report(tmp_path, config=config))


def test_a_mass_delete_is_shown_while_it_can_be_undone(tmp_path: Path) -> None:
    with (
        bridge_thread(test_settings(tmp_path, mass_delete_grace="1h", reclaim_grace="10m")) as running,
        ShimClient(running.address) as shim,
    ):
        # One a day, and all of them go at once, the youngest too: no retention does that.
        named: dict[str, Any] = {"topic": "orders", "topic_id": b"o" * 16}
        now_ms = int(time.time() * 1000)
        copied: list[Segment] = []
        for number in range(4):
            at_ms = now_ms - (3 - number) * 24 * 3_600_000
            log = LogBuilder(10 * number).fill(batches=1)
            copied.append(shim.copied(segment_of(log, **named, max_timestamp_ms=at_ms, event_timestamp_ms=at_ms)))
        until(tmp_path, "published")
        for known in copied:
            shim.delete(known)
        found = until(tmp_path, "mass_delete")
    assert found["needs_person"]
    (finding,) = [item for item in found["topics"][0]["findings"] if item["code"] == "mass_delete"]
    assert "40 rows in 4 segments, over half of the table's, were deleted" in finding["said"]
    assert f"`tierberg undelete orders --data-dir {tmp_path}`" in finding["advice"]


def copied_and_deleted(running: Running, folder: Path) -> None:
    """Three segments of one topic, published and then deleted at once."""
    logs = [LogBuilder(10 * number).fill(batches=1) for number in range(3)]
    known = copy(running, *(segment_of(log, topic="orders", topic_id=b"o" * 16) for log in logs))
    until(folder, "published")
    with ShimClient(running.address) as shim:
        for segment in known:
            shim.delete(segment)


def test_deletes_that_take_no_row_of_the_table_are_no_mass_delete(tmp_path: Path) -> None:
    rules = [{"pattern": "orders", "table_retention": "10000d"}]  # the records are some years old
    (tmp_path / "bridge.yaml").write_text(f"data_dir: {tmp_path}\ntopics: {json.dumps(rules)}\n")
    with bridge_thread(test_settings(tmp_path, topics=rules, mass_delete_grace="1h", reclaim_grace="10m")) as running:
        copied_and_deleted(running, tmp_path)
        assert "mass_delete" in codes(report(tmp_path))
        assert "mass_delete" not in codes(report(tmp_path, config=tmp_path / "bridge.yaml"))


def test_what_goes_after_an_undelete_by_us_calls_nobody(tmp_path: Path) -> None:
    with bridge_thread(test_settings(tmp_path, mass_delete_grace="1h", reclaim_grace="10m")) as running:
        copied_and_deleted(running, tmp_path)
        until(tmp_path, "mass_delete")
        for said in (["undelete", "orders"], ["undelete", "orders", "--undo"]):
            done = RUNNER.invoke(app, [*said, "--data-dir", str(tmp_path)])
            assert done.exit_code == 0, done.output
        found = report(tmp_path)
    (finding,) = [item for item in found["topics"][0]["findings"] if item["code"] == "mass_delete"]
    assert finding["level"] == "note"
    assert "had been undeleted" in finding["said"]


def test_dead_letters_are_counted(tmp_path: Path) -> None:
    rules = [{"pattern": "orders", "value_format": "json"}]
    with bridge_thread(test_settings(tmp_path, topics=rules)) as running:
        log = LogBuilder()
        log.batch([b'{"a": 1}'] * 5 + [b"no json"] * 3)
        copy(running, segment_of(log, topic="orders"))
        found = until(tmp_path, "dead_letters")
    assert not found["needs_person"]
    (finding,) = [item for item in found["topics"][0]["findings"] if item["code"] == "dead_letters"]
    assert finding["said"] == "3 of 8 rows of kafka.orders"


def test_segments_nobody_publishes(tmp_path: Path) -> None:
    with bridge_thread(test_settings(tmp_path, publish_interval="1h")) as running:
        copy(running, segment_of(LogBuilder().fill(batches=3)))
        found = report(tmp_path)
        (part,) = found["topics"][0]["partitions"]
        assert (part["cause"], part["tiered_end"], part["published_end"]) == ("publishing", 30, None)


def test_brokers_that_are_away(tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.status.gather.STATUS_KAFKA_SECONDS", 1.0)
    (port,) = free_ports(1)
    found = report(tmp_path, bootstrap_server=f"127.0.0.1:{port}")
    assert codes(found) == {"kafka_away"}


def test_a_missing_kafka_client_is_said(tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    result = run(tmp_path, bootstrap_server="127.0.0.1:1")
    assert result.exit_code == 0
    assert "kafka_client_missing" in result.output
    assert "pip install 'tierberg[kafka]'" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--accept", "everything"), "--accept everything: not a cause"),
        (("--config", "/no/such.yaml"), "/no/such.yaml"),
        (("--deadline", "0"), "--deadline"),
    ],
)
def test_what_cannot_be_used_is_exit_code_two(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    result = command(tmp_path, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_time_that_runs_out_is_said_and_counts_stay_honest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsm_bridge.status.store.topic.STATUS_READERS", 1)
    with bridge_thread(test_settings(tmp_path)) as running:
        first = segment_of(LogBuilder().fill(batches=1))
        more = [
            segment_of(LogBuilder(next_offset=10 * number).fill(batches=1), topic_id=first.topic_id)
            for number in range(1, 20)
        ]
        copy(running, first, *more)
        until(tmp_path, "published")
    monkeypatch.setattr("rsm_bridge.status.store.topic.time", _Later())
    found = report(tmp_path)
    assert "partly_read" in codes(found)
    assert found["topics"][0]["partitions"][0]["tiered_end"] == 200  # the newest are read first


def published_topics(folder: Path, count: int) -> None:
    """Topics t1, t2, …, each with one segment that is in its table; their ids are their number."""
    with bridge_thread(test_settings(folder)) as running:
        topics = [bytes([number]) * 16 for number in range(1, count + 1)]
        copy(running, *(segment_of(LogBuilder().fill(batches=1), topic=f"t{id_[0]}", topic_id=id_) for id_ in topics))
        until(folder, "published")


def report_hanging_at(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch, *, deadline: float) -> Any:
    """What is reported where the tables of one topic do not come."""
    release = threading.Event()

    def hanging(read: Any, *given: Any) -> Any:
        if read.topic_id[0] == number:
            release.wait(60)
        return stored_topic(read, *given)

    monkeypatch.setattr("rsm_bridge.status.store.read.stored_topic", hanging)
    found = report(folder, deadline=deadline)
    release.set()
    return found


def test_topics_for_which_time_does_not_suffice_are_not_called_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow catalog, or a thousand topics: what was read was thrown away, and the store was said to be away."""
    published_topics(tmp_path, 3)
    found = report_hanging_at(3, tmp_path, monkeypatch, deadline=2.0)
    assert {"published", "partly_read"} <= codes(found)
    assert "store_away" not in codes(found)
    assert [topic["topic"] for topic in found["topics"]] == ["t1", "t2"]
    (said,) = [item["said"] for item in found["findings"] if item["code"] == "partly_read"]
    assert said.startswith("2 of 3 topics were read")


def test_what_the_store_does_not_give_of_one_topic_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_topics(tmp_path, 5)

    def denied(which: Sequence[int]) -> Callable[..., Any]:
        def stored(read: Any, *given: Any) -> Any:
            if read.topic_id[0] in which:
                raise StoreError(f"index of {read.topic}: AccessDenied")
            return stored_topic(read, *given)

        return stored

    monkeypatch.setattr("rsm_bridge.status.store.read.stored_topic", denied([2]))
    found = report(tmp_path)
    assert "store_away" not in codes(found)
    assert [topic["topic"] for topic in found["topics"]] == ["t1", "t3", "t4", "t5"]
    (said,) = [item["said"] for item in found["findings"] if item["code"] == "topic_unread"]
    assert said.startswith(f"1 topic could not be read; first id {'02' * 16}")
    assert "AccessDenied" in said
    assert found["needs_person"]
    monkeypatch.setattr("rsm_bridge.status.store.read.stored_topic", denied(range(2, 6)))
    found = report(tmp_path)
    assert "store_away" not in codes(found)
    assert [topic["topic"] for topic in found["topics"]] == ["t1"], "what was read is shown"
    monkeypatch.setattr("rsm_bridge.status.store.read.stored_topic", denied(range(1, 6)))
    found = report(tmp_path)
    assert "store_away" in codes(found)
    assert not found["topics"]


def test_a_store_that_fails_for_several_topics_one_after_the_other_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert STATUS_FAILURES_MAX > STATUS_TOPICS, "those that were under way when it failed are no series"
    monkeypatch.setattr("rsm_bridge.status.store.read.STATUS_FAILURES_MAX", 3)
    monkeypatch.setattr("rsm_bridge.status.store.read.STATUS_TOPICS", 1)
    published_topics(tmp_path, 6)
    asked: list[int] = []

    def failing(read: Any, *given: Any) -> Any:
        asked.append(read.topic_id[0])
        if read.topic_id[0] in (2, 4, 5, 6):
            raise StoreError(f"index of {read.topic}: no answer")
        return stored_topic(read, *given)

    monkeypatch.setattr("rsm_bridge.status.store.read.stored_topic", failing)
    found = report(tmp_path)
    assert asked[:6] == [1, 2, 3, 4, 5, 6]
    assert "store_away" in codes(found)
    assert [topic["topic"] for topic in found["topics"]] == ["t1", "t3"], "what was read is shown"


def test_a_store_that_ends_answering_in_the_middle_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published_topics(tmp_path, 2)
    found = report_hanging_at(2, tmp_path, monkeypatch, deadline=2.0)
    assert found["needs_person"]
    (said,) = [item["said"] for item in found["findings"] if item["code"] == "store_slow"]
    assert said.startswith("1 of 2 topics were read, with their tables, in 4 s, none in the last ")


def test_of_a_store_that_answers_slowly_nobody_says_that_it_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_topics(tmp_path, 1)
    found = report_hanging_at(1, tmp_path, monkeypatch, deadline=0.5)
    assert "store_away" not in codes(found)
    (said,) = [item["said"] for item in found["findings"] if item["code"] == "store_slow"]
    assert said.startswith("none of 1 topics could be read, with its table, in 1 s")


class _Later:
    """A clock on which every deadline has passed."""

    time = staticmethod(time.time)

    @staticmethod
    def monotonic() -> float:
        return float("inf")


def test_a_source_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    started = time.monotonic()
    with pytest.raises(TimeoutError, match=r"the store did not answer within 0\.1 s"):
        within(0.1, "store", release.wait)
    assert time.monotonic() - started < 5
    release.set()
    empty: dict[str, int] = {}
    with pytest.raises(KeyError):
        within(5, "store", lambda: empty["x"])
    assert within(5, "store", lambda: 7) == 7


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:7410", "127.0.0.1:7410"),
        ("[::1]:7410", "[::1]:7410"),
        ("0.0.0.0:7410", "127.0.0.1:7410"),
        ("127.0.0.1:0", None),
        ("unix:/run/t.sock", "unix:/run/t.sock"),
    ],
)
def test_where_a_bridge_is_asked(listen: str, address: str | None) -> None:
    assert bridge_address(load_settings(None, {"listen": listen, "insecure": True})) == address


def test_first_offsets_beyond_what_is_tiered() -> None:
    parts = {
        0: kafka_partition(end=150),
        1: kafka_partition(log_start=7, end=20),
        2: kafka_partition(end=100),
        3: kafka_partition(end=None),
    }
    ours = stored(partitions={0: stored_partition(), 2: stored_partition()})
    found = beyond_tiered(kafka(kafka_topic(partitions=parts)), {ours.topic_id: ours})
    assert found == {("orders", 0): 100, ("orders", 1): 7}


def test_a_catalog_that_is_gone_is_named(tmp_path: Path) -> None:
    """Its file was removed, or never restored: status advised to drop the record of the real table, or said nothing."""
    with bridge_thread(test_settings(tmp_path)) as running:
        copy(running, segment_of(LogBuilder().fill(batches=3)))
        until(tmp_path, "published")
    for file in tmp_path.glob("catalog.db*"):
        file.rename(file.with_suffix(".away"))
    found = report(tmp_path)
    assert {"table_lost"} == codes(found) - {"kafka_not_asked", "tiered"}
    assert found["needs_person"]


def test_a_thread_that_hangs_does_not_keep_the_command_from_ending(tmp_path: Path) -> None:
    """It waited for the threads of its pools, which waited for the store."""
    published_topics(tmp_path, 1)
    script = (
        "import sys, time; import rsm_bridge.status.store.read as read; from tierberg.cli import main\n"
        "read.stored_topic = lambda *_: time.sleep(60)\n"
        "sys.argv[1:] = ['status', '--data-dir', sys.argv[1], '--deadline', '1', '--patience', '0', '--json']\n"
        "main()"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert time.monotonic() - began < 50
    assert done.returncode == 1, done.stderr
    assert "store_slow" in codes(json.loads(done.stdout))
