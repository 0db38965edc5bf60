"""A copy that carries transaction indexes of later segments: they decide its tail, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from converter.types import IndexType
from rsm_bridge.serving.service import Running
from rsm_bridge.status.verify.inspection import describe
from rsm_bridge.storage.keys import derived_head
from tests.bridge.tables.test_bridge_row_exact import TXN, offsets
from tests.oracle.transactions import producer_snapshot, transaction_index
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of


def data_files(bridge: Running, segment: Segment) -> list[str]:
    listed = bridge.store.list_after(f"data/{segment.topic_id.hex()}/")
    return [item.key.rpartition("/")[2] for item in listed]


def with_an_open_transaction() -> LogBuilder:
    log = LogBuilder()
    log.batch([b"plain"] * 3)
    log.batch([b"open"] * 4, **TXN)
    log.batch([b"above"] * 2)
    return log


def test_what_they_hold_changes_no_byte(bridge: Running, shim: ShimClient) -> None:
    later = (
        (5_000, transaction_index([(7, 4_000, 5_010)])),
        (6_000, transaction_index([(8, 6_001, 6_002)])[:-1]),
        (7_000, b"damaged" * 34),
        (8_000, b""),
    )
    log = with_an_open_transaction()
    files = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 3)])}
    for complete in (False, True):
        segment = shim.copied(
            segment_of(log, topic=f"bytes{complete}", files=files, later=later, later_complete=complete)
        )
        assert shim.fetch(segment) == log.data
        objects = [bridge.store.read(item.key).data for item in bridge.store.list_after("")]
        assert objects
        assert not any(later[0][1] in data for data in objects)


def test_a_transaction_that_none_of_them_lists_is_there_without_its_marker(
    bridge: Running, shim: ShimClient, catalog: Catalog, bridge_folder: Path
) -> None:
    log = with_an_open_transaction()
    files = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 3)])}
    later = ((5_000, transaction_index([(7, 4_000, 5_010)])),)
    segment = shim.copied(segment_of(log, topic="committed", files=files, later=later, later_complete=True))
    eventually(lambda: offsets(catalog, "committed") == list(range(9)))
    assert shim.fetch(segment) == log.data
    (name,) = data_files(bridge, segment)
    assert derived_head(name) is None
    assert "-tail-" not in name
    (index,) = bridge.store.list_after(f"index/{segment.topic_id.hex()}/")
    said = describe(str(bridge_folder / "store" / index.key), None, None, None)
    assert "open at end  producer 5 from offset 3: committed, by transaction indexes" in said
    rest = LogBuilder(next_offset=log.next_offset)
    rest.control(5, commit=True)
    rest.batch([b"last"])
    shim.copied(segment_of(rest, topic="committed", topic_id=segment.topic_id))
    eventually(lambda: offsets(catalog, "committed") == [*range(9), 10])


def test_one_that_they_list_holds_nothing_back(shim: ShimClient, catalog: Catalog) -> None:
    log = with_an_open_transaction()
    files = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 3)])}
    later = ((9, transaction_index([(5, 3, 9)])),)
    segment = shim.copied(segment_of(log, topic="aborted", files=files, later=later))
    eventually(lambda: offsets(catalog, "aborted") == [0, 1, 2, 7, 8])
    assert shim.fetch(segment) == log.data


def test_where_some_are_missing_it_waits(shim: ShimClient, catalog: Catalog) -> None:
    log = with_an_open_transaction()
    files = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 3)])}
    first = shim.copied(segment_of(log, topic="waits", files=files, later_complete=False))
    eventually(lambda: offsets(catalog, "waits") == [0, 1, 2])
    rest = LogBuilder(next_offset=log.next_offset)
    rest.control(5, commit=True)
    shim.copied(segment_of(rest, topic="waits", topic_id=first.topic_id))
    eventually(lambda: offsets(catalog, "waits") == list(range(9)))


def test_a_marker_that_says_otherwise_takes_the_rows_back(shim: ShimClient, catalog: Catalog) -> None:
    """What an unclean election can do: the leader whose files were read is not the one whose log counts."""
    log = with_an_open_transaction()
    files = {IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 3)])}
    first = shim.copied(segment_of(log, topic="otherwise", files=files, later_complete=True))
    eventually(lambda: offsets(catalog, "otherwise") == list(range(9)))
    rest = LogBuilder(next_offset=log.next_offset, epoch=1)
    rest.control(5, commit=False)
    rest.batch([b"last"])
    history = {
        IndexType.LEADER_EPOCH: b"0\n2\n0 0\n1 9\n",
        IndexType.TRANSACTION: transaction_index([(5, 3, 9)]),
        IndexType.PRODUCER_SNAPSHOT: producer_snapshot([]),
    }
    shim.copied(segment_of(rest, topic="otherwise", topic_id=first.topic_id, epochs=((1, 9),), files=history))
    eventually(lambda: offsets(catalog, "otherwise") == [0, 1, 2, 7, 8, 10])
    assert shim.fetch(first) == log.data


def test_one_that_is_not_later_is_refused(shim: ShimClient) -> None:
    log = LogBuilder().fill(batches=3)
    with pytest.raises(ShimError, match="not ascending above end_offset") as caught:
        shim.copy(segment_of(log, later=((2, b""),)))
    assert caught.value.kind == "bad_request"
