"""`tierberg advise` with real Spark: its figures are those of the tables' own metadata."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from repartition.advise.advise import AdviseOptions, asked_tables, survey
from repartition.advise.picture import draw
from repartition.advise.queries import parse_queries
from repartition.advise.report import AdviceReport, Answer, Figures
from repartition.advise.text import as_text
from repartition.run.source import find_source
from repartition.spark.targets import Target
from rsm_bridge.storage.projections.hold import declared_projections
from tests.projections.projection_support import PROJECTION, TOPIC, ProjectionWorld, Sent, projection_world, sent
from tierberg.cli import app

BOTH = (("kafka", TOPIC), PROJECTION)
RULE = {"partition_by": ["bucket(4, id)", "who"], "sort_by": ["id"]}
QUERIES = """
-- name: one key
SELECT * FROM {table} WHERE id = 7 AND who = 'w1';
-- name: twice
SELECT count(a.amount) FROM {table} a JOIN {table} b ON a.id = b.amount WHERE a.id = 8 AND b.who = 'w1';
-- name: subquery
SELECT id FROM {table} WHERE amount = (SELECT max(amount) FROM {table} WHERE id = 9 AND who = 'w0');
-- name: metadata
SELECT count(*) FROM {table};
-- name: pruned while it runs
SELECT count(a.amount) FROM {table} a JOIN (SELECT id, who FROM {table} WHERE amount = 14) b
ON a.id = b.id AND a.who = b.who;
-- name: no such column
SELECT nope FROM {table};
-- name: does not parse
SELEC {table};
-- name: no query
DELETE FROM {table};
"""


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with projection_world(spark, tmp_path_factory.mktemp("advise"), RULE) as made:
        for base in (0, 100, 200):
            made.send([record(n) for n in range(base, base + 100)])
        made.run()
        yield made


def record(number: int) -> Sent:
    """Ids are all over the topic, so that every file of its own table may have any of them."""
    key = number * 37 % 300
    return sent(key, {"id": key, "who": f"w{key % 3}", "amount": 2 * key})


def ask(world: ProjectionWorld, text: str = QUERIES, **options: Any) -> AdviceReport:
    own = world.settings.catalog.name
    projections = declared_projections(world.settings, TOPIC, TOPIC)
    target = Target(world.catalog, own)
    tables = asked_tables(find_source(world.backend, TOPIC), target, projections, {own: target})
    return survey(
        world.spark,
        tables,
        parse_queries(text),
        AdviseOptions(topic=TOPIC, queries=Path("-"), **options),
        lambda _line: None,
    )


def answers(report: AdviceReport, name: str) -> tuple[Answer, ...]:
    (found,) = [query.answers for query in report.queries if query.name == name]
    return found


def figures(report: AdviceReport, name: str) -> tuple[Figures, Figures]:
    original, projection = answers(report, name)
    assert original.figures is not None
    assert projection.figures is not None, projection.error
    return original.figures, projection.figures


def expected(world: ProjectionWorld, name: tuple[str, ...], condition: str) -> tuple[int, int, int]:
    """Files, bytes and rows that PyIceberg plans."""
    files = [task.file for task in world.catalog.load_table(name).scan(row_filter=condition).plan_files()]
    return len(files), sum(file.file_size_in_bytes for file in files), sum(file.record_count for file in files)


def told(found: Figures) -> tuple[int, int, int]:
    return found.files, found.data_bytes, found.rows


def test_planned_figures_are_those_of_the_metadata(world: ProjectionWorld) -> None:
    report = ask(world)
    whole = [expected(world, name, "true") for name in BOTH]
    assert [told(table.whole or Figures()) for table in report.tables] == whole
    assert whole[0][0] == 3
    assert whole[1][0] >= 8
    for name, conditions in {
        "one key": ("id = 7 and who = 'w1'",),
        "twice": ("id = 8", "amount = 8 and who = 'w1'"),
        "subquery": ("true", "id = 9 and who = 'w0'"),
        "metadata": (),
    }.items():
        for found, table in zip(figures(report, name), BOTH, strict=True):
            each = [expected(world, table, condition) for condition in conditions]
            assert told(found) == tuple(sum(column) for column in zip((0, 0, 0), *each, strict=True)), name
    original, projection = figures(report, "one key")
    assert (original.files, projection.files) == (3, 1)
    assert projection.size_bytes < original.size_bytes
    assert (original.counted, original.median_s, original.result_rows) == (False, None, None)


def test_the_command(world: ProjectionWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repartition.advise.advise.open_backend", lambda *_, **__: world.backend)
    monkeypatch.setattr("repartition.advise.advise.spark_session", lambda *_: nullcontext(world.spark))
    queries, picture = tmp_path / "q.sql", tmp_path / "p.png"
    queries.write_text("-- name: one\nSELECT * FROM {table} WHERE id = 7 AND who = 'w1'", encoding="utf-8")
    given = ["advise", TOPIC, "--queries", str(queries), "--picture", str(picture)]
    done = CliRunner().invoke(app, [*given, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["queries"][0]["tables"]
    assert [item["figures"]["files"] for item in found] == [3, 1]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    said = CliRunner().invoke(app, given).stdout
    assert said.startswith("topic orders, ")
    assert "300 rows" in said
    unknown = CliRunner().invoke(app, ["advise", "other", *given[2:]])
    assert unknown.exit_code == 2
    assert "topic other has no table" in unknown.stderr


def test_what_fails_is_told_and_the_others_go_on(world: ProjectionWorld) -> None:
    report = ask(world)
    for name, part in {"no such column": "`nope`", "does not parse": "SELEC", "no query": "only SELECT"}.items():
        for answer in answers(report, name):
            assert answer.figures is None
            assert part in str(answer.error), name
    assert world.count(PROJECTION) == 300
    assert world.spark.catalog.listTables() == []
    assert "does not parse" in as_text(report, 150)


def test_run_figures_count_rows_and_time(world: ProjectionWorld, tmp_path: Path) -> None:
    report = ask(world, run=True)
    planned = ask(world)
    for name in ("one key", "twice", "subquery", "metadata"):
        for ran, found in zip(figures(report, name), figures(planned, name), strict=True):
            assert ran.counted
            assert min(ran.first_s or 0, ran.median_s or 0) > 0
            if name != "twice":  # an empty side ends the other one early
                assert (ran.files, ran.data_bytes) == (found.files, found.data_bytes)
            assert ran.rows <= found.rows
    assert [found.result_rows for found in figures(report, "one key")] == [1, 1]
    assert [found.result_rows for found in figures(report, "metadata")] == [1, 1]
    _, early = figures(planned, "pruned while it runs")
    _, late = figures(report, "pruned while it runs")
    assert late.files < early.files, "files that only the run could leave out are left out"
    wide, tall = draw(report, tmp_path / "p.png")
    assert wide > 1000
    assert tall > 300


def test_a_run_that_takes_too_long_is_ended(world: ProjectionWorld) -> None:
    endless = "SELECT count(*) FROM {table} a, {table} b, {table} c, {table} d WHERE a.id + b.id + c.id + d.id < -1"
    (query,) = ask(world, endless, run=True, deadline_s=2.0).queries
    assert [answer.error for answer in query.answers] == ["ended after 2 s", "ended after 2 s"]


def test_suggestions_know_what_is_declared(world: ProjectionWorld) -> None:
    report = ask(world, "SELECT * FROM {table} WHERE amount = 4")
    assert [table for table, _ in report.suggestions] == ["kafka.orders_projection"]
    assert "bucket(16, amount)" in report.suggestions[0][1]


def test_a_projection_that_was_never_filled_is_told(spark: Any, tmp_path: Path) -> None:
    with projection_world(spark, tmp_path, RULE) as world:
        world.send([sent(n, {"id": n, "who": "w", "amount": 1}) for n in range(5)])
        report = ask(world, "SELECT * FROM {table} WHERE id = 1")
        original, projection = answers(report, "q1")
        assert original.figures is not None
        assert projection.error == "has no rows yet: `tierberg repartition` fills it"


def test_delete_files_are_counted(spark: Any, tmp_path: Path) -> None:
    rule = {"mode": "upsert", "key": ["id"], "row_writes": "merge-on-read"}
    with projection_world(spark, tmp_path, rule) as world:
        world.send([sent(n, {"id": n, "who": "w"}) for n in range(50)])
        world.run()
        world.send([sent(n, {"id": n, "who": "again"}) for n in range(5)])
        world.run()
        report = ask(world, "SELECT who FROM {table} WHERE id < 5", run=True)
        table = world.catalog.load_table(PROJECTION)
        sizes = table.inspect.delete_files()["file_size_in_bytes"].to_pylist()
        _, projection = figures(report, "q1")
        assert sizes
        assert (projection.delete_files, projection.delete_bytes) == (len(sizes), sum(sizes))
        assert projection.result_rows == 5
