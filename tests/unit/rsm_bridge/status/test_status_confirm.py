"""An alarm that the first look had and the second one has too, where nothing moved, is one; any other waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rsm_bridge.metrics.progress.facts import Facts, Gap, Problem
from rsm_bridge.status import command as status_command
from rsm_bridge.status.assess import assess
from rsm_bridge.status.causes import CAUSES, CauseCode, Level
from rsm_bridge.status.command import StatusOptions, status
from rsm_bridge.status.confirm import WATCH_SECONDS, confirmed, watch
from rsm_bridge.status.report import NOTHING_ACCEPTED, Accepted
from tests.support.status_facts import (
    DAY,
    HOUR,
    NOW,
    facts,
    kafka,
    kafka_partition,
    kafka_topic,
    pending,
    stored,
    stored_partition,
    table,
)

C = CauseCode
#: Never a matter of the moment: read from settings, from one object that does not change, or from days of waiting.
LASTING = {
    C.STORE_FULL,
    C.STORE_REFUSES,
    C.BROKER_NOT_TIERING,
    C.OTHER_PLUGIN,
    C.ANOTHER_TABLE,
    C.MASS_DELETE,
    C.FOREIGN_FILES,
    C.FOREIGN_COMMITS,
    C.QUARANTINED,
    C.STORED_VERBATIM,
    C.FILES_LEFT_OUT,
    C.COPY_LOSES_ROWS,
    C.COPY_FAILED,
    C.COPY_MAINTENANCE_FAILED,
}


def test_every_cause_that_calls_somebody_is_watched_or_lasting() -> None:
    urgent = {code for code, cause in CAUSES.items() if cause.level is Level.PERSON}
    assert urgent - LASTING <= set(WATCH_SECONDS)
    assert not LASTING & set(WATCH_SECONDS)


def behind(**changes: Any) -> Facts:
    """Closed segments, an hour old by the records' own timestamps."""
    return facts(kafka=pending(**{"end": 100 + 4 * 1100, "pending_ms": NOW - HOUR, **changes}))


def away(**changes: Any) -> Facts:
    return facts(bridge_problem=Problem("unavailable", "connection refused"), **changes)


def codes(found: Facts, after: Facts) -> dict[str, str]:
    report = confirmed(assess(after), assess(found))
    return {str(item.code): item.said for item in report.all_findings() if item.level is Level.PERSON}


def test_a_log_that_was_cut_and_has_grown_again_is_behind() -> None:
    """As far as what the old leader tiered, or further: Kafka's end alone says nothing then."""
    tiered = stored_partition(history=((1, 0), (3, 40)))

    def found(offset: int | None, epoch: int | None, end: int = 100) -> dict[str, str]:
        part = kafka_partition(end=end, newest_offset=offset, newest_epoch=epoch)
        made = facts(stored(tiered), kafka=kafka(kafka_topic(part)))
        return codes(made, made)

    for offset, epoch in ((99, 3), (39, 1), (10, 1), (100, 4), (None, None), (99, None)):
        assert not found(offset, epoch, 101), (offset, epoch)
    assert found(99, 4) == {
        "kafka_behind": "offset 99 is of leader epoch 4 in Kafka's log, and of epoch 3 in what is tiered"
    }
    assert set(found(98, 5, 105)) == {"kafka_behind"}


def test_a_back_fill_of_old_records_has_its_first_copy_within_a_minute() -> None:
    """Its records are years old by their own timestamps, and were produced this minute."""
    part = kafka_partition(
        end=40_000, stable_end=40_000, pending_ms=NOW - 900 * DAY, newest_ms=NOW - 800 * DAY, record_bytes=1000
    )
    before = facts(stored={}, kafka=kafka(kafka_topic(part)))
    assert "copy_stuck" in codes(before, before)
    copied = facts(
        stored(
            stored_partition(tiered_end=2000, publishable_end=2000, tiered_ms=NOW), table=table(frontiers={0: 2000})
        ),
        kafka=before.kafka,
    )
    assert not codes(before, copied)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (away(), facts()),
        (facts(), away()),
        (behind(stable_end=105, stable_ms=NOW - HOUR), behind(stable_end=106, stable_ms=NOW - HOUR)),
        (facts(kafka=kafka(kafka_topic(kafka_partition(has_leader=False)))), facts()),
        (facts(kafka=kafka(kafka_topic(kafka_partition(end=90)))), facts()),
        (
            facts(stored(stored_partition(unpublished_ms=NOW - HOUR), table=table(frontiers={0: 80}))),
            facts(stored(stored_partition(unpublished_ms=NOW - HOUR), table=table(frontiers={0: 90}))),
        ),
        (facts(stored(damaged=(("index/x", Problem("corrupt_object", "x")),))), facts()),
        (
            facts(stored(unindexed={0: Gap(80, 89, explained=False)})),
            facts(stored(unindexed={0: Gap(90, 95, explained=False)})),
        ),
    ],
)
def test_what_passes_or_moves_or_has_just_come_calls_nobody(before: Facts, after: Facts) -> None:
    found = codes(before, after)
    found.pop("copy_stuck", None)
    assert not found


