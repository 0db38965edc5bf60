"""Three queries on the topic's table and on a projection: files and bytes that must be opened, and seconds."""

from __future__ import annotations

from pathlib import Path

from benchmarks.orders import BEGIN_MS, DAY_MS, Sized
from benchmarks.projection_jobs import Jobs
from benchmarks.results import Case, Cases
from benchmarks.run import say
from repartition.advise.advise import AdviseOptions, asked_tables, survey
from repartition.advise.queries import parse_queries
from repartition.advise.report import Figures

ONE_KEY_ONE_DAY = "one customer, one day"
_CUSTOMER = 4711
_DEADLINE_S = 300.0


def query_cases(running: Jobs, table: str, sized: Sized) -> Cases:
    """Runs them on the topic's table and on one projection."""
    day = sized.days // 2
    begin, end = (_timestamp(BEGIN_MS + n * DAY_MS) for n in (day, day + 1))
    one_day = f"_kafka_timestamp >= {begin} AND _kafka_timestamp < {end}"
    text = f"""
        -- name: {ONE_KEY_ONE_DAY}
        SELECT order_id, status, amount FROM {{table}} WHERE customer_id = {_CUSTOMER} AND {one_day};
        -- name: one customer, all days
        SELECT status, count(*), sum(amount) FROM {{table}} WHERE customer_id = {_CUSTOMER} GROUP BY status;
        -- name: sums of one day
        SELECT city, status, sum(amount), sum(quantity) FROM {{table}} WHERE {one_day} GROUP BY city, status;
    """
    asked = asked_tables(running.source, running.own, [running.projections[table]], running.targets)
    options = AdviseOptions(topic="orders", queries=Path(), run=True, deadline_s=_DEADLINE_S)
    report = survey(running.session, asked, parse_queries(text), options, say)
    cases: Cases = {"copy2_query_one_key": [], "copy2_query_others": []}
    for query in report.queries:
        found = [answer.figures for answer in query.answers]
        errors = [answer.error for answer in query.answers if answer.error]
        first, second = found
        if errors or first is None or second is None:
            raise RuntimeError(f"{query.name}: {errors}")
        if first.result_rows != second.result_rows:
            raise RuntimeError(
                f"{query.name}: {first.result_rows} rows of the topic's table, {second.result_rows} of the projection"
            )
        extra = {**_described("copy_1", first), **_described("copy_2", second)}
        measure = "copy2_query_one_key" if query.name == ONE_KEY_ONE_DAY else "copy2_query_others"
        cases[measure].append(Case(query.name, 100 * second.size_bytes / first.size_bytes, None, [], extra))
    say(f"  {cases}")
    return cases


def _described(which: str, figures: Figures) -> dict[str, float]:
    return {
        f"{which}_files": figures.files,
        f"{which}_mb": figures.size_bytes / 1e6,
        f"{which}_s": figures.median_s or 0.0,
    }


def _timestamp(at_ms: int) -> str:
    return f"timestamp_millis({at_ms})"
