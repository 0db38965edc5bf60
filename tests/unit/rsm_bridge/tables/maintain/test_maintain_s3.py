"""Reclaiming, sweeping and undeleting on S3, where paths are URIs and swaps are conditional puts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.config.settings import load_settings
from rsm_bridge.limits import COPY_SECONDS_MAX, LATE_PUT_SECONDS
from rsm_bridge.storage.opening import open_store
from rsm_bridge.tables.maintain.sweep import COPY_IS_OVER_SECONDS
from rsm_bridge.tables.maintain.undelete import undelete
from tests.support.s3_server import S3Server, moto_server
from tests.worlds.maintain_support import World


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


@pytest.fixture
def world(s3: S3Server, tmp_path: Path) -> World:
    url = f"s3://{s3.new_bucket('maintain')}/root"
    store = {"url": url, "options": s3.store_options(), "fetch_timeout": "10s"}
    return World(open_store(load_settings(None, {"store": store})), open_catalog(embedded_settings(tmp_path)))


def rows(world: World) -> list[tuple[int, int]]:
    """Offsets of the table's live files: the rows themselves lie in a bucket that this catalog has no keys for."""
    return sorted((item.first, item.last) for item in LiveFiles().read(world.loaded()).files)


def test_a_deleted_segment_goes_after_its_grace(world: World) -> None:
    first, _ = world.copy(3), world.copy(3)
    world.publish()
    world.delete(first)
    world.publish()
    assert rows(world) == [(3, 5)]
    assert not world.reclaim().objects
    world.check()
    world.later(world.graces.reclaim + 5)
    assert world.reclaim().objects == {"snapshot": 1, "data": 1, "tombstone": 1}
    assert len(world.stored()) == 2
    world.check()


def test_what_a_crashed_copy_left_is_swept(world: World) -> None:
    world.copy(3)
    world.publish()
    before = world.stored()
    world.log().write(2)
    world.copy_range(3, 4, indexed=False)
    world.later(COPY_IS_OVER_SECONDS + 60)
    assert world.maintain().objects["data"] == 1
    assert world.stored() == before
    world.check()


def test_rows_come_back(world: World) -> None:
    world.delete(world.copy(3), world.copy(3))
    world.publish()
    world.copy(1)
    world.publish()
    assert rows(world) == [(6, 6)]
    undelete(world.store, world.catalog, world.topic_id, world.context)
    assert rows(world) == [(0, 2), (3, 5), (6, 6)]
    world.check()


def test_without_a_table_a_first_commit_of_another_bridge_is_given_time(world: World) -> None:
    world.delete(world.copy(3))
    world.publish()
    assert world.table() is None
    world.later(world.graces.reclaim + 60)
    assert not world.reclaim().objects
    world.later(COPY_SECONDS_MAX + LATE_PUT_SECONDS)
    assert world.reclaim().objects["data"] == 1
    assert world.stored() == []
