"""A copy of an id that has finished already: RemoteStorageManager asks for success where it is the same segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from converter.types import IndexType
from iceberg_catalog import failpoints
from rsm_bridge.serving.service import Running
from tests.support.kafka_log import LogBuilder, aborted_transaction, checkpoint
from tests.support.shim_client import Segment, ShimClient, ShimError, segment_of


def stored(bridge: Running, segment: Segment) -> list[str]:
    roots = [f"{root}/{segment.topic_id.hex()}/" for root in ("index", "data", "kept")]
    return sorted(listed.key for root in roots for listed in bridge.store.list_after(root))


@contextmanager
def fault(text: str) -> Iterator[None]:
    before = dict(failpoints._faults)
    failpoints._faults.update(failpoints.parse(text))
    try:
        yield
    finally:
        failpoints._faults.clear()
        failpoints._faults.update(before)


def test_the_same_copy_again_answers_as_the_first_did(bridge: Running, shim: ShimClient) -> None:
    segment = segment_of(LogBuilder().fill(batches=30, size=2_000))
    first = shim.copy(segment).custom_metadata
    before = stored(bridge, segment)
    rows = bridge.metrics.copied_rows._value.get()
    assert shim.copy(segment).custom_metadata == first
    assert stored(bridge, segment) == before, "the second copy's objects are nobody's"
    assert bridge.metrics.copied_rows._value.get() == rows
    assert shim.fetch(segment.finished(first)) == segment.data


def test_a_repeat_of_a_copy_that_stored_the_segment_in_another_form(shim: ShimClient) -> None:
    segment = segment_of(LogBuilder().fill(batches=30, size=2_000))
    with fault("convert=raise-once"):
        answer = shim.copy(segment)
    assert answer.restarts
    assert shim.copy(segment).custom_metadata == answer.custom_metadata


def with_files(segment: Segment, **files: bytes) -> Segment:
    return replace(segment, files={**segment.files, **{IndexType[name]: data for name, data in files.items()}})


def log_of(value: bytes) -> LogBuilder:
    log = LogBuilder()
    for _ in range(5):
        log.batch([value] * 4)
    return log


OTHERS: dict[str, Callable[[Segment], Segment]] = {
    "other bytes": lambda one: replace(one, data=log_of(b"b" * 100).data),
    "another time index": lambda one: with_files(one, TIMESTAMP=b"\1" * 12),
    "a transaction index": lambda one: with_files(one, TRANSACTION=aborted_transaction(9, 0, 1, 0)),
    "another checkpoint": lambda one: with_files(one, LEADER_EPOCH=checkpoint([(0, 0), (3, 2)])),
    "other epochs": lambda one: replace(one, epochs=((0, 0), (3, one.end_offset))),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_other_content_under_the_id_is_refused(
    bridge: Running, shim: ShimClient, other: Callable[[Segment], Segment]
) -> None:
    segment = segment_of(log_of(b"a" * 100))
    copied = shim.copied(segment)
    before = stored(bridge, segment)
    with pytest.raises(ShimError) as refused:
        shim.copy(other(segment))
    assert refused.value.kind == "invalid_segment"
    assert "other content" in (refused.value.details or "")
    assert stored(bridge, segment) == before
    assert shim.fetch(copied) == segment.data
