"""Each setting of the section `merge`, by which data files the background maintenance leaves."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from iceberg_catalog.commit.head import LiveFiles
from iceberg_catalog.connect.open import embedded_settings, open_catalog
from rsm_bridge.errors import SettingsError
from rsm_bridge.logs import logger
from rsm_bridge.serving.maintainer import Maintainer
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, Record, encode_batch
from tests.support.shim_client import ShimClient, segment_of

HOUR_MS = 3_600_000
#: Six files of 0.3 MiB whose records are an hour apart become one.
ALL = {"small_mib": 1, "target_mib": 8, "files_min": 3, "files_max": 1000, "age": "0s", "span": "7d"}


def segments() -> list[LogBuilder]:
    found = []
    for number in range(6):
        log = LogBuilder(next_offset=number)
        log.batches.append(
            encode_batch([Record(number, 1_700_000_000_000 + number * HOUR_MS, None, os.urandom(300_000))])
        )
        log.next_offset += 1
        found.append(log)
    return found


@pytest.mark.parametrize(
    ("merge", "said"),
    [
        ({"small_mib": 8, "target_mib": 4}, r"target_mib \(4\) must be at least small_mib \(8\)"),
        ({"files_min": 9, "files_max": 5}, r"files_max \(5\) must be at least files_min \(9\)"),
    ],
    ids=str,
)
def test_limits_that_contradict_each_other_are_told_apart(merge: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=said):
        test_settings(tmp_path, merge=merge)


@pytest.mark.parametrize(
    ("changes", "files"),
    [
        ({}, 1),
        ({"small_mib": 0}, 6),
        ({"target_mib": 1}, 2),
        ({"files_min": 7}, 6),
        ({"files_max": 3}, 2),
        ({"age": "1h"}, 6),
        ({"span": "9000s"}, 2),
    ],
    ids=str,
)
def test_files_that_are_left(changes: dict[str, Any], files: int, tmp_path: Path) -> None:
    settings = test_settings(tmp_path, merge={**ALL, **changes}, maintain_interval="0s")
    topic_id = uuid.uuid4().bytes
    with (
        bridge_thread(settings) as bridge,
        ShimClient(bridge.address) as shim,
        closing(open_catalog(embedded_settings(tmp_path))) as catalog,
    ):
        copied = [shim.copied(segment_of(log, topic="small", topic_id=topic_id)) for log in segments()]

        def live() -> int:
            if not catalog.table_exists("kafka.small"):
                return 0
            return sum(file.rows for file in LiveFiles().read(catalog.load_table("kafka.small")).files)

        eventually(lambda: live() == 6)
        Maintainer(
            settings=settings, store=bridge.store, catalog=lambda: catalog, metrics=bridge.metrics, log=logger("test")
        ).run_once()
        assert len(LiveFiles().read(catalog.load_table("kafka.small")).files) == files
        assert [shim.fetch(one) for one in copied] == [one.data for one in copied]
