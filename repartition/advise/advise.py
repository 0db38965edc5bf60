"""`tierberg advise`: what queries need of a topic's table and of each of its projections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from iceberg_catalog.connect.redaction import hide
from repartition.advise.queries import Query, parse_queries
from repartition.advise.report import AdviceReport, Answer, QueryReport, TableReport
from repartition.advise.spark_plan import SparkPlan, plan, run
from repartition.advise.suggest import CurrentLayout, PlannedQuery, suggestion
from repartition.errors import RepartitionError
from repartition.limits import ERROR_CHARS_MAX, QUERIES_FILE_BYTES_MAX
from repartition.run.source import Source, find_source
from repartition.run.table import partition_terms
from repartition.run.target import load_projection, quoted
from repartition.spark.session import spark_session
from repartition.spark.targets import Target, open_targets
from rsm_bridge.config.secrets import revealed
from rsm_bridge.storage.backend import open_backend
from rsm_bridge.storage.projections.hold import DeclaredProjection, declared_projections

#: What the bridge to Java puts before an error's own words.
_BRIDGE_SAYS = "An error occurred while calling"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseOptions:
    """Of the command. `deadline_s`: of one run of one query."""

    topic: str
    queries: Path
    topic_id: str | None = None
    run: bool = False
    deadline_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedTable:
    """A table that queries are put to.

    Attributes:
        name: in the report.
        kind: `topic`, or the projection's mode.
        spark_name: of the table in Spark, quoted.
        load: gives the table, None if there is none yet.
        partition_by: as declared; None: as the table has it.
        sort_by: as declared.
    """

    name: str
    kind: str
    spark_name: str
    load: Callable[[], Table | None]
    partition_by: tuple[str, ...] | None = None
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ready:
    """A table as it is asked: a view of its head, by whose name SQL finds it, and its columns."""

    report: TableReport
    view: str
    types: Mapping[str, str]


def advise(
    config: Path | None, data_dir: Path | None, options: AdviseOptions, say: Callable[[str], None]
) -> AdviceReport:
    """Plans or runs the queries on the topic's table and each declared projection.

    Args:
        config: the settings file, None: defaults.
        data_dir: over that of the settings.
        options: what to do.
        say: receives one line before each step.

    Raises:
        SettingsError, CatalogError: settings, store or catalog cannot be opened.
        RepartitionError: `no_queries`, `bad_queries`, `no_source`.
    """
    queries = parse_queries(read_file(options.queries))
    backend = open_backend(config, data_dir, made=True)
    source = find_source(backend, options.topic, options.topic_id)
    projections = declared_projections(backend.settings, source.owner.topic, source.name[-1])
    targets, conf = open_targets(backend, (projection.rule for projection in projections))
    tables = asked_tables(source, targets[backend.settings.catalog.name], projections, targets)
    with spark_session(conf, revealed(backend.settings.repartition.spark)) as session:
        return survey(session, tables, queries, options, say)


def read_file(path: Path) -> str:
    """The text of the file of queries.

    Raises:
        RepartitionError: `no_queries` if it cannot be read; `bad_queries` if it is too long.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(QUERIES_FILE_BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RepartitionError("no_queries", f"the file of queries cannot be read: {error}") from error
    if len(data) > QUERIES_FILE_BYTES_MAX:
        raise RepartitionError("bad_queries", f"{path} is longer than {QUERIES_FILE_BYTES_MAX} bytes")
    return text


def asked_tables(
    source: Source, own: Target, projections: Sequence[DeclaredProjection], targets: Mapping[str, Target]
) -> list[QueriedTable]:
    """The topic's table, and those of its projections.

    Args:
        source: the topic's table.
        own: where it is.
        projections: as declared.
        targets: by name, all that are needed.
    """
    name = ".".join(source.name)
    found = [
        QueriedTable(
            name=name,
            kind="topic",
            spark_name=quoted(own.spark_name, *source.name),
            load=lambda: own.catalog.load_table(source.name),
        )
    ]
    for projection in projections:
        levels, rule, target = tuple(projection.table.split(".")), projection.rule, targets[projection.catalog]

        def load(
            catalog: Catalog = target.catalog, levels: tuple[str, ...] = levels, mode: str = rule.mode
        ) -> Table | None:
            return load_projection(catalog, levels, source.owner, mode)

        shown = projection.table if target == own else f"{projection.catalog}.{projection.table}"
        spark_name = quoted(target.spark_name, *levels)
        found.append(
            QueriedTable(
                name=shown,
                kind=rule.mode,
                spark_name=spark_name,
                load=load,
                partition_by=rule.partition_by,
                sort_by=rule.sort_by,
            )
        )
    return found


def survey(
    session: Any,
    tables: Sequence[QueriedTable],
    queries: Sequence[Query],
    options: AdviseOptions,
    say: Callable[[str], None],
) -> AdviceReport:
    """Asks every table every query. What fails is told in the report, and the others go on.

    Args:
        session: Spark's, with the catalogs.
        tables: the topic's own first.
        queries: what to ask.
        options: of the command.
        say: receives one line before each step.
    """
    at_ms = time.time_ns() // 1_000_000
    ready = [_open(session, table, f"tierberg_advise_{number}") for number, table in enumerate(tables)]
    found: list[QueryReport] = []
    try:
        for query in queries:
            answers: list[Answer] = []
            for table in ready:
                say(f"{'running' if options.run else 'planning'} {query.name} on {table.report.name}")
                answers.append(_answer(session, table, query, options))
            found.append(QueryReport(query.name, query.text, tuple(answers)))
    finally:
        # After an interrupt Java may not answer, which must not take the place of the interrupt.
        with suppress(Exception):
            for table in ready:
                session.catalog.dropTempView(table.view)
    said = tuple(_suggestions(ready, found))
    return AdviceReport(
        topic=options.topic,
        at_ms=at_ms,
        ran=options.run,
        tables=tuple(table.report for table in ready),
        queries=tuple(found),
        suggestions=said,
    )


def _open(session: Any, asked: QueriedTable, view: str) -> _Ready:
    """Pins the table's head in a view, so that all queries see one state of it."""
    told = TableReport(name=asked.name, kind=asked.kind, partition_by=asked.partition_by or (), sort_by=asked.sort_by)
    try:
        table = asked.load()
        head = None if table is None else table.current_snapshot()
        if table is None or head is None:
            way = "" if asked.kind == "topic" else ": `tierberg repartition` fills it"
            return _Ready(replace(told, error=f"has no rows yet{way}"), view, {})
        if asked.partition_by is None:
            told = replace(told, partition_by=tuple(term.rule() for term in partition_terms(table)))
        frame = session.sql(f"SELECT * FROM {asked.spark_name} VERSION AS OF {head.snapshot_id}")
        frame.createOrReplaceTempView(view)
        whole = plan(session, f"SELECT * FROM {view}").figures
        return _Ready(replace(told, snapshot_id=head.snapshot_id, whole=whole), view, _types(frame.schema))
    except Exception as error:  # noqa: BLE001 - one table that fails must not take the others with it
        return _Ready(replace(told, error=first_line(error)), view, {})


def _answer(session: Any, table: _Ready, query: Query, options: AdviseOptions) -> Answer:
    name = table.report.name
    if table.report.error is not None:
        return Answer(name, error=table.report.error)
    sql = query.on(table.view)
    try:
        found: SparkPlan = run(session, sql, options.deadline_s) if options.run else plan(session, sql)
    except Exception as error:  # noqa: BLE001 - one query that fails must not take the others with it
        return Answer(name, error=first_line(error).replace(table.view, name))
    return Answer(name, found.figures, compared=found.compared)


def _suggestions(ready: Sequence[_Ready], queries: Sequence[QueryReport]) -> list[tuple[str, str]]:
    """Of every projection; of the topic's own table, as a projection without any layout, where none is declared."""
    found: list[tuple[str, str]] = []
    for number, table in enumerate(ready):
        report = table.report
        if report.whole is None or (number == 0 and len(ready) > 1):
            continue
        layout = CurrentLayout(report.partition_by, report.sort_by, report.whole.files, table.types)
        answers = [(query.name, query.answers[number]) for query in queries]
        seen = [
            PlannedQuery(name, item.figures.files, item.compared) for name, item in answers if item.figures is not None
        ]
        prefix = "No projection is declared; for one: " if number == 0 else ""
        found.append((report.name, prefix + suggestion(layout, seen)))
    return found


def _types(schema: Any, above: str = "") -> dict[str, str]:
    """Spark's names of the types of all columns, by path."""
    found: dict[str, str] = {}
    for field in schema.fields:
        path = f"{above}{field.name}"
        found[path] = field.dataType.simpleString()
        if hasattr(field.dataType, "fields"):
            found |= _types(field.dataType, f"{path}.")
    return found


def first_line(error: Exception) -> str:
    """An error's own words, without credentials, nor the plans and stacks that Spark adds."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_BRIDGE_SAYS)]
    said = hide(lines[0]) if lines else type(error).__name__
    return said if len(said) <= ERROR_CHARS_MAX else said[: ERROR_CHARS_MAX - 1] + "…"
