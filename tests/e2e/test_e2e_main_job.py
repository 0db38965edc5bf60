"""The main job whole, the same on SQLite and files and on a REST catalog and S3.

Copied, published, read back, sought in, killed and restarted, verified, cut short, deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from rsm_bridge.status.verify.store import verify_store
from tests.e2e.conftest import start_pair
from tests.e2e.e2e_lake import PARTITIONS, as_text, check, count, merge, produce, rows
from tests.e2e.e2e_seeks import check_seeks, check_times, interleaved
from tests.e2e.e2e_stamped import SMALL_SEGMENTS, senders, stamped, transactions
from tests.e2e.e2e_support import Pair, Rec, Sender, read, rows_by_offset, same, wait_tiered
from tests.faults_matrix.grounds import EmbeddedGround, Ground, LakeGround
from tierberg.stack.admin import TIERED
from tierberg.stack.jmx import JmxReader
from tierberg.stack.servers.versitygw import can_be_had
from tierberg.stack.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # the first use builds the S3 server and fetches jars

DELETED_S = 60
TOMBSTONE = b"TBTS"


@dataclass(frozen=True, slots=True)
class Place:
    """A pair, and what its bridge stores to."""

    pair: Pair
    ground: Ground
    catalog: Catalog

    def objects(self, topic_id: str) -> list[str]:
        """All but the tombstones of copies that failed while the bridge was gone: another's might still finish."""
        found = [key for kind in ("data", "kept") for key in self.ground.keys(f"{kind}/{topic_id}/")]
        indexes = self.ground.keys(f"index/{topic_id}/")
        return found or [key for key in indexes if self.ground.read(key)[:4] != TOMBSTONE]

    def verified(self, topic: str) -> int:
        """Reads all of the topic again; how many rows were compared."""
        report = verify_store(self.pair.bridge.folder / "tierberg.yaml", None, topic)
        assert report.damages == []
        return report.rows


@pytest.fixture(scope="module", params=["sqlite-files", "rest-s3"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("main")
    embedded = request.param == "sqlite-files"
    if not embedded and not can_be_had():
        pytest.skip("needs Go, to build the S3 server")
    ground: Ground = EmbeddedGround(folder / "pair" / "bridge") if embedded else LakeGround(folder / "lake")
    try:
        ground.start()
        pair = start_pair(folder / "pair", bridge_settings=ground.bridge_settings())
        try:
            with ground.catalog() as catalog:
                yield Place(pair, ground, catalog)
            # What the bridge stores elsewhere is not on its own disk: another one could take over.
            own = {name: (pair.bridge.folder / name).exists() for name in ("store", "warehouse", "catalog.db")}
            assert own == dict.fromkeys(own, embedded)
        finally:
            pair.broker.stop()
            pair.bridge.stop()
    finally:
        ground.stop()


def remote_bytes(pair: Pair, topic: str) -> int:
    with JmxReader(pair.broker.jmx_port) as jmx:
        return jmx.topic_total("RemoteFetchBytesPerSec", topic)


def test_records_become_rows_and_come_back(place: Place) -> None:
    pair, catalog = place.pair, place.catalog
    pair.admin.create_topic("ledger", partitions=len(PARTITIONS))
    sent = produce(pair, "ledger", seed=11)
    wait_tiered(pair, "ledger", PARTITIONS)
    assert all(sender.log.aborted for sender in sent.values())
    check(pair, catalog, "ledger", sent)
    assert remote_bytes(pair, "ledger") > 0
    topic_id = pair.admin.topic_id("ledger")
    assert len(place.ground.keys(f"index/{topic_id}/")) >= len(PARTITIONS)

    # Killed, started, more: the history goes on where it was.
    pair.bridge.kill()
    merge(sent, produce(pair, "ledger", seed=12))
    pair.bridge.start()
    wait_tiered(pair, "ledger", PARTITIONS)
    check(pair, catalog, "ledger", sent)
    pair.broker.process.kill()
    pair.broker.start()
    begins = pair.admin.end_offsets("ledger", PARTITIONS)
    merge(sent, produce(pair, "ledger", seed=13))
    wait_tiered(pair, "ledger", PARTITIONS)
    check(pair, catalog, "ledger", sent)
    assert place.verified("ledger") == sum(len(sender.log.committed) for sender in sent.values())

    # Whole segments below a new start leave the table, and nothing else does.
    pair.admin.delete_records("ledger", 0, begins[0])
    kept = {offset: record for offset, record in sent[0].log.committed.items() if offset >= begins[0]}
    others = sum(len(sent[number].log.committed) for number in PARTITIONS[1:])
    wait_for("rows below the start to leave", lambda: count(catalog, "ledger") == len(kept) + others, DELETED_S, 0.5)
    same(rows_by_offset(rows(catalog, "ledger")), kept)
    same(read(pair.broker, "ledger", start=begins[0]), kept)

    pair.admin.delete_topic("ledger")
    wait_for("rows to leave", lambda: count(catalog, "ledger") == 0, DELETED_S, 0.5)
    wait_for("objects to leave", lambda: not place.objects(topic_id), DELETED_S, 0.5)


def test_texts_are_a_column_and_come_back(place: Place) -> None:
    pair = place.pair
    pair.admin.create_topic("text-job", len(PARTITIONS), {**TIERED, "message.timestamp.type": "LogAppendTime"})
    texts = {partition: Sender(pair.broker, "text-job", partition) for partition in PARTITIONS}
    for partition, sender in texts.items():
        sender.send(as_text(Rec(b"%d" % number, bytes(range(number)), ()) for number in range(250)))
        # The broker's clock, not the producer's.
        stamped_by_broker = read(pair.broker, "text-job", partition)
        assert all(stamped_by_broker[offset].value == record.value for offset, record in sender.log.committed.items())
        sender.log.committed = stamped_by_broker
    wait_tiered(pair, "text-job", PARTITIONS)
    check(pair, place.catalog, "text-job", texts)
    found = rows(place.catalog, "text-job")
    assert found is not None
    assert 0 < found["value"].null_count < found.num_rows
    assert place.verified("text-job") == found.num_rows


def test_seeks_and_timestamps(place: Place) -> None:
    pair = place.pair
    pair.admin.create_topic("positions", config=SMALL_SEGMENTS)
    parts = transactions(stamped(5, 9000), 5, 300)
    log = interleaved(senders(pair, "positions", "zstd", 12), parts, 5)
    wait_tiered(pair, "positions")
    check_seeks(pair, "positions", log, 5, seeks=12)
    check_times(pair, "positions", log, 5, lookups=8)
