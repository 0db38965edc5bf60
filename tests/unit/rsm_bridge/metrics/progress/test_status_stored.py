"""Facts out of what is known of segments: frontiers, waiting transactions, conflicts, gaps, withheld batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from converter.index.model import StoredObject
from converter.types import Cause
from iceberg_catalog.plan.types import Keep, LiveFile, PartState, Runs, Segment, SegmentState
from iceberg_catalog.tables.names import Owner
from rsm_bridge.metrics.progress.facts import Gap, StoredPartition, UnfinishedTransaction
from rsm_bridge.metrics.progress.stored import Withheld, gaps_between, rows_below, stored_partitions, withheld
from rsm_bridge.storage.keys import IndexKey
from rsm_bridge.storage.object_store import ListedObject
from rsm_bridge.storage.segments.known import KnownSegment, KnownTombstone, SegmentCounts
from tests.worlds.plan_support import B, abort, commit, plain, txn
from tests.worlds.plan_support import seg as segment_of

TOPIC = bytes(range(16))


def known(
    segment: Segment, *, partition: int = 0, rows: bool = True, counts: Sequence[tuple[Cause, int]] = ()
) -> KnownSegment:
    """A segment as the publisher knows it; its index was put at its base offset's second."""
    key = IndexKey(
        topic_id=TOPIC,
        partition=partition,
        last=segment.last,
        base=segment.base,
        segment_id=segment.id.encode().rjust(16, b"\0")[-16:],
    )
    deletion = None
    if segment.state is not SegmentState.LIVE:
        deletion = KnownTombstone(kind=segment.state, time_ms=0, had_index=True)
    return KnownSegment(
        key=key,
        listed=ListedObject(str(key), 1000, segment.base * 1000),
        owner=Owner("c", "orders", TOPIC),
        value_format="raw",
        segment=replace(segment, id=str(key)),
        data=StoredObject("data/x", 10, 0) if rows else None,
        kept=None,
        deletion=deletion,
        counts=SegmentCounts(record_ms=segment.base * 1000 + 5, source_bytes=100, quarantined=tuple(counts)),
    )


def seg(
    name: str,
    *batches: B,
    open_end: tuple[tuple[int, int], ...] | None = None,
    checkpoint: Runs = ((0, 0),),
    state: SegmentState = SegmentState.LIVE,
) -> Segment:
    """A segment of a log that begins at offset 0."""
    return segment_of(name, batches, checkpoint=checkpoint, opened=open_end, state=state)


def only(segments: Sequence[KnownSegment], state: PartState | None, **options: Any) -> StoredPartition:
    found = stored_partitions(segments, None if state is None else {0: state}, **options)
    assert list(found) == [0]
    return found[0]


def published_to(end: int, lineage: Runs = ((0, 0),)) -> PartState:
    return PartState(frontier=end, floor=0, lineage=lineage, known_end=end)


def test_all_published() -> None:
    found = only([known(seg("a", plain(0, 9))), known(seg("b", plain(10, 19)))], published_to(20))
    assert (found.start, found.tiered_end, found.publishable_end) == (0, 20, 20)
    assert (found.segments, found.source_bytes, found.tiered_ms, found.record_ms) == (2, 200, 10_000, 10_005)
    assert (found.unpublished_ms, found.open, found.conflict, found.gaps) == (None, None, None, ())


def test_what_the_next_run_would_publish() -> None:
    found = only([known(seg("a", plain(0, 9))), known(seg("b", plain(10, 19)))], published_to(10))
    assert (found.publishable_end, found.unpublished_ms) == (20, 10_000)
    after = only([known(seg("a", plain(0, 9))), known(seg("b", plain(10, 19)))], published_to(10), planned=True)
    assert after.publishable_end == 10  # the publisher has just planned: it is not asked again


def test_what_an_unclean_election_cut_off_is_not_how_far_it_is_tiered() -> None:
    """Its copies stay until Kafka deletes them, above what the new leader has tiered."""
    old = [
        known(seg("a", plain(0, 9, 1), checkpoint=((1, 0),))),
        known(seg("b", plain(10, 29, 1), checkpoint=((1, 0),))),
    ]
    new = known(seg("c", plain(5, 14, 2), checkpoint=((1, 0), (2, 5))))
    found = only([*old, new], published_to(15, ((1, 0), (2, 5))))
    assert (found.tiered_end, found.history, found.segments) == (15, ((1, 0), (2, 5)), 3)
    assert only(old, published_to(30, ((1, 0),))).tiered_end == 30


def test_an_archive_publishes_what_retention_deleted_first() -> None:
    deleted = known(seg("a", plain(0, 9), state=SegmentState.DELETED))
    segments = [deleted, known(seg("b", plain(10, 19)))]
    kept = stored_partitions(segments, {0: published_to(0)}, (), Keep())[0]
    assert (kept.publishable_end, kept.unpublished_ms) == (20, 10_000)


