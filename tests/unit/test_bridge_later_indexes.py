"""A copy that carries transaction indexes of later segments: whatever they hold, it is stored and served as without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.transactions import transaction_index
from tests.support.bridge_process import bridge_thread, test_settings
from tests.support.kafka_log import LogBuilder
from tests.support.shim_client import ShimClient, ShimError, segment_of


def test_what_they_hold_changes_nothing(tmp_path: Path) -> None:
    later = (
        (5_000, transaction_index([(7, 4_000, 5_010)])),
        (6_000, transaction_index([(8, 6_001, 6_002)])[:-1]),
        (7_000, b"damaged" * 34),
        (8_000, b""),
    )
    log = LogBuilder().fill(batches=3)
    with bridge_thread(test_settings(tmp_path)) as bridge, ShimClient(bridge.address) as shim:
        segment = shim.copied(segment_of(log, later=later))
        assert shim.fetch(segment) == log.data
        stored = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
        assert stored
        assert not any(later[0][1] in data for data in stored)


def test_one_that_is_not_later_is_refused(tmp_path: Path) -> None:
    log = LogBuilder().fill(batches=3)
    with bridge_thread(test_settings(tmp_path)) as bridge, ShimClient(bridge.address) as shim:
        with pytest.raises(ShimError, match="not ascending above end_offset") as caught:
            shim.copy(segment_of(log, later=((2, b""),)))
        assert caught.value.kind == "bad_request"
