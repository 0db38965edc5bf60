"""An engine writes to a topic's table while a bridge runs: said, never copied into the plan, and it can be undone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.commit.foreign import TAG, foreign_commits
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.errors import BridgeError
from rsm_bridge.serving.service import Running
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.verify.store import verify_store
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import Segment, ShimClient, segment_of
from tests.worlds.catalog_support import Place
from tests.worlds.foreign_support import delete_by_position, delete_whole_files, insert, rewrite, roll_back


def without_3(end: int) -> list[int]:
    return [offset for offset in range(end) if offset != 3]


def lowest(place: Place) -> str:
    return min(task.file.file_path for task in place.load().scan().plan_files())


WRITERS: dict[str, tuple[Callable[[Place], None], Callable[[int], list[int]]]] = {
    "insert": (lambda place: insert(place.load(), range(900, 903)), lambda end: [*range(end), 900, 901, 902]),
    "delete of whole files": (lambda place: delete_whole_files(place.load()), lambda end: [*range(20, end)]),
    "rewrite": (lambda place: rewrite(place.load()), lambda end: [*range(end)]),
    "merge-on-read delete": (lambda place: delete_by_position(place, lowest(place), [3]), without_3),
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    # Objects of older snapshots stay a while, as they do outside of tests.
    with bridge_thread(test_settings(tmp_path, reclaim_grace="10m")) as started:
        yield started


def segments(count: int, first: Segment | None = None, start: int = 0) -> list[tuple[Segment, bytes]]:
    """`count` segments of ten records from offset `start` on, with their bytes."""
    made: list[tuple[Segment, bytes]] = []
    for number in range(count):
        log = LogBuilder(next_offset=start + 10 * number).fill(batches=1, records=10)
        same = {} if first is None and not made else {"topic_id": (first or made[0][0]).topic_id}
        made.append((segment_of(log, **same), log.data))
    return made


def codes(folder: Path) -> dict[str, str]:
    """Cause → what was said of it, of the topic."""
    text, _ = status(StatusOptions(data_dir=folder, bridge="none", json=True))
    document: dict[str, Any] = json.loads(text)
    return {finding["code"]: finding["said"] for topic in document["topics"] for finding in topic["findings"]}


def eventually(probe: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("name", WRITERS)
def test_it_is_said_kafka_reads_on_and_putting_the_table_back_mends_it(
    name: str, tmp_path: Path, running: Running
) -> None:
    write, left = WRITERS[name]
    catalog = open_catalog(embedded_settings(tmp_path))
    with ShimClient(running.address) as shim:
        copied = [(shim.copied(segment), data) for segment, data in segments(2)]
        eventually(lambda: catalog.table_exists("kafka.orders"))
        place = Place(catalog, catalog.load_table("kafka.orders"), tmp_path / "unused")
        eventually(lambda: place.offsets() == [*range(20)])
        assert codes(tmp_path) == {}
        ours = place.load().metadata.current_snapshot_id
        assert ours is not None
        write(place)
        assert f"after snapshot {ours}" in codes(tmp_path)["foreign_commits"]
        assert ("foreign_files" in codes(tmp_path)) == (name != "delete of whole files")
        # The next segments come, once, and nothing below them comes again.
        copied += [(shim.copied(segment), data) for segment, data in segments(2, copied[0][0], 20)]
        eventually(lambda: place.offsets() == left(40))
        assert place.load().metadata.refs[TAG].snapshot_id == ours
        assert verify_store(None, tmp_path, None).damages
        for segment, data in copied:
            assert shim.fetch(segment) == data
        # Put back, and the bridge does the rest.
        roll_back(place, ours)
        assert codes(tmp_path).keys() <= {"publishing"}
        copied += [(shim.copied(segment), data) for segment, data in segments(1, copied[0][0], 40)]
        eventually(lambda: place.offsets() == [*range(50)])
        eventually(lambda: TAG not in place.load().metadata.refs)
        assert (codes(tmp_path), foreign_commits(place.load())) == ({}, None)
        for segment, data in copied:
            assert shim.fetch(segment) == data
    assert verify_store(None, tmp_path, None).damages == []
    with pytest.raises(BridgeError, match="the store has nothing of a topic flihgts"):
        verify_store(None, tmp_path, "flihgts")
    catalog.close()


def test_a_bridge_says_it_once(tmp_path: Path, running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = open_catalog(embedded_settings(tmp_path))
    with ShimClient(running.address) as shim:
        first = shim.copied(segments(1)[0][0])
        eventually(lambda: catalog.table_exists("kafka.orders"))
        place = Place(catalog, catalog.load_table("kafka.orders"), tmp_path / "unused")
        eventually(lambda: len(place.offsets()) == 10)
        delete_whole_files(place.load())
        for number in range(1, 5):
            shim.copied(segments(1, first, 10 * number)[0][0])
            eventually(lambda: place.offsets() == [*range(10, 10 * number + 10)])  # noqa: B023 - called at once
    said = capsys.readouterr()
    assert (said.out + said.err).count("others write to the table") == 1
    catalog.close()