def test_before_the_first_commit_everything_waits() -> None:
    found = stored_partitions([known(seg("a", plain(5, 9)))], {})[0]
    assert (found.publishable_end, found.unpublished_ms) == (10, 5_000)


def test_a_topic_without_a_row_waits_for_no_table() -> None:
    found = stored_partitions([known(seg("a", plain(0, 9, rows=False)), rows=False)], {})[0]
    assert (found.publishable_end, found.unpublished_ms) == (None, None)


def test_without_the_tables_state_nothing_is_said_of_publishing() -> None:
    found = only([known(seg("a", plain(0, 9)))], None)
    assert (found.tiered_end, found.publishable_end, found.unpublished_ms) == (10, None, None)


def test_an_open_transaction_is_named() -> None:
    segments = [
        known(seg("a", plain(0, 9))),
        known(seg("b", txn(10, 12, pid=5), txn(13, 14, pid=6), commit(15, 5), plain(16, 19), open_end=((6, 13),))),
        known(seg("c", plain(20, 29), open_end=((6, 13),))),
    ]
    found = only(segments, published_to(10))
    assert found.open == UnfinishedTransaction(first_offset=13, producer_id=6, since_ms=10_000)
    assert found.publishable_end is not None
    assert found.publishable_end <= 13
    assert found.unpublished_ms == 10_000


def test_the_marker_in_a_later_segment_ends_the_waiting() -> None:
    segments = [
        known(seg("b", txn(0, 2, pid=5), open_end=((5, 0),))),
        known(seg("c", commit(3, 5), plain(4, 9))),
    ]
    found = only(segments, published_to(0))
    assert (found.open, found.publishable_end) == (None, 10)


def test_a_transaction_that_was_peeked_is_not_the_one_that_waits() -> None:
    batches = (plain(0, 0), txn(1, 1, pid=5), txn(2, 2, pid=6), plain(3, 3))
    opened = ((5, 1), (6, 2))
    told = replace(seg("a", *batches, open_end=opened), peeked=((5, 1, True),))
    found = only([known(told)], published_to(0))
    assert (found.publishable_end, found.open and found.open.producer_id) == (2, 6)


def test_a_contradiction_across_segments_is_named() -> None:
    batches = ([txn(0, 2, pid=5), plain(3, 3)], [abort(4, 5), plain(5, 5)])
    segments = [
        known(segment_of("a", batches[0], aborts=[])),
        known(segment_of("b", batches[1], aborts=[], opened=(), checkpoint=((0, 0),))),
    ]
    found = only(segments, published_to(0))
    assert (found.publishable_end, found.conflict) == (0, segments[0].listed.key)


def test_a_conflicting_segment_is_named() -> None:
    segments = [known(seg("a", plain(0, 9))), known(replace(seg("b", plain(10, 19)), conflict=True))]
    found = only(segments, published_to(10))
    assert found.conflict == segments[1].listed.key
    assert (found.open, found.publishable_end) == (None, 10)


def test_a_new_leader_that_is_not_in_the_table_yet() -> None:
    """The plan of the rewind asks a file for its epochs; without an answer status called the store away."""
    branches = [known(seg("a", plain(0, 19))), known(seg("b", B(5, 29, 1), checkpoint=((0, 0), (1, 10))))]
    files = (LiveFile(path="f", first=0, last=19, runs=None, partition=0),)
    found = only(branches, published_to(20), files=files, look=lambda _: ((0, 0),))
    assert (found.tiered_end, found.publishable_end) == (30, 30)
    with pytest.raises(ValueError, match="nobody can look"):
        only(branches, published_to(20), files=files)


def test_partitions_stay_apart() -> None:
    found = stored_partitions(
        [known(seg("a", plain(0, 9))), known(seg("b", plain(0, 4)), partition=3)], {0: published_to(10)}
    )
    assert {number: part.tiered_end for number, part in found.items()} == {0: 10, 3: 5}
    assert found[3].publishable_end == 5


def test_gaps_and_what_explains_them() -> None:
    first = known(seg("a", plain(0, 9)))
    assert gaps_between([first, known(seg("b", plain(20, 29)))]) == (Gap(10, 19, explained=False),)
    log_began_there = known(seg("b", plain(20, 29), checkpoint=((0, 20),)))
    assert gaps_between([first, log_began_there]) == (Gap(10, 19, explained=True),)


