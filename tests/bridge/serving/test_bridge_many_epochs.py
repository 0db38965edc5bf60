"""Segments that lived through many leader epochs, through a real bridge: nothing is lost or stuck (C18, C19)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from converter.types import IndexType
from iceberg_catalog.plan.summary import REWIND
from rsm_bridge.serving.service import Running
from rsm_bridge.status.verify.store import verify_store
from tests.bridge.serving.test_bridge_roundtrip import expected_rows, rows_of
from tests.bridge.tables.test_bridge_row_exact import summaries
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, checkpoint
from tests.support.shim_client import Segment, ShimClient, segment_of

Pairs = tuple[tuple[int, int], ...]


def log_of(epochs: range, start: int = 0) -> LogBuilder:
    """A batch of three records in each epoch."""
    log = LogBuilder(start)
    for epoch in epochs:
        log.epoch = epoch
        log.fill(batches=1, records=3)
    return log


def sent(log: LogBuilder, topic: str, entries: Pairs) -> Segment:
    """The log as a segment of a leader with this checkpoint."""
    inside = tuple(pair for pair in entries if pair[1] >= log.base_offset)
    before = [pair for pair in entries if pair[1] < log.base_offset]
    starts = bool(inside) and inside[0][1] == log.base_offset
    told = inside if starts or not before else ((before[-1][0], log.base_offset), *inside)
    files = {IndexType.LEADER_EPOCH: checkpoint(list(entries))}
    return segment_of(log, topic=topic, topic_id=hashlib.md5(topic.encode()).digest(), epochs=told, files=files)


@pytest.mark.parametrize("epochs", [12, 60, 400])
def test_a_rewind_over_all_but_a_few_of_many_epochs(shim: ShimClient, catalog: Catalog, epochs: int) -> None:
    """C18: the unclean leader has the first four epochs only."""
    topic = f"rewound-{epochs}"
    history = tuple((epoch, 3 * epoch) for epoch in range(epochs))
    whole = log_of(range(epochs))
    shim.copied(sent(whole, topic, history))
    eventually(lambda: rows_of(catalog, topic) == expected_rows(whole))
    other = LogBuilder(12, epoch=1000)
    other.fill(batches=1, records=4)
    shim.copied(sent(other, topic, (*history[:4], (1000, 12))))
    alive = [row for row in expected_rows(whole) if row[0] < 12]
    eventually(lambda: rows_of(catalog, topic) == [*alive, *expected_rows(other)])
    assert {item[f"{REWIND}0"] for item in summaries(catalog, topic.replace("-", "_")) if f"{REWIND}0" in item} == {
        "12"
    }


@pytest.mark.parametrize("epochs", [13, 60, 400])
def test_a_derived_file_of_many_epochs_is_published(
    shim: ShimClient, bridge: Running, catalog: Catalog, epochs: int
) -> None:
    """C19: a new leader's segment holds offsets that are published already; its own file cannot be used."""
    topic = f"overlaps-{epochs}"
    history = tuple((epoch, 3 * epoch) for epoch in range(epochs))
    whole = log_of(range(epochs))
    half = LogBuilder()
    for batch, first in zip(whole.batches[:2], whole.offsets[:2], strict=True):
        half._append(batch, first)
    half.next_offset = 6
    shim.copied(sent(half, topic, history[:2]))
    eventually(lambda: rows_of(catalog, topic) == expected_rows(whole)[:6])
    shim.copied(sent(whole, topic, history))
    eventually(lambda: rows_of(catalog, topic) == expected_rows(whole))
    names = [item.key.rpartition("/")[2] for item in bridge.store.list_after("data/")]
    assert any("-d" in name for name in names)
    assert max(map(len, names)) < 140
    # What was derived tells its epochs itself: an unclean leader takes back all but the first four of them.
    other = LogBuilder(12, epoch=1000)
    other.fill(batches=1, records=4)
    shim.copied(sent(other, topic, (*history[:4], (1000, 12))))
    alive = [row for row in expected_rows(whole) if row[0] < 12]
    eventually(lambda: rows_of(catalog, topic) == [*alive, *expected_rows(other)])


def test_what_lost_an_election_is_no_damage(shim: ShimClient, catalog: Catalog, bridge_folder: Path) -> None:
    """Kafka keeps the segments of the branch that lost for as long as its retention does."""
    topic = "two-branches"
    old = log_of(range(4))
    shim.copied(sent(old, topic, tuple((epoch, 3 * epoch) for epoch in range(4))))
    eventually(lambda: rows_of(catalog, topic) == expected_rows(old))
    new = LogBuilder(0, epoch=1000)  # a new leader's, which was cut at offset 6
    for batch, first in zip(old.batches[:2], old.offsets[:2], strict=True):
        new._append(batch, first)
    new.next_offset, new.committed = 6, old.committed[:6]
    new.fill(batches=1, records=9)
    shim.copied(sent(new, topic, ((0, 0), (1, 3), (1000, 6))))
    eventually(lambda: rows_of(catalog, topic) == expected_rows(new))
    report = verify_store(None, bridge_folder, topic)
    assert (report.damages, report.rows) == ([], 15)
