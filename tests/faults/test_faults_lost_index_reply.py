"""An index put that lands while its reply is lost: what it names stays, whatever has been done to the index since."""

from __future__ import annotations

from pathlib import Path

import pytest

from rsm_bridge.errors import StoreError
from rsm_bridge.storage.tombstone import is_tombstone
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, ShimError, segment_of


@pytest.mark.parametrize("answer", ["no answer", "refused as there already"])
def test_what_a_landed_index_names_stays_when_a_delete_came_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Published from by then, its rows stay in the table: a withdrawal takes none."""
    segment = segment_of(LogBuilder().fill(batches=3))
    settings = test_settings(tmp_path / "data", publish_interval="60s")
    with bridge_thread(settings) as bridge, ShimClient(bridge.address) as shim, ShimClient(bridge.address) as broker:
        put = bridge.store.put_if_absent
        indexes: list[str] = []

        def landing(key: str, data: bytes, *, sync: bool = True) -> bool:
            done = put(key, data, sync=sync)
            if not key.startswith("index/") or is_tombstone(data):
                return done
            indexes.append(key)
            broker.delete(segment)  # Kafka gave the copy up
            if answer == "no answer":
                raise StoreError("the reply was lost")
            return False

        monkeypatch.setattr(bridge.store, "put_if_absent", landing)
        with pytest.raises(ShimError) as failed:
            shim.copy(segment)
        assert failed.value.kind == "segment_deleted"
        (index,) = indexes
        assert is_tombstone(bridge.store.read(index).data)
        stored = [one.key for one in bridge.store.list_after(f"data/{segment.topic_id.hex()}/")]
        assert len(stored) == 1


def test_a_read_that_fails_after_it_takes_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The put says that something is there, and the store then says nothing any more: it may be our own index."""
    segment = segment_of(LogBuilder().fill(batches=3))
    with bridge_thread(test_settings(tmp_path / "data")) as bridge, ShimClient(bridge.address) as shim:
        put, read = bridge.store.put_if_absent, bridge.store.read
        away: list[str] = []

        def landing(key: str, data: bytes, *, sync: bool = True) -> bool:
            done = put(key, data, sync=sync)
            if key.startswith("index/") and not is_tombstone(data):
                away.append(key)
                return False
            return done

        def failing(key: str) -> object:
            if key in away:
                away.remove(key)
                raise StoreError("the store is away")
            return read(key)

        monkeypatch.setattr(bridge.store, "put_if_absent", landing)
        monkeypatch.setattr(bridge.store, "read", failing)
        with pytest.raises(ShimError) as failed:
            shim.copy(segment)
        assert failed.value.kind == "store_unavailable"
        assert [one.key for one in bridge.store.list_after(f"data/{segment.topic_id.hex()}/")]
