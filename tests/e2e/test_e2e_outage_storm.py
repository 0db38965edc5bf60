"""Eight writers on one table, through a proxy that repeats every POST, cuts replies after they landed, and refuses.

One writer is the bridge. The others run the bridge's publisher in this process, on the same store and catalog, and put
empty commits between, as a bridge does that reclaims: the head moves all the time, and most commits find another one.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

import pytest

from iceberg_catalog.commit.commit import Change, commit
from iceberg_catalog.connect.open import CatalogSettings, open_catalog
from rsm_bridge.config.settings import load_settings
from rsm_bridge.storage.clock import StoreClock
from rsm_bridge.storage.opening import open_store
from rsm_bridge.tables.context import TableContext
from rsm_bridge.tables.publish.table_run import RetryRunError, TableRun
from tests.e2e.e2e_lake import PARTITIONS, check, count, merge, produce
from tests.e2e.e2e_outage import Stage, stage
from tests.e2e.e2e_support import read, same, wait_tiered
from tests.support.fault_proxy import Weather
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

TOPIC = "storm"
RIVALS = 7
ROUNDS = 4
STORM = Weather(lost=0.1, cut=0.1, refused=0.1, posts_repeated=True)


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as running:
        yield running


class Rival:
    """Another bridge's publisher for one table, which commits more often than it has reason to."""

    def __init__(self, outage: Stage, number: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._outage = outage
        self._draw = random.Random(number)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"rival-{number}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        outage = self._outage
        settings = load_settings(outage.pair.bridge.folder / "tierberg.yaml", {})
        topic_id = bytes.fromhex(outage.pair.admin.topic_id(TOPIC))
        properties = {**outage.lake.catalog.client_properties(), "uri": outage.catalog.uri}
        with closing(open_catalog(CatalogSettings("rival", properties))) as catalog:
            store = open_store(settings).unhurried()
            context = TableContext(namespace="kafka", clock_ms=StoreClock(store).now_ms)
            run = TableRun(store=store, catalog=catalog, topic_id=topic_id, context=context)
            while not self._end.wait(self._draw.uniform(0.2, 1.5)):
                self._once(run)

    def _once(self, run: TableRun) -> None:
        try:
            head = run.run().head
            if head is None or head.state is None:
                return
            change, now = Change(), int(time.time() * 1000)
            done = commit(run.catalog, head, change, head.state, commit_id=uuid.uuid4().hex, as_of_ms=now)
            self.outcomes[done.kind] += 1
        except RetryRunError as error:
            self.outcomes["conflict" if "conflict" in str(error) else "unknown"] += 1
        except Exception as error:  # noqa: BLE001 - the storm meets loads as well; the next run starts from the head
            self.outcomes[type(error).__name__] += 1


def test_eight_writers_in_a_storm(outage: Stage) -> None:
    pair = outage.pair
    pair.admin.create_topic(TOPIC, partitions=len(PARTITIONS))
    senders = produce(pair, TOPIC, 100)
    wait_tiered(pair, TOPIC, PARTITIONS)
    check(pair, outage.reader, TOPIC, senders)
    before = outage.footprint()

    rivals = [Rival(outage, number) for number in range(RIVALS)]
    with ExitStack() as running:
        for rival in rivals:
            running.enter_context(rival)
        wait_for("all rivals to commit", lambda: all(rival.outcomes["committed"] for rival in rivals), 60)
        outage.catalog.weather = STORM
        for seed in range(101, 101 + ROUNDS):
            merge(senders, produce(pair, TOPIC, seed))
            wait_tiered(pair, TOPIC, PARTITIONS)
            for number, sender in senders.items():
                same(read(pair.broker, TOPIC, number), sender.log.committed)
        # In the middle of it: no row is there that is not in the topic, and none twice.
        assert count(outage.reader, TOPIC) <= sum(len(sender.log.committed) for sender in senders.values())
        check(pair, outage.reader, TOPIC, senders)
    outcomes = sum((rival.outcomes for rival in rivals), Counter[str]())
    print(f"proxy: {dict(outage.catalog.met)}; rivals: {dict(outcomes)}")
    for what in ("lost", "cut", "refused", "repeated"):
        assert outage.catalog.met[what] >= 10, what
    assert outcomes["conflict"] >= 10
    assert outcomes["committed"] >= 10

    outage.catalog.weather = Weather()
    merge(senders, produce(pair, TOPIC, 200))
    wait_tiered(pair, TOPIC, PARTITIONS)
    check(pair, outage.reader, TOPIC, senders)
    outage.snapshots_can_be_read(TOPIC)
    outage.settles(before)
    _no_unexpected_errors(pair.bridge.process.output())


def _no_unexpected_errors(log: str) -> None:
    """Calls of the broker never failed for a reason of ours."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    wrong = [line for line in lines if line.get("kind") == "internal"]
    assert not wrong, wrong[:2]
