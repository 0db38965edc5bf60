"""What one run reads: everything once, in any portions; and what a table may change below a projection's frontier."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from iceberg_catalog.limits import EVENTS_KEPT
from iceberg_catalog.plan.decide import NEVER
from iceberg_catalog.plan.types import LiveFile, PartState, remembered
from repartition.run.drift import drift
from repartition.run.frontier import Frontier, Position
from repartition.run.read_plan import Range, any_of, first_live, plan_reading, position_at

TOPIC_ID = b"\7" * 16
NOTHING = Frontier(TOPIC_ID)


def file(partition: int, first: int, last: int, size: int = 100) -> LiveFile:
    return LiveFile(
        path=f"p{partition}-{first}",
        first=first,
        last=last,
        runs=((0, first),),
        partition=partition,
        max_timestamp_ms=None,
        size_bytes=size,
    )


def state(frontier: int, *lineage: tuple[int, int]) -> PartState:
    return PartState(frontier=frontier, floor=0, lineage=lineage or ((0, 0),), known_end=frontier)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[int, PartState], list[LiveFile]]:
    states: dict[int, PartState] = {}
    files: list[LiveFile] = []
    for partition in draw(st.sets(st.integers(0, 9), max_size=4)):
        edges = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=8)))
        files += [
            file(partition, low, high - 1, draw(st.integers(0, 500)))
            for low, high in pairwise(edges)
            if draw(st.booleans())
        ]
        states[partition] = state(edges[-1] + draw(st.integers(0, 3)))
    return states, files


@given(tables(), st.integers(0, 700) | st.none())
def test_every_offset_is_read_once_in_whatever_portions(
    table: tuple[dict[int, PartState], list[LiveFile]], max_bytes: int | None
) -> None:
    states, files = table
    frontier, read = NOTHING, dict.fromkeys(states, 0)
    for _ in range(200):
        made = plan_reading(frontier, states, files, max_bytes)
        for item in made.ranges:
            assert item.start == read[item.partition] < item.end
            read[item.partition] = item.end
            inside = [f for f in files if f.partition == item.partition and f.last >= item.start and f.first < item.end]
            assert all(item.start <= f.first and f.last < item.end for f in inside), "a file is never read in part"
        assert (made.after != frontier) == bool(made.ranges)
        unread = {n: item.next for n, item in made.after.positions.items()}
        assert made.left_offsets == sum(max(0, item.frontier - unread.get(n, 0)) for n, item in states.items())
        left = [f for f in files if unread.get(f.partition, 0) <= f.first < states[f.partition].frontier]
        assert made.left_bytes == sum(f.size_bytes for f in left)
        if max_bytes is not None and made.size_bytes > max_bytes:
            assert sum(f.size_bytes > 0 for f in files for r in made.ranges if _within(f, r)) == 1
        frontier = made.after
        if made.complete:
            break
    assert read == {number: max(item.frontier, 0) for number, item in states.items()}
    assert plan_reading(frontier, states, files, max_bytes).after == frontier


def _within(item: LiveFile, where: Range) -> bool:
    return item.partition == where.partition and where.start <= item.first < where.end


def test_what_is_read_again_is_read_in_one_run() -> None:
    files = [file(0, first, first + 9) for first in range(0, 50, 10)] + [file(1, 0, 9)]
    made = plan_reading(at(35), {0: state(50), 1: state(10)}, files, 1, {0: 12})
    assert made.ranges == (Range(0, 12, 40),), "up to where the projection was, in whole files"
    assert (made.size_bytes, made.complete) == (300, False)
    assert plan_reading(at(35), {0: state(50), 1: state(10)}, files, 1, {0: NEVER}).ranges == (Range(0, 35, 40),)


def test_rows_are_those_of_the_files_and_never_more_than_offsets_are_read() -> None:
    files = [
        LiveFile(path="a", first=0, last=9, runs=((0, 0),), partition=0, max_timestamp_ms=None, size_bytes=100, rows=7),
        LiveFile(
            path="b", first=10, last=29, runs=((0, 10),), partition=0, max_timestamp_ms=None, size_bytes=100, rows=20
        ),
    ]
    assert plan_reading(NOTHING, {0: state(30)}, files, None).rows == 27
    assert plan_reading(NOTHING, {0: state(30)}, files, 100).rows == 7
    assert plan_reading(at(25), {0: state(30)}, files, None).rows == 5
    assert plan_reading(at(30), {0: state(30)}, files, None).rows == 0


def test_partitions_take_turns() -> None:
    files = [file(p, n * 10, n * 10 + 9) for p in (0, 1) for n in range(5)]
    made = plan_reading(NOTHING, {0: state(50), 1: state(50)}, files, 400)
    assert made.ranges == (Range(0, 0, 20), Range(1, 0, 20))
    assert (made.size_bytes, made.complete) == (400, False)


def test_offsets_without_rows_are_passed() -> None:
    made = plan_reading(NOTHING, {0: state(50)}, [], None)
    assert made.ranges == (Range(0, 0, 50),)
    assert made.after.positions[0].next == 50


def test_a_condition_that_statistics_can_prune_by() -> None:
    made = plan_reading(NOTHING, {0: state(5), 3: state(7)}, [], None)
    assert made.condition() == (
        "(_kafka_partition < 3 AND (_kafka_partition = 0 AND _kafka_offset >= 0 AND _kafka_offset < 5)"
        " OR _kafka_partition >= 3 AND (_kafka_partition = 3 AND _kafka_offset >= 0 AND _kafka_offset < 7))"
    )
    assert plan_reading(NOTHING, {}, [], None).condition() == "false"


@given(st.dictionaries(st.integers(0, 40), st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_the_condition_holds_in_the_ranges_and_nowhere_else(ends: dict[int, tuple[int, int]]) -> None:
    ranges = [Range(partition, *bounds) for partition, bounds in sorted(ends.items())]
    text = any_of(ranges).replace(" = ", " == ").replace("AND", "and").replace("OR", "or").replace("false", "False")
    for partition in (*ends, 41):
        for offset in range(10):
            start, end = ends.get(partition, (0, 0))
            found = eval(text, {"_kafka_partition": partition, "_kafka_offset": offset})
            assert found == (start <= offset < end)


def test_a_condition_on_a_thousand_partitions_is_ten_comparisons_deep() -> None:
    text = any_of([Range(n, 0, 5) for n in range(1000)])
    depth = deepest = 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        deepest = max(deepest, depth)
    assert deepest == 11


def test_the_position_names_the_epoch_of_the_last_offset_read() -> None:
    told = state(10, (2, 0), (5, 7))
    assert position_at(7, told) == Position(2, 7)
    assert position_at(8, told) == Position(5, 8)
    assert position_at(0, told) == Position(-1, 0)


# What the table changes below


def at(next_offset: int, epoch: int = 0, rewinds: int = 0, repairs: int = 0) -> Frontier:
    return Frontier(TOPIC_ID, {0: Position(epoch, next_offset, rewinds, repairs)})


def test_a_table_that_only_grew_has_not_drifted() -> None:
    found = drift(at(10), {0: state(50, (0, 0), (1, 10)), 1: state(3)})
    assert (found.rewound, found.repaired) == ({}, {})


def test_another_epoch_below_the_frontier_is_a_rewind_to_where_it_began() -> None:
    assert drift(at(10), {0: state(50, (0, 0), (1, 6))}).rewound == {0: 6}


def test_a_rewind_that_no_epoch_shows_is_known_by_its_record() -> None:
    """A transaction ended otherwise after an unclean election: the rows before the election go too."""
    told = PartState(frontier=50, floor=0, lineage=((0, 0), (1, 10)), known_end=50, rewinds=((1, 4),))
    assert drift(at(10), {0: told}).rewound == {0: 4}
    assert drift(at(10, rewinds=1), {0: told}).rewound == {}
    assert drift(at(4), {0: told}).rewound == {}


def test_rows_that_came_late_are_repaired_from_there() -> None:
    told = PartState(frontier=50, floor=0, lineage=((0, 0),), known_end=50, repairs=((1, 4), (2, 30)))
    assert drift(at(10), {0: told}).repaired == {0: 4}
    assert drift(at(40, repairs=1), {0: told}).repaired == {0: 30}
    assert drift(at(10, repairs=2), {0: told}).repaired == {}


def test_what_is_not_remembered_any_more_may_have_been_anywhere() -> None:
    events: tuple[tuple[int, int], ...] = ()
    for offset in range(EVENTS_KEPT + 2):
        events = remembered(events, 20 + offset)
    told = PartState(frontier=50, floor=0, lineage=((0, 0),), known_end=50, rewinds=events)
    assert drift(at(40, rewinds=1), {0: told}).rewound == {0: 0}
    assert drift(at(40, rewinds=2), {0: told}).rewound == {0: 22}


def test_a_table_that_was_made_anew_counts_from_the_beginning() -> None:
    told = PartState(frontier=50, floor=0, lineage=((0, 0),), known_end=50, rewinds=((1, 4),), repairs=((1, 5),))
    found = drift(at(10, rewinds=2, repairs=3), {0: told, 1: state(3)})
    assert (found.rewound, found.repaired) == ({0: 4}, {0: 5})
    found = drift(at(10, rewinds=2, repairs=3), {})
    assert (found.rewound, found.repaired) == ({}, {})


def test_what_retention_took_before_it_was_read_is_told_once() -> None:
    told = PartState(frontier=50, floor=20, lineage=((0, 0),), known_end=50)
    files = [file(0, 20, 29), file(0, 30, 49)]
    made = plan_reading(at(5), {0: told}, files, 1)
    assert (made.lost, made.after.positions[0].next) == ({0: (5, 20)}, 30)
    assert plan_reading(made.after, {0: told}, files, 1).lost == {}
    assert plan_reading(at(5), {0: told}, [file(0, 8, 29)], None).lost == {0: (5, 8)}, "what is held is read"
    assert plan_reading(at(5), {0: told}, [file(0, 0, 29)], None).lost == {}
    assert plan_reading(at(5), {0: PartState(frontier=20, floor=20)}, [], None).lost == {0: (5, 20)}, "nothing is left"
    assert plan_reading(at(20), {0: told}, [], None).lost == {}
    assert plan_reading(at(5), {0: PartState(frontier=50, floor=5)}, [file(0, 9, 49)], None).lost == {}, (
        "offsets without rows"
    )
    assert plan_reading(at(30), {0: told}, files, None, {0: 10}).lost == {0: (10, 20)}


def test_a_partition_whose_turn_has_not_come_tells_nothing_yet() -> None:
    states = {0: state(10), 1: PartState(frontier=10, floor=4)}
    files = [file(0, 0, 9), file(1, 4, 9)]
    made = plan_reading(NOTHING, states, files, 1)
    assert (made.lost, made.after.positions[1].next) == ({}, 0)
    assert plan_reading(made.after, states, files, 1).lost == {1: (0, 4)}


def test_the_first_row_from_an_offset_on() -> None:
    files = [file(0, 5, 9), file(1, 0, 40), file(0, 20, 29)]
    assert [first_live(0, offset, files) for offset in (0, 5, 7, 9, 10, 29)] == [5, 5, 7, 9, 20, 29]
    assert first_live(0, 30, files) == NEVER


def test_reading_again_goes_back_even_where_nothing_is_left() -> None:
    made = plan_reading(at(10), {0: state(4)}, [], None, {0: 4})
    assert (made.ranges, made.after.positions[0]) == ((), Position(0, 4))
    made = plan_reading(at(10), {0: state(30)}, [file(0, 0, 19), file(0, 20, 29)], 100, {0: 4})
    assert (made.ranges, made.after.positions[0]) == ((Range(0, 4, 20),), Position(0, 20))
