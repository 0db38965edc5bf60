"""`tierberg verify` beside a bridge that copies and publishes: what changed while it read is no damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from converter.types import IndexType
from rsm_bridge.limits import VERIFY_LOOKS_MAX
from rsm_bridge.serving.publisher import Publisher
from rsm_bridge.serving.service import Running
from rsm_bridge.status.verify import store
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.status.verify.table import check_table
from tests.bridge.serving.test_bridge_many_epochs import log_of, sent
from tests.bridge.serving.test_bridge_roundtrip import expected_rows, rows_of
from tests.oracle.transactions import producer_snapshot
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, segment_of

TXN: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "attributes": 0x10}


def verified_beside(folder: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> list[str]:
    """The damages that a verify finds; `happens` once all is listed, while it still reads segments."""
    real, done = store._verify_segment, list[bool]()

    def first_this(*arguments: Any) -> None:
        real(*arguments)
        if not done:
            done.append(True)
            happens()

    listed = store._segments
    monkeypatch.setattr(store, "_segments", lambda *given, **named: iter(list(listed(*given, **named))))
    monkeypatch.setattr(store, "_verify_segment", first_this)
    found = verify_store(None, folder, None).damages
    assert done
    return found


def test_a_transaction_that_is_decided_meanwhile(
    shim: ShimClient, catalog: Catalog, bridge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogBuilder()
    log.batch([b"plain"] * 5)
    log.batch([b"open"] * 8, **TXN)
    named: dict[str, Any] = {"topic": "decided", "topic_id": b"d" * 16}
    shim.copied(segment_of(log, **named, files={IndexType.PRODUCER_SNAPSHOT: producer_snapshot([(5, 5)])}))
    eventually(lambda: len(rows_of(catalog, "decided")) == 5)

    def marker() -> None:
        rest = LogBuilder(log.next_offset)
        rest.control(5, commit=True)
        rest.batch([b"after"])
        shim.copied(segment_of(rest, **named))
        eventually(lambda: len(rows_of(catalog, "decided")) == 14)

    assert verified_beside(bridge_folder, monkeypatch, marker) == []


def test_an_unclean_election_whose_winner_is_copied_meanwhile(
    shim: ShimClient, catalog: Catalog, bridge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = log_of(range(4))
    shim.copied(sent(old, "elected", tuple((epoch, 3 * epoch) for epoch in range(4))))
    eventually(lambda: rows_of(catalog, "elected") == expected_rows(old))

    def winner() -> None:
        new = LogBuilder(6, epoch=1000)
        new.fill(batches=1, records=4)
        shim.copied(sent(new, "elected", ((0, 0), (1, 3), (1000, 6))))
        alive = [row for row in expected_rows(old) if row[0] < 6]
        eventually(lambda: rows_of(catalog, "elected") == [*alive, *expected_rows(new)])

    assert verified_beside(bridge_folder, monkeypatch, winner) == []


def test_a_topic_that_begins_meanwhile(
    shim: ShimClient, catalog: Catalog, bridge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim.copied(segment_of(LogBuilder().fill(batches=1), topic="was_there"))

    def another() -> None:
        shim.copied(segment_of(LogBuilder().fill(batches=1, records=7), topic="begins", topic_id=b"b" * 16))
        eventually(lambda: len(rows_of(catalog, "begins")) == 7)

    assert verified_beside(bridge_folder, monkeypatch, another) == []


def test_a_new_leader_whose_copy_is_not_in_the_table_yet(
    shim: ShimClient, catalog: Catalog, bridge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next commit takes the rows of the branch that lost out; until then nothing is damaged."""
    old = log_of(range(4))
    shim.copied(sent(old, "behind", tuple((epoch, 3 * epoch) for epoch in range(4))))
    eventually(lambda: rows_of(catalog, "behind") == expected_rows(old))
    with monkeypatch.context() as away:
        away.setattr(Publisher, "_start_due", lambda *_: 0.1)
        new = LogBuilder(6, epoch=1000)
        new.fill(batches=1, records=4)
        shim.copied(sent(new, "behind", ((0, 0), (1, 3), (1000, 6))))
        assert verify_store(None, bridge_folder, "behind").damages == []
        assert rows_of(catalog, "behind") == expected_rows(old)


def test_damage_is_said_however_much_goes_on(
    shim: ShimClient, bridge: Running, catalog: Catalog, bridge_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that gets a segment between any two looks: what is wrong each time is wrong."""
    named: dict[str, Any] = {"topic": "busy", "topic_id": b"y" * 16}
    logs = [LogBuilder(10 * number).fill(batches=1) for number in range(VERIFY_LOOKS_MAX + 2)]
    shim.copied(segment_of(logs[0], **named))
    lost = shim.copied(segment_of(logs[1], **named))
    eventually(lambda: len(rows_of(catalog, "busy")) == 20)
    looks: list[int] = []
    real = check_table

    def look(*given: Any) -> Any:
        looks.append(len(looks))
        found = real(*given)
        if len(looks) < VERIFY_LOOKS_MAX:
            shim.copied(segment_of(logs[len(looks) + 1], **named))
            eventually(lambda: len(rows_of(catalog, "busy")) == 10 * (len(looks) + 2))
        return found

    monkeypatch.setattr(store, "check_table", look)
    key = next(item.key for item in bridge.store.list_after("index/") if lost.segment_id.hex() in item.key)
    index = bytes(bridge.store.read(key).data)
    bridge.store.delete_many([key])
    (damage,) = verify_store(None, bridge_folder, "busy").damages
    assert bridge.store.put_if_absent(key, index)  # for the other tests
    assert "10 rows from offset 10 to 19 are in the table, and no index covers them" in damage
    assert len(looks) == VERIFY_LOOKS_MAX
