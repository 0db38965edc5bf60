"""A copy whose leader epochs begin above its first batch is stored, served and published (C21)."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog

from converter.types import IndexType
from tests.bridge.serving.test_bridge_roundtrip import expected_rows, rows_of
from tests.support.eventually import eventually
from tests.support.kafka_log import LogBuilder, checkpoint
from tests.support.shim_client import ShimClient, segment_of

Pairs = tuple[tuple[int, int], ...]


def log_of(runs: tuple[tuple[int, int], ...], start: int = 0) -> LogBuilder:
    """(epoch, batches of ten records) each."""
    log = LogBuilder(start)
    for epoch, batches in runs:
        log.epoch = epoch
        log.fill(batches=batches, records=10)
    return log


@pytest.mark.parametrize(
    ("runs", "epochs"),
    [
        (((0, 10),), ((0, 50),)),  # 100 records, deleteRecords(50), roll
        (((0, 10),), ((0, 55),)),  # into the midst of a batch
        (((0, 4), (1, 4), (2, 2)), ((2, 85),)),  # retention raised the log start over two epochs
        (((0, 4), (1, 4), (2, 2)), ((1, 50), (2, 80))),
        (((3, 10),), ((3, 99),)),
    ],
)
def test_a_cut_checkpoint_is_no_reason_to_refuse(
    shim: ShimClient, catalog: Catalog, runs: Pairs, epochs: Pairs
) -> None:
    topic = f"cut{len(runs)}{epochs[0][1]}"
    log = log_of(runs)
    file = checkpoint(list(epochs))
    first = segment_of(log, topic=topic, epochs=epochs, files={IndexType.LEADER_EPOCH: file})
    copied = shim.copied(first)
    assert shim.fetch(copied) == log.data
    assert shim.fetch_index(copied, IndexType.LEADER_EPOCH) == file
    # The log goes on under the next leader, whose checkpoint is cut alike.
    following = log_of(((9, 5),), log.next_offset)
    later = (*epochs, (9, log.next_offset))
    shim.copied(
        segment_of(
            following,
            topic=topic,
            topic_id=first.topic_id,
            epochs=((9, log.next_offset),),
            files={IndexType.LEADER_EPOCH: checkpoint(list(later))},
        )
    )
    eventually(lambda: rows_of(catalog, topic) == [*expected_rows(log), *expected_rows(following)])


def test_epochs_that_contradict_the_batches_cost_no_rows(shim: ShimClient, catalog: Catalog) -> None:
    """A power cut took the newest entry of the checkpoint file, which nobody syncs with the log."""
    log = log_of(((0, 5), (1, 5)))
    first = segment_of(log, topic="torn", epochs=((0, 0),), files={IndexType.LEADER_EPOCH: checkpoint([(0, 0)])})
    assert shim.fetch(shim.copied(first)) == log.data
    following = log_of(((2, 5),), log.next_offset)
    told = [(0, 0), (2, log.next_offset)]
    shim.copied(
        segment_of(
            following,
            topic="torn",
            topic_id=first.topic_id,
            epochs=((2, log.next_offset),),
            files={IndexType.LEADER_EPOCH: checkpoint(told)},
        )
    )
    eventually(lambda: rows_of(catalog, "torn") == [*expected_rows(log), *expected_rows(following)])
