"""Each of the demo's checks can fail, and one failure fails the demo."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from repartition.advise.picture import draw
from repartition.advise.report import AdviceReport, Figures, QueryReport, TableReport
from repartition.advise.report import Answer as Needed
from tierberg.demo import verdicts
from tierberg.demo.both_worlds import kafka_row, show_columns, show_layouts, show_side_by_side
from tierberg.demo.checks import DemoSummary, mib
from tierberg.demo.consume import ReadBack
from tierberg.demo.engines import Engine, EngineAnswer, Row, show, show_once
from tierberg.demo.events import Event
from tierberg.demo.ledger import Ledger
from tierberg.demo.projection import Comparison
from tierberg.demo.queries import ONE_DAY
from tierberg.demo.verdicts import (
    RemoteReads,
    judge_answers,
    judge_columns,
    judge_layouts,
    judge_ledgers,
    judge_origin,
    judge_projection,
    judge_reading,
    judge_records,
)

SAMPLE = Row(partition=1, offset=5, timestamp_ms=1000, key=b"k", value=b'{"a":[1]}', headers=(("h", None),))
ENGINE = Engine(
    name="Spark",
    answers=[EngineAnswer("SELECT 1", ["a"], [(1,)])],
    rows=10,
    checksum=99,
    columns=77,
    errors=0,
    sample=SAMPLE,
)
TYPES = {"a": "int", "b": "double"}
READ = ReadBack(records=10, last_offset={0: 9}, checksum=99)
ORIGIN = RemoteReads({0: 10}, {0: 12}, broker_bytes=100, bridge_bytes=120)


@pytest.fixture
def summary() -> DemoSummary:
    return DemoSummary(console=Console(file=io.StringIO(), width=200), verbose=True)


def shown(summary: DemoSummary) -> str:
    file = summary.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_nothing_checked_is_not_passed(summary: DemoSummary) -> None:
    assert not summary.passed


@pytest.fixture(autouse=True)
def ten_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "FLIGHTS", 10)


def judge_all(summary: DemoSummary, spark: Engine, duck: Engine) -> None:
    judge_answers(summary, {"flights": [spark, duck], "flights_avro": [spark]})
    judge_records(summary, "flights", READ, SAMPLE, [spark, duck])
    judge_columns(summary, "flights", TYPES, TYPES, 77, [spark, duck])


def test_all_held(summary: DemoSummary) -> None:
    judge_reading(summary, "reading", 10, READ)
    judge_origin(summary, "flights", [READ], ORIGIN)
    judge_all(summary, ENGINE, replace(ENGINE, name="DuckDB"))
    assert summary.passed
    assert len(summary.checks) == 7


@pytest.mark.parametrize(
    "origin",
    [
        replace(ORIGIN, local_starts_before={0: 9}),
        replace(ORIGIN, local_starts_after={0: 5}),
        replace(ORIGIN, broker_bytes=0),
        replace(ORIGIN, bridge_bytes=99),
    ],
)
def test_a_record_that_may_be_local_fails(summary: DemoSummary, origin: RemoteReads) -> None:
    judge_origin(summary, "flights", [READ], origin)
    assert not summary.passed


def test_reading_nothing_proves_nothing(summary: DemoSummary) -> None:
    judge_origin(summary, "flights", [ReadBack()], ORIGIN)
    assert not summary.passed


@pytest.mark.parametrize("read", [replace(READ, records=9), replace(READ, differing=1, differences=["[offset 3]"])])
def test_reading_too_little_or_wrong_fails(summary: DemoSummary, read: ReadBack) -> None:
    judge_reading(summary, "reading", 10, read)
    assert not summary.passed
    assert all(sentence in shown(summary) for sentence in read.differences)


@pytest.mark.parametrize(
    ("other", "failing"),
    [
        (replace(ENGINE, rows=9), 2),  # as records and as columns
        (replace(ENGINE, checksum=98), 1),
        (replace(ENGINE, columns=78), 1),
        (replace(ENGINE, errors=1), 1),
        (replace(ENGINE, answers=[EngineAnswer("SELECT 1", ["a"], [(2,)])]), 1),
        (replace(ENGINE, sample=replace(SAMPLE, key=None)), 1),
    ],
)
def test_an_engine_that_differs_fails(summary: DemoSummary, other: Engine, failing: int) -> None:
    judge_all(summary, ENGINE, other)
    assert [check.held for check in summary.checks].count(False) == failing


def test_the_tables_must_give_the_same_answers(summary: DemoSummary) -> None:
    other = replace(ENGINE, answers=[EngineAnswer("SELECT 1", ["a"], [(2,)])])
    judge_answers(summary, {"flights": [ENGINE, ENGINE], "flights_avro": [other, other]})
    assert not summary.passed


@pytest.mark.parametrize(
    "projection",
    [
        replace(ENGINE, rows=9),
        replace(ENGINE, rows=11),
        replace(ENGINE, checksum=98),
        replace(ENGINE, columns=78),
        replace(ENGINE, errors=1),
        replace(ENGINE, answers=[EngineAnswer("SELECT 1", ["a"], [(2,)])]),
        replace(ENGINE, answers=[]),
    ],
)
def test_a_projection_that_differs_fails(summary: DemoSummary, projection: Engine) -> None:
    judge_projection(summary, READ, 77, ENGINE, ENGINE)
    assert summary.passed
    judge_projection(summary, READ, 77, ENGINE, projection)
    assert [check.held for check in summary.checks].count(False) == 1


def test_answers_of_nothing_prove_nothing(summary: DemoSummary) -> None:
    empty = replace(ENGINE, answers=[EngineAnswer("SELECT 1", ["a"], [])])
    judge_projection(summary, READ, 77, empty, empty)
    assert not summary.passed


MANY = Figures(files=4, data_bytes=3000, rows=900, counted=True, result_rows=3, first_s=0.5, median_s=0.25)
FEW = replace(MANY, files=1, data_bytes=1000)


def comparison(folder: Path, own: Needed, projection: Needed, name: str = ONE_DAY) -> Comparison:
    whole = QueryReport("everything", "SELECT 2", (Needed("own", MANY), Needed("projection", MANY)))
    tables = (
        TableReport(name="own", kind="topic", whole=MANY),
        TableReport(name="projection", kind="append", whole=MANY),
    )
    report = AdviceReport(
        topic="flights",
        at_ms=0,
        ran=True,
        tables=tables,
        queries=(whole, QueryReport(name, "SELECT 1", (own, projection))),
    )
    return Comparison(report, folder / "advise.png", draw(report, folder / "advise.png"))


def test_a_projection_that_needs_less_holds(summary: DemoSummary, tmp_path: Path) -> None:
    judge_layouts(summary, comparison(tmp_path, Needed("own", MANY), Needed("projection", FEW)))
    assert summary.passed
    assert "3.0 times fewer: 4 files, 2.9 KiB; 1 file, 1000 B" in shown(summary)


@pytest.mark.parametrize(
    ("own", "projection", "name"),
    [
        (Needed("own", MANY), Needed("projection", replace(FEW, data_bytes=1001)), ONE_DAY),
        (
            Needed("own", MANY),
            Needed("projection", replace(FEW, data_bytes=999, delete_files=1, delete_bytes=2)),
            ONE_DAY,
        ),
        (Needed("own", MANY), Needed("projection", replace(FEW, result_rows=2)), ONE_DAY),
        (Needed("own", MANY), Needed("projection", replace(FEW, files=0, data_bytes=0)), ONE_DAY),
        (Needed("own", MANY), Needed("projection", error="[no] such column"), ONE_DAY),
        (Needed("own", error="ended after 1 s"), Needed("projection", FEW), ONE_DAY),
        (Needed("own", MANY), Needed("projection", FEW), "another"),
    ],
)
def test_a_projection_that_gains_nothing_fails(
    summary: DemoSummary, tmp_path: Path, own: Needed, projection: Needed, name: str
) -> None:
    judge_layouts(summary, comparison(tmp_path, own, projection, name))
    assert [check.held for check in summary.checks] == [False, True]
    assert all(answer.error in shown(summary) for answer in (own, projection) if answer.error)


@pytest.mark.parametrize("damage", ["gone", "empty", "text", "size"])
def test_a_picture_that_is_none_fails(summary: DemoSummary, tmp_path: Path, damage: str) -> None:
    found = comparison(tmp_path, Needed("own", MANY), Needed("projection", FEW))
    if damage == "gone":
        found.picture.unlink()
    elif damage == "size":
        found = replace(found, pixels=(found.pixels[0], found.pixels[1] + 1))
    else:
        found.picture.write_bytes(b"" if damage == "empty" else b"an error, longer than the head of a picture")
    judge_layouts(summary, found)
    assert [check.held for check in summary.checks] == [True, False]


@pytest.mark.parametrize("types", [{}, {"a": "string", "b": "double"}, {"a": "int"}, {**TYPES, "c": "int"}])
def test_columns_of_other_types_fail(summary: DemoSummary, types: dict[str, str]) -> None:
    judge_columns(summary, "flights", types, TYPES, 77, [ENGINE])
    assert not summary.passed
    assert "expected" in shown(summary)


@pytest.mark.parametrize("lost", ["committed", "aborted", "one topic"])
def test_what_was_not_acknowledged_fails(summary: DemoSummary, lost: str) -> None:
    def ledger(committed: int, aborted: int) -> Ledger:
        filled = Ledger()
        for offset in range(committed + aborted):
            filled.add(
                offset,
                Event(partition=0, key=None, value=b"", headers=(), timestamp_ms=0),
                committed=offset < committed,
            )
        return filled

    judge_ledgers(summary, {"flights": ledger(10, 1), "flights_avro": ledger(10, 2)})
    assert summary.passed
    wrong = {"committed": ledger(9, 1), "aborted": ledger(10, 0), "one topic": ledger(0, 0)}[lost]
    judge_ledgers(summary, {"flights": ledger(10, 1), "flights_avro": wrong})
    assert not summary.passed


def test_steps_are_timed_even_when_they_fail(summary: DemoSummary) -> None:
    with pytest.raises(RuntimeError), summary.step("one"):
        raise RuntimeError
    assert summary.steps[0][0] == "one"


def test_the_table_has_every_line(summary: DemoSummary) -> None:
    summary.figure("records", "1,000")
    summary.check("held", True, "fine")
    summary.check("broken", False, "so and so")
    with summary.step("work"):
        pass
    summary.show()
    text = shown(summary)
    assert all(part in text for part in ("records", "1,000", "✓ fine", "✗ so and so", "work", "all steps"))


def test_without_verbose_only_what_failed_is_shown() -> None:
    summary = DemoSummary(console=Console(file=io.StringIO(), width=200))
    summary.figure("records", "1,000")
    summary.check("held", True, "fine")
    summary.detail.print("a detail")
    assert shown(summary) == ""
    summary.check("broken", False, "so and so")
    assert shown(summary) == "✗ broken: so and so\n"
    summary.show()
    assert shown(summary).splitlines()[1:] == ["✗ 1 of 2 checks held, 0 s"]


def test_an_answer_that_all_give_is_shown_once(summary: DemoSummary) -> None:
    answer = EngineAnswer("SELECT n", ["n"], [(1,)])
    show_once(summary.console, [("Spark", answer), ("DuckDB", replace(answer, statement="SELECT m"))])
    assert shown(summary).count("┃ n ┃") == 1
    assert "Spark = DuckDB" in shown(summary)
    show_once(summary.console, [("Spark", answer), ("DuckDB", replace(answer, rows=[(2,)]))])
    assert [line for line in shown(summary).splitlines()[-12:] if line in {"Spark", "DuckDB"}] == ["Spark", "DuckDB"]


def test_what_each_question_opens_is_a_line(summary: DemoSummary, tmp_path: Path) -> None:
    show_layouts(summary.console, comparison(tmp_path, Needed("own", MANY), Needed("projection", error="gone")).report)
    (line,) = [line for line in shown(summary).splitlines() if ONE_DAY in line]
    assert "4 files, 2.9 KiB" in line
    assert "gone" not in line


def test_the_record_is_shown_as_it_is(summary: DemoSummary) -> None:
    event = Event(partition=1, key=b"k", value=b'{"a":"[bold]"}', headers=(("h", None),), timestamp_ms=1000)
    show_side_by_side(summary.console, kafka_row(1, 5, event), [ENGINE])
    assert '{"a":"[bold]"}' in shown(summary)
    assert "Spark" in shown(summary)


def test_columns_are_shown_by_table(summary: DemoSummary) -> None:
    show_columns(summary.console, {"flights": {"a": "long"}, "flights_avro": {"a": "int", "b": "timestamptz"}})
    text = shown(summary)
    assert all(part in text for part in ("flights_avro", "long", "int", "timestamptz"))


def test_statement_and_rows_are_shown(summary: DemoSummary) -> None:
    show(summary.console, "Spark", ENGINE.answers[0])
    assert "SELECT 1" in shown(summary)


def test_sizes() -> None:
    assert mib(3 * 2**20 + 2**19) == "3.5 MiB"
