"""Objects that the store has lost under a real broker: each is named by status, verify or maintain, and the runbook."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.storage.local import LocalObjectStore
from rsm_bridge.storage.segments.known import KnownSegment, read_segments
from tests.e2e.e2e_status import only_partition, status, tierberg
from tests.e2e.e2e_support import Pair, Rec, Sender, read, same, wait_rows, wait_tiered
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PATIENCE_S = 2.0


def sent_and_tiered(pair: Pair, topic: str) -> dict[int, Any]:
    pair.admin.create_topic(topic)
    draw, now = random.Random(topic), int(time.time() * 1000)
    sender = Sender(pair.broker, topic)
    sender.send([Rec(b"k", draw.randbytes(1000), (), now + number) for number in range(6000)])
    wait_tiered(pair, topic)
    return dict(sender.log.committed)


def live(pair: Pair) -> list[KnownSegment]:
    """Lowest first."""
    store = LocalObjectStore(pair.bridge.folder / "store")
    (folder,) = (path.name for path in (pair.bridge.folder / "store" / "index").iterdir())
    found = read_segments(store, bytes.fromhex(folder))
    return sorted((item for item in found if item.live), key=lambda item: item.key.base)


def codes(found: dict[str, Any]) -> set[str]:
    (topic,) = found["topics"]
    return {item["code"] for item in (*topic["findings"], *only_partition(found)["findings"])}


def test_lost_objects_are_named_until_they_are_restored(own_pair: Pair, tmp_path: Path) -> None:
    pair, topic = own_pair, "lost"
    sent = sent_and_tiered(pair, topic)
    published = live(pair)[-1].key.last + 1
    wait_rows(pair, topic, published)
    assert not codes(status(pair, topic, PATIENCE_S)) & {"gap_unexplained", "history_unread"}
    root = pair.bridge.folder / "store"
    first, last = live(pair)[0], live(pair)[-1]
    assert first.data is not None

    for known, key in ((first, first.listed.key), (last, last.listed.key)):
        kept = shutil.move(root / key, tmp_path / "away")
        found = status(pair, topic, PATIENCE_S)
        assert found["needs_person"]
        (gap,) = [item for item in only_partition(found)["findings"] if item["code"] == "gap_unexplained"]
        assert f"{known.key.base} to {known.key.last}" in gap["said"]
        code, said, error = tierberg(pair, "verify")
        assert (code, "no index covers them" in said + error) == (1, True), said + error
        shutil.move(kept, root / key)

    pair.bridge.stop()  # what it has read lately, it serves from memory
    kept = shutil.move(root / first.data.key, tmp_path / "away")
    pair.bridge.start()
    found = status(pair, topic, PATIENCE_S)
    assert "history_unread" in codes(found), found
    assert found["needs_person"]
    code, said, error = tierberg(pair, "verify", "--topic", topic)
    assert (code, first.data.key in said + error) == (1, True), said + error
    pair.bridge.stop()
    code, said, error = tierberg(pair, "maintain")
    assert (code, first.data.key in said + error) == (1, True), said + error
    pair.bridge.start()
    shutil.move(kept, root / first.data.key)

    assert not codes(status(pair, topic, PATIENCE_S)) & {"gap_unexplained", "history_unread"}
    same(read(pair.broker, topic), sent)


def test_a_beginning_that_nothing_restores_is_given_up_by_moving_the_log_start(own_pair: Pair) -> None:
    pair, topic = own_pair, "beginning"
    sent = sent_and_tiered(pair, topic)
    segments = live(pair)
    wait_rows(pair, topic, segments[-1].key.last + 1)
    first, second = segments[:2]
    assert first.data is not None
    for key in (first.listed.key, first.data.key):
        (pair.bridge.folder / "store" / key).unlink()
    assert {"gap_unexplained", "history_unread"} & codes(status(pair, topic, PATIENCE_S))
    pair.admin.delete_records(topic, 0, second.key.base)
    wait_for("the delete", (pair.bridge.folder / "store" / first.listed.key).exists, 90)
    pair.bridge.stop()
    code, said, error = tierberg(pair, "maintain")
    assert code == 0, said + error
    pair.bridge.start()
    wait_rows(pair, topic, segments[-1].key.last + 1 - second.key.base)
    same(read(pair.broker, topic, start=second.key.base), {key: sent[key] for key in sent if key >= second.key.base})
    found = status(pair, topic, PATIENCE_S)
    assert not codes(found) & {"gap_unexplained", "history_unread", "publish_stuck"}, found
    assert tierberg(pair, "verify")[0] == 0
