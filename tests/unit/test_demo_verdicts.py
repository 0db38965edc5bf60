"""Each of the demo's checks can fail, and one failure fails the demo."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from demo.both_worlds import kafka_row, show_side_by_side
from demo.checks import Summary, mib
from demo.consume import ReadBack
from demo.engines import Answer, Engine, Row, show
from demo.events import Event
from demo.verdicts import RemoteReads, judge_engines, judge_origin, judge_reading

SAMPLE = Row(1, 5, 1000, b"k", b'{"a":[1]}', (("h", None),))
ENGINE = Engine("Spark", [Answer("SELECT 1", ["a"], [(1,)])], 10, 99, SAMPLE)
READ = ReadBack(records=10, last_offset={0: 9}, checksum=99)
ORIGIN = RemoteReads({0: 10}, {0: 12}, broker_bytes=100, bridge_bytes=120)


@pytest.fixture
def summary() -> Summary:
    return Summary(Console(file=io.StringIO(), width=200))


def shown(summary: Summary) -> str:
    file = summary.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_nothing_checked_is_not_passed(summary: Summary) -> None:
    assert not summary.passed


def test_all_held(summary: Summary) -> None:
    judge_reading(summary, "reading", 10, READ)
    judge_origin(summary, [READ], ORIGIN)
    judge_engines(summary, READ, SAMPLE, [ENGINE, replace(ENGINE, name="DuckDB")])
    assert summary.passed
    assert len(summary.checks) == 6


@pytest.mark.parametrize(
    "origin",
    [
        replace(ORIGIN, local_starts_before={0: 9}),
        replace(ORIGIN, local_starts_after={0: 5}),
        replace(ORIGIN, broker_bytes=0),
        replace(ORIGIN, bridge_bytes=99),
    ],
)
def test_a_record_that_may_be_local_fails(summary: Summary, origin: RemoteReads) -> None:
    judge_origin(summary, [READ], origin)
    assert not summary.passed


def test_reading_nothing_proves_nothing(summary: Summary) -> None:
    judge_origin(summary, [ReadBack()], ORIGIN)
    assert not summary.passed


@pytest.mark.parametrize("read", [replace(READ, records=9), replace(READ, differing=1, differences=["[offset 3]"])])
def test_reading_too_little_or_wrong_fails(summary: Summary, read: ReadBack) -> None:
    judge_reading(summary, "reading", 10, read)
    assert not summary.passed
    assert all(sentence in shown(summary) for sentence in read.differences)


@pytest.mark.parametrize(
    "other",
    [
        replace(ENGINE, rows=9),
        replace(ENGINE, checksum=98),
        replace(ENGINE, answers=[Answer("SELECT 1", ["a"], [(2,)])]),
        replace(ENGINE, sample=replace(SAMPLE, key=None)),
    ],
)
def test_an_engine_that_differs_fails(summary: Summary, other: Engine) -> None:
    judge_engines(summary, READ, SAMPLE, [ENGINE, other])
    assert [check.held for check in summary.checks].count(False) == 1


def test_steps_are_timed_even_when_they_fail(summary: Summary) -> None:
    with pytest.raises(RuntimeError), summary.step("one"):
        raise RuntimeError
    assert summary.steps[0][0] == "one"


def test_the_table_has_every_line(summary: Summary) -> None:
    summary.figure("records", "1,000")
    summary.check("held", True, "fine")
    summary.check("broken", False, "so and so")
    with summary.step("work"):
        pass
    summary.show()
    text = shown(summary)
    assert all(part in text for part in ("records", "1,000", "✓ fine", "✗ so and so", "work", "all steps"))


def test_the_record_is_shown_as_it_is(summary: Summary) -> None:
    event = Event(1, b"k", b'{"a":"[bold]"}', (("h", None),), 1000)
    show_side_by_side(summary.console, kafka_row(1, 5, event), [ENGINE])
    assert '{"a":"[bold]"}' in shown(summary)
    assert "Spark" in shown(summary)


def test_statement_and_rows_are_shown(summary: Summary) -> None:
    show(summary.console, "Spark", ENGINE.answers[0])
    assert "SELECT 1" in shown(summary)


def test_sizes() -> None:
    assert mib(3 * 2**20 + 2**19) == "3.5 MiB"
