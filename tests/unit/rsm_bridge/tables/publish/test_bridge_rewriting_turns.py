"""Data files that are written anew take turns, whatever their tables; small ones do not wait."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import obstore.store
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from converter.epochs import footer_entry
from converter.parquet.columns import OFFSET, RAW_VALUE, row_schema
from converter.types import LeaderEpoch
from converter.values.allowance import Allowance
from rsm_bridge.storage.object_store import ObjectStore
from rsm_bridge.storage.read_clients import ReadClients
from rsm_bridge.tables.publish import rewritten
from rsm_bridge.tables.publish.rewritten import CopiedRows, Cut, Shape, copy_rows
from rsm_bridge.tables.publish.table_run import RetryRunError
from rsm_bridge.turns import TurnBusyError
from tests.support.eventually import eventually
from tests.worlds.maintain_support import make_world, published

ROWS = row_schema("raw")
ALL = 2**62


@pytest.fixture
def store() -> ObjectStore:
    memory = obstore.store.MemoryStore()
    return ObjectStore(memory, ReadClients(memory), "memory://")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def put(store: ObjectStore, key: str, count: int, size: int = 1) -> Cut:
    """A data file of so many rows, with values of so many bytes, and all of it as a cut."""
    values = {OFFSET: pa.array(range(count), pa.int64()), RAW_VALUE: pa.array([bytes(size)] * count, pa.binary())}
    zeros = {field.name: pa.array([0] * count, field.type) for field in ROWS if not field.nullable}
    arrays = [{**zeros, **values}.get(field.name, pa.nulls(count, field.type)) for field in ROWS]
    schema = ROWS.with_metadata(footer_entry((LeaderEpoch(0, 0),)))
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file, use_dictionary=False)
    store.put_if_absent(key, file.getvalue())
    return Cut(data_key=key, first=0, last=ALL)


class Slow:
    """Rows that are given columns as long as they may; how many at once, at most."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.running = self.most = 0

    def shape(self) -> Shape:
        return Shape(schema=ROWS, value_format="raw", revised=self._revised)

    def _revised(self, rows: pa.RecordBatch, cells_max: int, allowance: Allowance) -> pa.RecordBatch:
        self.running += 1
        self.most = max(self.most, self.running)
        assert self.go_on.wait(30)
        self.running -= 1
        return rows


def rows_of(written: Future[CopiedRows | None]) -> int:
    done = written.result(30)
    assert done is not None
    return int(done.footer.num_rows)


def test_files_that_are_decoded_take_turns_and_a_small_one_does_not_wait(
    store: ObjectStore, pool: ThreadPoolExecutor
) -> None:
    slow, cut = Slow(), put(store, "few", 10)
    decoded = [pool.submit(copy_rows, store, f"decoded-{number}", [cut], slow.shape()) for number in range(3)]
    eventually(lambda: slow.running == 1 and rewritten._TURNS.waiting == 2)
    assert rows_of(pool.submit(copy_rows, store, "plain", [cut], Shape(schema=ROWS, value_format="raw"))) == 10
    slow.go_on.set()
    assert [rows_of(one) for one in decoded] == [10, 10, 10]
    assert (slow.most, rewritten._TURNS.waiting) == (1, 0)


@pytest.mark.parametrize(("count", "size"), [(10, 600_000), (40_000, 1)], ids=["bytes", "cells"])
def test_a_large_file_waits_and_says_so_when_its_turn_does_not_come(
    store: ObjectStore, pool: ThreadPoolExecutor, count: int, size: int
) -> None:
    slow, few, large = Slow(), put(store, "few", 10), put(store, "large", count, size)
    decoded = pool.submit(copy_rows, store, "decoded", [few], slow.shape())
    eventually(lambda: slow.running == 1)
    with pytest.raises(TurnBusyError, match="no turn for writing rows of a table anew within") as failed:
        copy_rows(store, "copy", [large], Shape(schema=ROWS, value_format="raw"), turn_seconds=0.1)
    assert failed.value.kind == "overloaded"
    slow.go_on.set()
    assert rows_of(decoded) == 10
    assert rows_of(pool.submit(copy_rows, store, "copy", [large], Shape(schema=ROWS, value_format="raw"))) == count


def test_a_publisher_whose_turn_does_not_come_tries_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have its worker meanwhile."""
    world = make_world(tmp_path)
    published(world)
    world.log().write(3)
    world.copy_range(6, 11)
    monkeypatch.setattr(rewritten, "REWRITE_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(rewritten, "_are_few", lambda *_: False)
    others = rewritten._TURNS.ask()
    with pytest.raises(RetryRunError, match="no turn for writing rows of a table anew") as failed:
        world.publish()
    assert failed.value.conflict
    rewritten._TURNS.give_back(others)
    world.publish()
    assert world.offsets() == list(range(12))
