"""`tierberg verify` and `inspect`, on a store a real bridge has filled: what an operator sees, sound and damaged."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from converter.types import IndexType
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.storage.keys import IndexKey
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder, aborted_transaction
from tests.support.shim_client import Segment, ShimClient, segment_of
from tierberg.cli import app


@dataclass(frozen=True)
class Store:
    """A data folder after a bridge has stopped: one segment with an aborted transaction and a damaged batch."""

    folder: Path
    segment: Segment
    deleted: Segment

    def key(self, segment: Segment) -> str:
        return str(
            IndexKey(
                topic_id=segment.topic_id,
                partition=segment.partition,
                last=segment.end_offset,
                base=segment.start_offset,
                segment_id=segment.segment_id,
            )
        )

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--data-dir", str(self.folder)])

    def only(self, kind: str) -> Path:
        (found,) = (self.folder / "store" / kind / self.segment.topic_id.hex()).rglob("0*-*")
        return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    log = LogBuilder().fill(batches=5, records=20, size=300)
    aborted = log.batch(
        [b"never seen"] * 3, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10, visible=False
    )
    log.control(7, commit=False)
    log.batch([b"broken"] * 20, bad_crc=True, visible=False)
    log.fill(batches=4, records=20, size=300)
    files = {IndexType.TRANSACTION: aborted_transaction(7, aborted[0].offset, aborted[-1].offset + 1, log.next_offset)}
    segment = segment_of(log, topic="orders", files=files)
    other = segment_of(LogBuilder().fill(batches=2), topic="gone")
    with bridge_thread(test_settings(tmp_path, reclaim_grace="1h")) as running, ShimClient(running.address) as shim:
        kept = shim.copied(segment)
        deleted = shim.copied(other)
        _wait_for_rows(tmp_path, "orders", 180)
        _wait_for_rows(tmp_path, "gone", 20)
        shim.delete(deleted)
        _wait_for_rows(tmp_path, "gone", 0)
    return Store(tmp_path, kept, deleted)


def _wait_for_rows(folder: Path, table: str, rows: int) -> None:
    catalog = open_catalog(embedded_settings(folder))
    end = time.monotonic() + 20
    while not catalog.table_exists(("kafka", table)) or catalog.load_table(("kafka", table)).scan().count() != rows:
        assert time.monotonic() < end, "never published"
        time.sleep(0.1)


def test_a_sound_store_is_proved(store: Store) -> None:
    result = store.run("verify")
    assert result.exit_code == 0, result.output
    assert "1 segments with" in result.output
    assert "1 tombstones" in result.output
    assert "180 rows" in result.output
    assert "no damage" in result.output


def test_only_one_topic(store: Store) -> None:
    elsewhere = store.run("verify", "--topic", "elsewhere")
    assert (elsewhere.exit_code, elsewhere.output) == (2, "tierberg: the store has nothing of a topic elsewhere\n")
    assert "1 segments" in store.run("verify", "--topic", "orders").output


COMMANDS = ("verify", "maintain", "undelete orders", "leader-epochs orders 0", "inspect index index/x", "table drop x")


OF_SPARK = ("repartition x", "repartition --all --continuous", "advise x --queries QUERIES")


@pytest.mark.parametrize("command", [*COMMANDS, *OF_SPARK])
def test_a_folder_that_is_no_store_stays_as_it_is(tmp_path: Path, command: str) -> None:
    (tmp_path / "queries.sql").write_text("SELECT 1 FROM {table}")
    (folder := tmp_path / "data").mkdir()
    given = [word.replace("QUERIES", str(tmp_path / "queries.sql")) for word in command.split()]
    result = CliRunner().invoke(app, [*given, "--data-dir", str(folder)])
    assert (result.exit_code, list(folder.iterdir())) == (2, [])
    assert "is it the bridge's data_dir?" in result.output


@pytest.mark.parametrize("command", [*COMMANDS, "status"])
def test_a_folder_whose_name_is_too_long_is_none(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--data-dir", "x" * 300])
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit), result.exception
    assert "File name too long" in result.output


def test_a_catalog_beside_another_store_is_found(store: Store) -> None:
    (store.folder / "store").rename(store.folder / "moved")
    (store.folder / "store").mkdir()
    result = store.run("verify")
    assert result.exit_code == 2
    assert "is the disk of the store mounted?" in result.output
    (store.folder / "store" / "of another").touch()
    result = store.run("verify")
    assert result.exit_code == 1
    assert "rows, and the store has nothing of topic id" in result.output


def test_a_wrong_topic_id_is_named(store: Store) -> None:
    for given, words in (("zz", "'zz': 32 hex digits"), ("00" * 16, "orders with id 0000")):
        result = store.run("leader-epochs", "orders", "0", "--topic-id", given)
        assert result.exit_code == 2
        assert words in result.output


@pytest.mark.parametrize("kind", ["data", "kept", "index"])
def test_damage_is_found_and_named(store: Store, kind: str) -> None:
    path = store.only(kind)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    result = store.run("verify")
    assert result.exit_code == 1
    assert store.key(store.segment) in result.output
    assert "corrupt_object" in result.output
    assert "damaged" in result.output


def test_a_lost_data_file_is_found(store: Store) -> None:
    store.only("data").unlink()
    result = store.run("verify")
    assert result.exit_code == 1
    assert store.only("index").name in result.output


def test_inspect_index_says_what_was_withheld_and_why(store: Store) -> None:
    result = store.run("inspect", "index", store.key(store.segment))
    assert result.exit_code == 0, result.output
    assert f"topic        orders-0  id {store.segment.topic_id.hex()}  cluster test" in result.output
    assert "quarantined  bad_crc: 1 batches, 20 records" in result.output
    assert "kept         no_rows: 2 batches" in result.output
    assert "rows 180" in result.output
    assert "conflict" not in result.output


def test_inspect_segment_lists_batches(store: Store) -> None:
    result = store.run("inspect", "segment", store.key(store.segment), "--batches", "12")
    assert result.exit_code == 0, result.output
    assert "bad_crc" in result.output
    by_file = store.run("inspect", "segment", str(store.only("index")), "--batches", "12")
    assert by_file.output == result.output


def test_inspect_shows_a_tombstone_and_the_index_in_it(store: Store) -> None:
    result = store.run("inspect", "index", store.key(store.deleted))
    assert result.exit_code == 0, result.output
    assert "tombstone    deleted at " in result.output
    assert "topic        gone-0" in result.output


@pytest.mark.parametrize("target", ["index/none", "no/such/file"])
def test_inspect_of_nothing_says_so(store: Store, target: str) -> None:
    result = store.run("inspect", "index", target)
    assert result.exit_code == 2
    assert target in result.output
