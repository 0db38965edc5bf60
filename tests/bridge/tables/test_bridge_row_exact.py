"""Row-exact waiting, retention policies and the summary, through a real bridge and its catalog."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from converter.types import IndexType
from rsm_bridge.serving.service import Running
from rsm_bridge.storage.keys import derived_head
from tests.oracle.transactions import producer_snapshot, transaction_index
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of

TXN: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}
RULES = [{"pattern": "archive", "table_retention": "keep"}, {"pattern": "century", "table_retention": "36500d"}]


@pytest.fixture(scope="module")
def bridge_settings() -> dict[str, Any]:
    return {"topics": RULES}


def table_of(catalog: Catalog, topic: str) -> Table:
    return catalog.load_table(("kafka", topic))


def offsets(catalog: Catalog, topic: str) -> list[int]:
    if not catalog.table_exists(("kafka", topic)):
        return []
    try:
        found = table_of(catalog, topic).scan(selected_fields=("_kafka_offset",)).to_arrow()
    except FileNotFoundError:  # with no grace at all, a reader's files can go while it reads
        return []
    return sorted(found.column("_kafka_offset").to_pylist())


def summaries(catalog: Catalog, topic: str) -> list[dict[str, str]]:
    found = table_of(catalog, topic).metadata.snapshots
    return [dict(item.summary.additional_properties) for item in found if item.summary is not None]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_rows_below_an_open_transaction_come_before_its_marker(
    shim: ShimClient, catalog: Catalog, bridge: Running, committed: bool
) -> None:
    topic = f"tail_{committed}".lower()
    log = LogBuilder()
    log.batch([b"plain"] * 3)
    log.batch([b"open"] * 4, **TXN)
    log.batch([b"above"] * 2)
    files = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 3)])}
    first = shim.copied(segment_of(log, topic=topic, files=files))
    eventually(lambda: offsets(catalog, topic) == [0, 1, 2])
    rest = LogBuilder(next_offset=log.next_offset)
    rest.control(5, commit=committed)
    rest.batch([b"last"])
    told = {} if committed else {IndexType.TRANSACTION: transaction_index([(5, 3, log.next_offset)])}
    shim.copied(segment_of(rest, topic=topic, topic_id=first.topic_id, files=told))
    waiting = [3, 4, 5, 6] if committed else []
    eventually(lambda: offsets(catalog, topic) == [0, 1, 2, *waiting, 7, 8, 10])
    assert shim.fetch(first) == log.data
    assert shim.fetch(first, len(log.batches[0])) == log.data[len(log.batches[0]) :]
    names = [listed.key.rpartition("/")[2] for listed in bridge.store.list_after(f"data/{first.topic_id.hex()}/")]
    derived = [name for name in names if derived_head(name) is not None]
    assert len(derived) == (0 if committed else 1)  # what was aborted in the tail makes one
    assert len([name for name in names if "-tail-" in name]) == 1


def test_a_segment_that_the_cleaner_emptied_is_no_hole(shim: ShimClient, catalog: Catalog, bridge: Running) -> None:
    """Below it a transaction waits for its marker, which comes above it."""
    topic, failed = "emptied", bridge.metrics.publishes.labels("failed")
    before = failed._value.get()
    log = LogBuilder()
    log.batch([b"open"] * 10, **TXN)
    still_open = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 0)])}
    first = shim.copied(segment_of(log, topic=topic, files=still_open))
    empty = LogBuilder(next_offset=20)
    empty.base_offset = 10
    emptied = shim.copied(segment_of(empty, topic=topic, topic_id=first.topic_id, files=still_open))
    again = segment_of(empty, topic=topic, topic_id=first.topic_id, files=still_open)
    shim.copy(again)  # its reply is lost
    shim.delete(again)
    rest = LogBuilder(next_offset=20)
    rest.control(5, commit=True)
    rest.batch([b"last"] * 9)
    shim.copied(segment_of(rest, topic=topic, topic_id=first.topic_id))
    eventually(lambda: offsets(catalog, topic) == [*range(10), *range(21, 30)])
    assert not any("tierberg.gaps" in found or "tierberg.lost" in found for found in summaries(catalog, topic))
    assert shim.fetch(emptied) == b""
    assert failed._value.get() == before


@pytest.mark.parametrize("topic", ["archive", "century"])
def test_rows_that_retention_deleted_stay(shim: ShimClient, catalog: Catalog, topic: str) -> None:
    logs = [LogBuilder(next_offset=start).fill(batches=1, records=10) for start in (0, 10, 20)]
    one = shim.copied(segment_of(logs[0], topic=topic))
    two = shim.copied(segment_of(logs[1], topic=topic, topic_id=one.topic_id))
    eventually(lambda: offsets(catalog, topic) == list(range(20)))
    shim.delete(one)
    shim.delete(two)
    shim.copied(segment_of(logs[2], topic=topic, topic_id=one.topic_id))
    eventually(lambda: offsets(catalog, topic) == list(range(30)))


def test_a_gap_and_the_time_are_in_the_summary(shim: ShimClient, catalog: Catalog) -> None:
    before = time.time() * 1000
    one = shim.copied(segment_of(LogBuilder().fill(batches=1, records=10), topic="gap"))
    shim.copied(segment_of(LogBuilder(next_offset=15).fill(batches=1, records=5), topic="gap", topic_id=one.topic_id))
    eventually(lambda: offsets(catalog, "gap") == [*range(10), *range(15, 20)])
    said = [item["tierberg.gaps"] for item in summaries(catalog, "gap") if "tierberg.gaps" in item]
    assert [json.loads(text) for text in said] == [{"0": [[10, 14]]}]
    assert all(before <= int(item["tierberg.as-of"]) <= time.time() * 1000 for item in summaries(catalog, "gap"))


def test_an_unclean_election_is_a_rewind_in_the_summary(shim: ShimClient, catalog: Catalog) -> None:
    log = LogBuilder(epoch=1).fill(batches=2, records=5)
    one = shim.copied(segment_of(log, topic="unclean"))
    eventually(lambda: offsets(catalog, "unclean") == list(range(10)))
    other = LogBuilder(next_offset=5, epoch=2).fill(batches=1, records=2)
    files = {IndexType.LEADER_EPOCH: b"0\n2\n1 0\n2 5\n"}
    shim.copied(segment_of(other, topic="unclean", topic_id=one.topic_id, epochs=((2, 5),), files=files))
    eventually(lambda: offsets(catalog, "unclean") == list(range(7)))
    assert [item["tierberg.rewind.0"] for item in summaries(catalog, "unclean") if "tierberg.rewind.0" in item]


def test_a_withdrawn_copy_of_an_idle_table_is_reclaimed_after_the_head_has_moved(
    shim: ShimClient, catalog: Catalog, bridge: Running
) -> None:
    log = LogBuilder().fill(batches=1, records=10)
    one = shim.copied(segment_of(log, topic="idle"))
    eventually(lambda: offsets(catalog, "idle") == list(range(10)))
    again = shim.copied(segment_of(log, topic="idle", topic_id=one.topic_id))
    shim.delete(replace(again, custom_metadata=b""))

    def stored() -> int:
        return len(list(bridge.store.list_after(f"data/{one.topic_id.hex()}/")))

    eventually(lambda: stored() == 1)
    assert offsets(catalog, "idle") == list(range(10))
