"""Leader epochs that begin above a segment's first batch, or are at odds with its batches, never fail a copy (C21)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from converter import epochs
from converter.batches.parser import SegmentParser
from converter.batches.transactions import Transactions
from converter.index.summary import SummaryBuilder
from converter.types import ConvertOptions, LeaderEpoch, Mode
from tests.oracle.records import Batch, Message, Record
from tests.oracle.strategies import make_segment

Pairs = tuple[tuple[int, int], ...]


def batch(base: int, epoch: int) -> Batch:
    return Batch(base, (Record(0, 0, b"k", b"v"),), last_offset_delta=9, leader_epoch=epoch)


#: epochs of batches at 0, 10, 20, …; what the metadata says; the runs that count.
CASES: dict[str, tuple[tuple[int, ...], Pairs, Pairs]] = {
    "as they are": ((0, 0, 2, 2), ((0, 0), (2, 20)), ((0, 0), (2, 20))),
    "deleteRecords into the segment": ((0, 0, 0, 0), ((0, 25),), ((0, 0),)),
    "several epochs below the log start": ((0, 1, 2, 2), ((2, 30),), ((0, 0), (1, 10), (2, 20))),
    "a new epoch at the log start": ((0, 1, 2, 3), ((2, 20), (3, 30)), ((0, 0), (1, 10), (2, 20), (3, 30))),
    "a checkpoint that begins at the last batch": ((1, 1, 1, 4), ((4, 30),), ((1, 0), (4, 30))),
    "a checkpoint that begins above all batches": ((1, 1, 2, 2), ((2, 37),), ((1, 0), (2, 20))),
    "nothing said": ((1, 1, 2, 2), (), ((1, 0), (2, 20))),
    "a lost entry": ((0, 0, 1, 1), ((0, 0),), ((0, 0),)),
    "a lost entry above the log start": ((0, 1, 2, 2), ((1, 15),), ((0, 0), (1, 15))),
    "another epoch": ((3, 3, 3, 3), ((5, 0),), ((5, 0),)),
    "no epoch in a batch": ((0, -1, 0, 0), ((0, 0),), ((0, 0),)),
    "an epoch out of order below the log start": ((1, 2**31 - 1, 1, 2), ((2, 30),), ((1, 0), (2, 30))),
    "a falling epoch": ((5, 3, 5, 5), ((5, 30),), ((5, 0),)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", ["table", "verbatim"])
def test_every_batch_is_taken_and_the_runs_are_judged(case: str, mode: Mode) -> None:
    of_batches, told, expected = CASES[case]
    segment = make_segment([batch(10 * number, epoch) for number, epoch in enumerate(of_batches)], slack=0)
    metadata = replace(segment.metadata, leader_epochs=tuple(LeaderEpoch(*entry) for entry in told))
    parser = SegmentParser(metadata, ConvertOptions(mode=mode), Transactions())
    steps = [*parser.feed(segment.data), *parser.finish()]
    assert sum(len(step.batches) for step in steps) == len(of_batches)
    if mode == "table":
        assert sum(step.rows.num_rows for step in steps) == len(of_batches)
    summary = SummaryBuilder(metadata.leader_epochs)
    for step in steps:
        summary.add(step.batches)
    runs = tuple((run.epoch, run.start_offset) for run in summary.build((), False, False).leader_epochs)
    if case == "an epoch out of order below the log start":
        assert runs[0] == (1, 0)  # damage: what counts is that the runs ascend, and end as the metadata does
        assert [epoch for epoch, _ in runs] == sorted({epoch for epoch, _ in runs})
    else:
        assert runs == expected


def test_messages_of_old_magic_say_nothing_about_epochs() -> None:
    segment = make_segment([Message(5, b"k", b"v"), batch(6, 4)], start_offset=5)
    told = (LeaderEpoch(4, 9),)
    parser = SegmentParser(replace(segment.metadata, leader_epochs=told), ConvertOptions(), Transactions())
    summary = SummaryBuilder(told)
    for step in [*parser.feed(segment.data), *parser.finish()]:
        summary.add(step.batches)
    assert summary.build((), False, False).leader_epochs == (LeaderEpoch(4, 6),)


def test_the_number_of_runs_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "EPOCH_RUNS_MAX", 3)
    segment = make_segment([batch(10 * number, number) for number in range(8)])
    told = (LeaderEpoch(7, 70),)
    parser = SegmentParser(replace(segment.metadata, leader_epochs=told), ConvertOptions(), Transactions())
    summary = SummaryBuilder(told)
    for step in [*parser.feed(segment.data), *parser.finish()]:
        summary.add(step.batches)
    assert len(summary.build((), False, False).leader_epochs) == 3


def test_where_no_batch_tells_an_epoch_the_metadata_does() -> None:
    """A segment that the cleaner left empty has its place in the log; with no epochs it would count as dead."""
    told = (LeaderEpoch(2, 5), LeaderEpoch(4, 8))
    assert SummaryBuilder(told).build((), False, False).leader_epochs == told
    segment = make_segment([Message(5, b"k", b"v")], start_offset=5)
    parser = SegmentParser(replace(segment.metadata, leader_epochs=told), ConvertOptions(), Transactions())
    summary = SummaryBuilder(told)
    for step in [*parser.feed(segment.data), *parser.finish()]:
        summary.add(step.batches)
    assert summary.build((), False, False).leader_epochs == told
