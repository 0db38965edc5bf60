"""What a query needs of Iceberg tables, by Spark's own plan of it.

The physical plan's scans of Iceberg tables are asked for the tasks they have planned: with the filters that Spark has
pushed into them and, after a run, with those that only came up during it. The figures are of the files these tasks
name. A query that the tables' metadata answers (`count(*)`) has no such scan, and needs no file.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from repartition.advise.report import Figures, How
from repartition.advise.suggest import both, compared
from repartition.errors import RepartitionError
from repartition.limits import ADVISE_ROUNDS

_ICEBERG: Final = "org.apache.iceberg.spark.source."


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """Figures of one query, and the columns that all of its scans together are filtered by."""

    figures: Figures
    compared: dict[str, How]


def plan(session: Any, sql: str) -> SparkPlan:
    """Plans a query and reads nothing.

    Raises:
        RepartitionError: `bad_queries` for a statement that is no query. What Spark refuses passes through.
    """
    return _planned(session, _execution(session, sql), counted=False)


def run(session: Any, sql: str, deadline_s: float, rounds: int = ADVISE_ROUNDS) -> SparkPlan:
    """Runs a query once, and then some times; figures are of the last run, and its rows are counted, not fetched.

    Args:
        session: Spark's.
        sql: the query.
        deadline_s: how long one run may take.
        rounds: after the first one; at least 1.

    Raises:
        RepartitionError: `bad_queries` for a statement that is no query; `spark` when it took too long. What Spark
            refuses or fails at passes through.
    """
    taken: list[float] = []
    while True:
        began = time.monotonic()
        execution = _execution(session, sql)
        with _deadline(session, deadline_s):
            rows = int(execution.toRdd().count())
        taken.append(time.monotonic() - began)
        if len(taken) > rounds:
            break
    found = _planned(session, execution, counted=True)
    first, median = taken[0], statistics.median(taken[1:])
    figures = replace(found.figures, counted=True, result_rows=rows, first_s=first, median_s=median)
    return replace(found, figures=figures)


def _execution(session: Any, sql: str) -> Any:
    """The query's `QueryExecution`. Statements that would change something are never begun."""
    parser = session._jsparkSession.sessionState().sqlParser()
    parser.parsePlan(sql)
    try:
        parser.parsePlan(f"SELECT * FROM (\n{sql}\n)")
    except Exception as error:
        raise RepartitionError("bad_queries", "this is no query: only SELECT and what gives rows is planned") from error
    return session.sql(sql)._jdf.queryExecution()


@contextmanager
def _deadline(session: Any, seconds: float) -> Iterator[None]:
    """Cancels the jobs that are begun within, by this thread, when they take longer."""
    context, group = session.sparkContext, f"tierberg-advise-{uuid.uuid4().hex}"
    late = threading.Event()

    def cancel() -> None:
        late.set()
        context.cancelJobGroup(group)

    context.setJobGroup(group, "tierberg advise", interruptOnCancel=True)
    timer = threading.Timer(seconds, cancel)
    timer.start()
    try:
        yield
    except Exception as error:
        if late.is_set():
            raise RepartitionError("spark", f"ended after {seconds:g} s") from error
        raise
    finally:
        timer.cancel()
        # After an interrupt Java may not answer, which must not take the place of the interrupt.
        with suppress(Exception):
            context.setLocalProperty("spark.jobGroup.id", None)


def _planned(session: Any, execution: Any, *, counted: bool) -> SparkPlan:
    figures, columns = Figures(), dict[str, How]()
    identity = session._jvm.java.lang.System.identityHashCode
    known: set[int] = set()
    for node in _scans(execution.executedPlan()):
        scan = node.scan()
        # One scan stands in several places where its rows also prune another one.
        number = int(identity(scan))
        if number in known or not scan.getClass().getName().startswith(_ICEBERG):
            continue
        known.add(number)
        found = _files(scan)
        if counted:
            found = replace(found, rows=int(node.metrics().apply("numOutputRows").value()))
        figures = figures.plus(found)
        for expression in scan.filters():
            columns = both(columns, compared(expression))
    return SparkPlan(figures, columns)


def _files(scan: Any) -> Figures:
    """Of one scan. A file that was split into several tasks counts once. Of deletion vectors many share a file."""
    data: dict[str, tuple[int, int]] = {}
    deletes: dict[tuple[str, int | None], int] = {}
    for part in scan.toBatch().planInputPartitions():
        for task in part.taskGroup().tasks().toArray():
            file = task.file()
            location = file.location()
            if location not in data:
                data[location] = int(file.fileSizeInBytes()), int(file.recordCount())
                deletes.update(map(_delete, task.deletes()))
    sizes, rows = zip(*data.values(), strict=True) if data else ((), ())
    return Figures(
        files=len(data),
        data_bytes=sum(sizes),
        delete_files=len(deletes),
        delete_bytes=sum(deletes.values()),
        rows=sum(rows),
    )


def _delete(file: Any) -> tuple[tuple[str, int | None], int]:
    """A delete file or a deletion vector: where it is, and its size."""
    place = file.contentOffset()
    return (file.location(), place), int(file.fileSizeInBytes() if place is None else file.contentSizeInBytes())


def _scans(node: Any) -> Iterator[Any]:
    """Every scan of a physical plan by the second data source interface, with those of subqueries, each once."""
    name = node.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan())
    elif name.endswith("QueryStageExec"):
        yield from _scans(node.plan())
    elif not name.startswith("Reused"):
        if name == "BatchScanExec":
            yield node
        for below in (node.children(), node.subqueries()):
            for position in range(below.size()):
                yield from _scans(below.apply(position))