def test_overlaps_and_deleted_segments_cover_and_withdrawn_ones_do_not() -> None:
    a, c = known(seg("a", plain(0, 9))), known(seg("c", plain(20, 29)))
    assert gaps_between([a, known(seg("b", plain(5, 25))), c]) == ()
    assert gaps_between([a, known(seg("b", plain(10, 19), state=SegmentState.DELETED)), c]) == ()
    assert gaps_between([a, known(seg("b", plain(10, 19), state=SegmentState.WITHDRAWN)), c]) != ()
    assert gaps_between([known(seg("z", plain(70, 79)))]) == ()  # below the first one lies retention


def test_below_the_lowest_live_segment_and_the_floor_nothing_is_missing() -> None:
    """Tombstones are reclaimed in any order, a topic's segments deleted in any."""
    gone = known(seg("a", plain(0, 9), state=SegmentState.DELETED))
    assert gaps_between([gone, known(seg("c", plain(20, 29)))]) == ()
    left = [known(seg("a", plain(0, 9))), known(seg("c", plain(20, 29)))]
    assert gaps_between(left, 20) == (Gap(10, 19, explained=True),)
    assert gaps_between(left, 19) == (Gap(10, 19, explained=False),)


def test_rows_below_the_lowest_live_segment() -> None:
    """A lost index and one that retention took differ by the floor, by told log starts, and by what is left of it."""
    live, files = (
        known(seg("c", plain(20, 29))),
        [LiveFile(path="f", first=0, last=19, runs=None, partition=0, rows=20)],
    )
    lost = (Gap(0, 19, explained=False),)
    state = published_to(30)
    assert rows_below([live], state, files) == lost
    assert only([live], state, files=files).gaps == lost
    assert rows_below([live], replace(state, floor=20), files) == (), "an archive's"
    told = known(seg("c", plain(20, 29), checkpoint=((0, 20),)))
    assert rows_below([told], state, files) == (), "Kafka's log began there"
    for kind in (SegmentState.DELETED, SegmentState.WITHDRAWN):
        assert rows_below([live, known(seg("a", plain(0, 19), state=kind))], state, files) == ()
    assert rows_below([live], state, [LiveFile(path="f", first=20, last=29, runs=None, partition=0, rows=10)]) == ()


def test_rows_inside_of_a_merged_file_are_known_where_every_offset_has_one() -> None:
    live, gone = known(seg("c", plain(20, 29))), known(seg("a", plain(0, 9), state=SegmentState.DELETED))
    merged = LiveFile(path="f", first=0, last=29, runs=None, partition=0, rows=30)
    assert rows_below([gone, live], published_to(30), [merged]) == (Gap(10, 19, explained=False),)
    assert rows_below([live], replace(published_to(30), floor=10), [merged]) == (Gap(10, 19, explained=False),)
    assert rows_below([gone, live], published_to(30), [replace(merged, rows=29)]) == (), "perhaps none is there"


def test_gaps_are_not_looked_for_in_half_a_listing() -> None:
    segments = [known(seg("a", plain(0, 9))), known(seg("c", plain(20, 29)))]
    assert only(segments, published_to(30)).gaps
    assert not only(segments, published_to(30), complete=False).gaps


def test_withheld_batches_are_counted_by_cause() -> None:
    segments = [
        known(seg("a", plain(0, 9)), counts=[(Cause.BAD_CRC, 2), (Cause.UNDECODABLE, 1)]),
        known(seg("b", plain(10, 19)), counts=[(Cause.BAD_CRC, 3)]),
        known(seg("c", plain(20, 29)), counts=[(Cause.INTERNAL, 4)]),
        known(seg("d", plain(30, 39), state=SegmentState.DELETED), counts=[(Cause.BAD_CRC, 9)]),
    ]
    found = withheld(segments)
    assert found.batches == {"bad_crc": 5, "undecodable": 1}
    assert found.quarantined_key == segments[1].listed.key
    assert (found.verbatim, found.verbatim_key, found.newest_ms) == (1, segments[2].listed.key, 20_000)
    assert withheld(segments[3:]) == Withheld(batches={}, quarantined_key=None, verbatim=0, verbatim_key=None)


def test_segments_left_without_rows_by_a_rule_are_counted_unless_they_have_no_bytes() -> None:
    kept = replace(known(seg("a", plain(0, 9)), rows=False), withheld=True)
    assert kept.counts is not None
    empty = replace(kept, counts=replace(kept.counts, source_bytes=0))
    failed = replace(known(seg("b", plain(10, 19)), counts=[(Cause.INTERNAL, 1)]), withheld=True)
    deleted = replace(known(seg("c", plain(20, 29), state=SegmentState.DELETED)), withheld=True)
    found = withheld([kept, empty, failed, deleted])
    assert (found.by_rule, found.verbatim) == (1, 1)


def test_batches_are_not_read_when_nothing_waits() -> None:
    segment = seg("a", B(0, 9))

    def refuse() -> NoReturn:
        raise AssertionError("batches were read")

    only([known(replace(segment, load=refuse))], published_to(10))