@pytest.mark.parametrize(
    "made",
    [
        away,
        lambda: behind(stable_end=105, stable_ms=NOW - HOUR),
        behind,
        lambda: facts(kafka=kafka(kafka_topic(kafka_partition(has_leader=False)))),
        lambda: facts(stored(damaged=(("index/x", Problem("corrupt_object", "x")),))),
    ],
)
def test_what_stays_is_said(made: Callable[[], Facts]) -> None:
    before = made()
    assert set(codes(before, before)) == {
        str(item.code) for item in assess(before).all_findings() if item.level is Level.PERSON
    }
    assert codes(before, before)


def test_how_long_to_watch() -> None:
    assert watch(assess(facts()), NOTHING_ACCEPTED, 1.0) == (0.0, [])
    assert watch(assess(facts(stored(quarantined={"bad_crc": 1}))), NOTHING_ACCEPTED, 1.0)[0] == 0.0
    assert watch(assess(away()), NOTHING_ACCEPTED, 1.0)[0] == 3.0
    assert watch(assess(away()), Accepted(frozenset({(C.BRIDGE_AWAY, None)})), 1.0)[0] == 0.0
    late = facts(stored(stored_partition(unpublished_ms=NOW - HOUR), table=table(frontiers={0: 80})))
    assert watch(assess(late), NOTHING_ACCEPTED, 1.0)[0] == 10.0
    assert watch(assess(replace(late, publish_interval=20.0)), NOTHING_ACCEPTED, 20.0)[0] == 41.0
    assert watch(assess(behind()), NOTHING_ACCEPTED, 1.0)[0] == 60.0


def looked(
    monkeypatch: pytest.MonkeyPatch, *looks: Facts
) -> tuple[list[float], list[str], Callable[..., tuple[str, bool]]]:
    """The command, over facts that are given one after the other."""
    left, slept, said = list(looks), list[float](), list[str]()
    monkeypatch.setattr(status_command, "gather", lambda *_: left.pop(0))
    monkeypatch.setattr(status_command, "sleep", slept.append)

    def run(folder: Path, **options: Any) -> tuple[str, bool]:
        return status(StatusOptions(data_dir=folder, bridge="none", **options), said.append)

    return slept, said, run


def test_the_command_looks_again_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slept, said, run = looked(monkeypatch, behind(), behind())
    assert run(tmp_path)[1]
    assert slept == [60.0]
    assert said == ["copy_stuck: looking again in 60 s, whether it passes"]


def test_a_restart_of_the_bridge_calls_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slept, _, run = looked(monkeypatch, away(), facts())
    assert not run(tmp_path)[1]
    assert slept == [3.0]


SLOW, DEAD = Problem(C.STORE_SLOW, "none of 9 topics"), Problem("unavailable", "no answer")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (facts(store_failed={"7f": DEAD}), facts(store_problem=DEAD)),
        (facts(store_problem=SLOW), facts(store_problem=DEAD)),
        (facts(store_failed={"7f": DEAD}), facts(stored(table_problem=Problem("unavailable", "denied")))),
    ],
)
def test_a_store_that_fails_in_another_way_fails(before: Facts, after: Facts) -> None:
    """Nobody was needed, it was said, while the store was dead."""
    assert codes(before, after)


def test_a_second_look_that_sees_nothing_is_followed_by_a_third(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slept, said, run = looked(monkeypatch, behind(), facts(store_problem=DEAD), facts(store_problem=DEAD))
    assert run(tmp_path)[1]
    assert slept == [60.0, 3.0]
    assert said[1] == "a server did not answer the second look: looking again in 3 s"
    _, _, run = looked(monkeypatch, behind(), facts(store_problem=DEAD), facts())
    assert not run(tmp_path)[1]


def test_what_two_looks_of_three_have_seen_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store that is away now and then would hide whatever it has lost."""
    damaged = facts(stored(damaged=(("index/x", Problem("corrupt_object", "x")),)))
    _, _, run = looked(monkeypatch, damaged, facts(store_problem=DEAD), damaged)
    text, needed = run(tmp_path)
    assert needed
    assert "ask again" not in text
    moved = [behind(stable_end=end, stable_ms=NOW - HOUR) for end in (105, 106)]
    _, _, run = looked(monkeypatch, moved[0], facts(store_problem=DEAD), moved[1])
    assert not run(tmp_path)[1]


def test_patience_bounds_the_pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slept, _, run = looked(monkeypatch, behind(), behind(), behind())
    assert run(tmp_path, patience=5.0)[1]
    assert slept == [5.0]
    assert run(tmp_path, patience=0.0)[1]
    assert slept == [5.0]


def test_what_needs_nobody_takes_one_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slept, said, run = looked(monkeypatch, facts(stored(quarantined={"bad_crc": 1}), wanted=None))
    assert run(tmp_path)[1]
    assert (slept, said) == ([], [])
