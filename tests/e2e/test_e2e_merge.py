"""Small files are merged under a consumer that never stops reading, and again after the bridge was killed over it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.status.verify.store import verify_store
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_rereading import Rereading
from tests.e2e.e2e_support import (
    Log,
    Pair,
    Rec,
    Sender,
    read,
    rows_by_offset,
    same,
    stored_segments,
    wait_rows,
    wait_tiered,
)
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

TOPIC = "quiet"
ROUNDS = 12
MERGE_S = 120
#: The chunk cache is as small as it may be: reads go to the store.
SETTINGS = {
    "publish_interval": "500ms",
    "reclaim_grace": "1s",
    "maintain_interval": "2s",
    "merge": {"files_min": 4, "age": "0s"},
    "limits": {"chunk_cache_mib": 8, "index_cache_mib": 4},
}


@pytest.fixture
def quiet_pair(tmp_path: Path) -> Iterator[Pair]:
    started = start_pair(tmp_path, bridge_settings=SETTINGS)
    yield started
    started.broker.stop()
    started.bridge.stop()


def files(pair: Pair) -> list[str]:
    """Paths of the table's data files."""
    with closing(open_catalog(embedded_settings(pair.bridge.folder))) as catalog:
        return [file.path for file in LiveFiles().read(catalog.load_table(("kafka", TOPIC))).files]


def write(pair: Pair, seed: int, plain: Sender, transactional: Sender) -> None:
    """More than a segment, with a committed and an aborted transaction in the midst."""
    draw = random.Random(seed)

    def some(count: int) -> list[Rec]:
        return [Rec(draw.randbytes(8), draw.randbytes(1000), (("h", b"1"),)) for _ in range(count)]

    plain.send(some(600))
    transactional.transaction(some(30), commit=True)
    transactional.transaction(some(30), commit=False)
    plain.send(some(600))


def test_reading_goes_on_while_small_files_become_large_ones(quiet_pair: Pair) -> None:
    pair = quiet_pair
    pair.admin.create_topic(TOPIC)
    plain, transactional = Sender(pair.broker, TOPIC), Sender(pair.broker, TOPIC, transactional_id="quiet")
    log = Log()
    reading = Rereading(pair, TOPIC)
    most = 0
    for number in range(ROUNDS):
        write(pair, number, plain, transactional)
        log = Log(plain.log.committed | transactional.log.committed)
        wait_tiered(pair, TOPIC)
        reading.know(log.committed)
        most = max(most, len(files(pair)) if number else 0)
    wait_rows(pair, TOPIC, len(log.committed))
    wait_for("few files", lambda: len(files(pair)) <= ROUNDS // 2, MERGE_S, 0.5)
    after = reading.check()
    wait_for("reads of the merged files", lambda: reading.check() >= after + 2, MERGE_S, 0.5)
    age_all_data(pair)
    wait_for("the small files to go", lambda: in_store(pair) == needed(pair), MERGE_S, 0.5)
    after = reading.check()
    wait_for("reads without the small files", lambda: reading.check() >= after + 2, MERGE_S, 0.5)
    reading.stop()
    print(f"{most} files became {len(files(pair))}; read {reading.rounds} times, {reading.slowest_s:.1f} s at most")
    same(rows_by_offset(wait_rows(pair, TOPIC, len(log.committed))), dict(sorted(log.committed.items())))
    pair.bridge.kill()
    pair.bridge.start()
    same(read(pair.broker, TOPIC), dict(sorted(log.committed.items())))
    pair.bridge.stop()
    report = verify_store(None, pair.bridge.folder, TOPIC)
    assert not report.damages, report.lines()
    assert report.segments >= ROUNDS


def name(path: str) -> str:
    return path.rpartition("/")[2]


def in_store(pair: Pair) -> set[str]:
    """Names of the data files in the store."""
    return {path.name for path in (pair.bridge.folder / "store" / "data").rglob("*.parquet")}


def needed(pair: Pair) -> set[str]:
    """Names of the data files of the table, and of segments that were not merged: theirs have aborted rows as well."""
    segments = stored_segments(pair, TOPIC)
    own = {name(stored.key) for known in segments for stored in known.data_files() if not known.shares}
    return own | set(map(name, files(pair)))


def age_all_data(pair: Pair) -> None:
    """As if everything had been written before any copy can still be running."""
    for path in (pair.bridge.folder / "store" / "data").rglob("*.parquet"):
        then = path.stat().st_mtime - COPY_IS_OVER_SECONDS - 60
        os.utime(path, (then, then))
