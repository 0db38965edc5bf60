"""The history that mends a replica's: out of the indexes, joined with the broker's own newer entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from iceberg_catalog.plan.types import Runs, SegmentState
from rsm_bridge.errors import BridgeError
from rsm_bridge.metrics.progress.facts import Unread
from rsm_bridge.metrics.progress.stored import stored_partitions
from rsm_bridge.status.gather import history_starts, with_unread
from rsm_bridge.storage.segments.known import KnownSegment, parse_checkpoint
from rsm_bridge.storage.segments.leader_epochs import History, history_of, joined, said
from tests.support.kafka_log import checkpoint
from tests.support.status_facts import kafka, kafka_partition, kafka_topic, stored, stored_partition
from tests.unit.rsm_bridge.metrics.progress.test_status_stored import known, seg
from tests.worlds.maintain_support import make_world, published
from tests.worlds.plan_support import plain
from tierberg.cli import app


def segment(
    name: str, first: int, last: int, runs: Runs, told: Runs, state: SegmentState = SegmentState.LIVE
) -> KnownSegment:
    batches = []
    starts = [start for _, start in runs[1:]] + [last + 1]
    for (epoch, start), end in zip(runs, starts, strict=True):
        batches.append(plain(max(start, first), end - 1, epoch=epoch))
    return known(seg(name, *batches, checkpoint=told, state=state))


#: Three segments of a log of epochs 0, 2 and 3; the last copy came from a replica that lost what lies below 182.
WHOLE: Runs = ((0, 0), (2, 120), (3, 200))
LOG = [
    segment("a", 0, 99, ((0, 0),), ((0, 0),)),
    segment("b", 100, 181, ((0, 100), (2, 120)), ((0, 0), (2, 120))),
    segment("c", 182, 299, ((2, 182), (3, 200)), ((2, 182), (3, 200))),
]


def test_a_cut_history_is_whole_again() -> None:
    found = history_of(LOG, 0)
    assert found == History(entries=WHOLE, start=0, end=300, holes=(), astray=())
    assert parse_checkpoint(found.checkpoint().encode()) == WHOLE
    assert found.checkpoint().encode() == checkpoint(list(WHOLE))
    assert "every tiered segment agrees" in "\n".join(said(found, with_current=True))


def test_the_brokers_newer_entries_are_joined_on() -> None:
    own = checkpoint([(2, 182), (3, 200), (7, 350), (8, 360)])
    found = joined(history_of(LOG, 0), own)
    assert found.entries == (*WHOLE, (7, 350), (8, 360))
    assert joined(history_of(LOG, 0), checkpoint(list(WHOLE))).entries == WHOLE
    assert joined(history_of(LOG, 0), checkpoint([])).entries == WHOLE


def test_a_replica_of_another_history_is_refused() -> None:
    with pytest.raises(BridgeError, match="at offset 200 the broker's file has epoch 2 and the tiered"):
        joined(history_of(LOG, 0), checkpoint([(2, 182)]))
    with pytest.raises(BridgeError, match="no leader-epoch checkpoint"):
        joined(history_of(LOG, 0), b"hello")


def test_a_hole_is_said() -> None:
    without = [LOG[0], LOG[2]]
    found = history_of(without, 0)
    assert found.holes == ((100, 181),)
    assert found.entries == ((0, 0), (2, 182), (3, 200))
    assert any("epoch of offsets 100 to 181" in line for line in said(found, with_current=True))
    beyond = joined(history_of(LOG, 0), checkpoint([(9, 400)]))
    assert beyond.holes == ((300, 399),)


def test_what_is_no_part_of_it_is_named() -> None:
    """The rows of a leader that an unclean election took back."""
    dead = segment("d", 182, 250, ((2, 182),), WHOLE[:2])
    found = history_of([*LOG, dead], 0)
    assert found.entries == WHOLE
    assert found.astray == (dead.listed.key,)
    assert any("not part of this history" in line for line in said(found, with_current=True))


def test_nothing_live_is_an_error() -> None:
    gone = segment("a", 0, 99, ((0, 0),), ((0, 0),), state=SegmentState.DELETED)
    for segments in ([], [gone]):
        with pytest.raises(BridgeError, match="no live segment"):
            history_of(segments, 0)


def test_the_command_prints_the_file(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    published(world)
    done = CliRunner().invoke(app, ["leader-epochs", "orders", "0", "--data-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.encode() == checkpoint([(0, 0)])
    assert "join the broker's own file" in done.stderr
    own = tmp_path / "leader-epoch-checkpoint"
    own.write_bytes(checkpoint([(0, 6), (4, 11)]))
    arguments = ["leader-epochs", "orders", "0", "--data-dir", str(tmp_path), "--current", str(own)]
    assert CliRunner().invoke(app, arguments).stdout.encode() == checkpoint([(0, 0), (4, 11)])
    for wrong in (["nothing", "0"], ["orders", "7"]):
        refused = CliRunner().invoke(app, ["leader-epochs", *wrong, "--data-dir", str(tmp_path)])
        assert refused.exit_code == 2
        assert refused.stdout == ""


def test_a_cut_copy_above_live_segments_is_noticed() -> None:
    cut = stored_partitions(LOG, None)[0]
    assert cut.cut_start == 182
    assert stored_partitions(LOG[:2], None)[0].cut_start is None
    assert stored_partitions(LOG[2:], None)[0].cut_start is None
    # deleteRecords into a segment that stays: its own beginning is above its base, and nothing lies wholly below.
    within = segment("w", 0, 99, ((0, 0),), ((0, 50),))
    assert stored_partitions([within], None)[0].cut_start is None


def test_where_history_is_read_to_be_sure() -> None:
    def starts(log_start: int, cut: int | None, wanted: str | None = None) -> dict[tuple[str, int], int]:
        part = stored_partition(start=10, cut_start=cut)
        return history_starts(
            kafka(kafka_topic(kafka_partition(log_start=log_start))), {"ab" * 16: stored(part)}, wanted
        )

    assert starts(0, 60) == {("orders", 0): 10}
    assert starts(30, 60) == {("orders", 0): 30}
    assert starts(60, 60) == {}  # Kafka is deleting what lies below its log start
    assert starts(0, None) == {}
    assert starts(0, None, "orders") == {("orders", 0): 10}
    told = kafka(kafka_topic(kafka_partition(start_has_epoch=False)))
    assert history_starts(told, {"ab" * 16: stored(stored_partition(start=10))}, None) == {("orders", 0): 10}
    asked = kafka(kafka_topic(kafka_partition()))
    assert with_unread(asked, {("orders", 0): Unread(10, None)}).topics["orders"].partitions[0].unread == Unread(
        10, None
    )
    assert with_unread(asked, {}).topics["orders"].partitions[0].unread is None
