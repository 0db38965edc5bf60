"""Eight publishers of one table that all see every new segment: most of their commits find another head.

The embedded catalog and no broker; a REST catalog behind a proxy that loses replies, and Kafka, are in
tests/e2e/test_e2e_outage_storm.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.storage.clock import StoreClock
from rsm_bridge.tables.context import TableContext
from rsm_bridge.tables.publish.table_run import RetryRunError, TableRun
from tests.worlds.maintain_support import NAMESPACE, World, make_world

WRITERS = 8
SEGMENTS = 24


def publish_until(end: threading.Event, world: World, folder: Path, seed: int) -> Counter[str]:
    """Runs again and again, as a bridge does; how the runs ended."""
    outcomes: Counter[str] = Counter()
    draw = random.Random(seed)
    with closing(open_catalog(embedded_settings(folder))) as catalog:
        context = TableContext(namespace=NAMESPACE, clock_ms=StoreClock(world.store).now_ms)
        run = TableRun(store=world.store, catalog=catalog, topic_id=world.topic_id, context=context)
        while not end.wait(draw.uniform(0.0, 0.05)):
            try:
                outcomes["committed" if run.run().files_added else "nothing"] += 1
            except RetryRunError as error:
                outcomes["conflict" if "conflict" in str(error) else "unknown"] += 1
    return outcomes


@pytest.mark.timeout(240)
def test_every_row_once_whoever_wins(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.copy(2)
    world.publish()
    end = threading.Event()
    with ThreadPoolExecutor(WRITERS) as pool:
        runs: list[Future[Counter[str]]] = [
            pool.submit(publish_until, end, world, tmp_path, seed) for seed in range(WRITERS)
        ]
        for number in range(SEGMENTS):
            world.copy(2, partition=number % 3)
            time.sleep(0.1)
        deadline = time.monotonic() + 120
        expected = {number: world.log(number).end for number in range(3)}
        while {number: len(world.offsets(number)) for number in expected} != expected:
            assert time.monotonic() < deadline, "the writers do not get on"
            time.sleep(0.2)
        end.set()
        outcomes = sum((run.result(60) for run in runs), Counter[str]())
    print(dict(outcomes))
    assert outcomes["conflict"] > SEGMENTS
    assert outcomes["unknown"] == 0
    for number, rows in expected.items():
        assert world.offsets(number) == list(range(rows))
    for snapshot in world.loaded().metadata.snapshots:
        world.loaded().scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    world.check()
