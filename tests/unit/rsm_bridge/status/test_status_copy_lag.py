"""Kafka 4.4's copy lag, as its broker reads the two settings, and what the report makes of it."""

from __future__ import annotations

import pytest

from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CauseCode
from rsm_bridge.status.copy_lag import CopyLag, copy_lag
from tests.support.status_facts import HOUR, MINUTE, NOW, facts, kafka, kafka_partition, kafka_topic

UNLIMITED = {"local.retention.ms": -2, "retention.ms": -1, "local.retention.bytes": -2, "retention.bytes": -1}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, None),  # 4.3
        ({"remote.copy.lag.ms": 0, "remote.copy.lag.bytes": -1}, None),  # 4.4 by default
        ({"remote.copy.lag.ms": 5, "remote.copy.lag.bytes": 0}, None),
        ({"remote.copy.lag.ms": 5, "remote.copy.lag.bytes": -1}, CopyLag(5, None)),
        ({"remote.copy.lag.ms": 5, "remote.copy.lag.bytes": 7}, CopyLag(5, 7)),
        ({"remote.copy.lag.ms": -1, "remote.copy.lag.bytes": -1}, CopyLag(None, None)),
        ({"remote.copy.lag.ms": -1, "remote.copy.lag.bytes": -1, "local.retention.ms": 9}, CopyLag(9, None)),
        ({"remote.copy.lag.ms": -1, "remote.copy.lag.bytes": -1, "retention.ms": 11}, CopyLag(11, None)),
        ({"remote.copy.lag.ms": -1, "remote.copy.lag.bytes": -1, "local.retention.bytes": 13}, CopyLag(None, 13)),
    ],
)
def test_what_the_settings_say(settings: dict[str, int], found: CopyLag | None) -> None:
    assert copy_lag({**UNLIMITED, **settings}.get) == found


def test_when_a_segment_is_due() -> None:
    assert not CopyLag(10, 100).due(1000, 99, 1009)
    assert CopyLag(10, 100).due(1000, 0, 1010)
    assert CopyLag(10, 100).due(1000, 100, 1000)
    assert not CopyLag(None, None).due(0, 1e18, 2**62)
    assert CopyLag(None, None).said().startswith("for ever")


def codes(pending_ms: int, **config: str) -> set[CauseCode]:
    """Four segments of 1 MiB have closed, 1,000 bytes a record."""
    part = kafka_partition(end=4500, stable_end=4500, pending_ms=pending_ms, newest_ms=pending_ms + MINUTE)
    names = {key.replace("_", "."): value for key, value in config.items()}
    return {item.code for item in assess(facts(kafka=kafka(kafka_topic(part, config=names)))).all_findings()}


def test_segments_that_wait_on_purpose_call_nobody_and_others_still_do() -> None:
    lag = {"remote_copy_lag_ms": str(6 * HOUR), "remote_copy_lag_bytes": "-1", "retention_ms": str(24 * HOUR)}
    assert CauseCode.COPY_STUCK in codes(NOW - 2 * HOUR)
    assert CauseCode.COPY_DELAYED in codes(NOW - 2 * HOUR, **lag)
    assert CauseCode.COPY_STUCK not in codes(NOW - 2 * HOUR, **lag)
    assert CauseCode.COPY_STUCK in codes(NOW - 7 * HOUR, **lag)
    assert CauseCode.COPY_STUCK in codes(NOW - 2 * HOUR, **{**lag, "remote_copy_lag_bytes": str(1 << 20)})
