"""The questions to all tables, in the words of Spark and of DuckDB. `{table}` is the table's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoQuery:
    """One question, and a statement for each engine; all must give the same rows.

    Attributes:
        name: a short one.
        of_values: about the columns of the value: its answers are shown for both tables.
    """

    name: str
    question: str
    spark: str
    duckdb: str
    of_values: bool = False


_ONE_DAY = """SELECT origin, count(*) AS flights, count(dep_time) AS left_ground, cast(max(dep_delay) AS int) AS latest
FROM {table} WHERE dest = 'ORD' AND month = 7 AND day = 4 GROUP BY origin ORDER BY origin"""
_ONE_YEAR = """SELECT month, count(*) AS flights, count(dep_time) AS left_ground, cast(max(dep_delay) AS int) AS latest
FROM {table} WHERE dest = 'ORD' GROUP BY month ORDER BY flights DESC, month LIMIT 5"""

ONE_DAY = "one destination on one day"
QUERIES = (
    DemoQuery(
        name="events of each airport",
        question="How many events came from each airport, and when were the first and the last? (New York's time)",
        spark="""SELECT _kafka_partition AS partition, count(*) AS events, min(_kafka_offset) AS first_offset,
       date_format(min(_kafka_timestamp), 'yyyy-MM-dd HH:mm') AS first,
       date_format(max(_kafka_timestamp), 'yyyy-MM-dd HH:mm') AS last
FROM {table} GROUP BY _kafka_partition ORDER BY partition""",
        duckdb="""SELECT _kafka_partition AS partition, count(*) AS events, min(_kafka_offset) AS first_offset,
       strftime(min(_kafka_timestamp), '%Y-%m-%d %H:%M') AS first,
       strftime(max(_kafka_timestamp), '%Y-%m-%d %H:%M') AS last
FROM {table} GROUP BY _kafka_partition ORDER BY partition""",
    ),
    DemoQuery(
        name="flights of each carrier",
        question="Which carriers flew most, and how late did they leave on average?",
        spark="""SELECT carrier, count(*) AS flights, round(avg(dep_delay), 2) AS mean_delay
FROM {table} GROUP BY carrier ORDER BY flights DESC LIMIT 5""",
        duckdb="""SELECT carrier, count(*) AS flights, round(avg(dep_delay), 2) AS mean_delay
FROM {table} GROUP BY carrier ORDER BY flights DESC LIMIT 5""",
        of_values=True,
    ),
    DemoQuery(
        name="aircraft under a header",
        question="Which aircraft (the record's key) flew most under the header carrier=B6?",
        spark="""SELECT decode(_kafka_key, 'UTF-8') AS aircraft, count(*) AS flights
FROM {table}
WHERE exists(_kafka_headers, h -> h.key = 'carrier' AND h.value = encode('B6', 'UTF-8')) AND _kafka_key IS NOT NULL
GROUP BY aircraft ORDER BY flights DESC, aircraft LIMIT 5""",
        duckdb="""SELECT decode(_kafka_key) AS aircraft, count(*) AS flights
FROM {table}
WHERE list_contains(_kafka_headers, {{'key': 'carrier', 'value': 'B6'::blob}}) AND _kafka_key IS NOT NULL
GROUP BY aircraft ORDER BY flights DESC, aircraft LIMIT 5""",
    ),
    DemoQuery(
        name="one destination all year",
        question="In which months did most flights go to Chicago, and by how many minutes did the last one leave late?",
        spark=_ONE_YEAR,
        duckdb=_ONE_YEAR,
        of_values=True,
    ),
    DemoQuery(
        name=ONE_DAY,
        question=(
            "How many flights to Chicago were there on the Fourth of July, how many left, and how late was the last?"
        ),
        spark=_ONE_DAY,
        duckdb=_ONE_DAY,
        of_values=True,
    ),
)


def queries_file() -> str:
    """The questions about columns of the value in Spark's words, as `tierberg advise` takes them."""
    return "".join(f"-- name: {query.name}\n{query.spark};\n" for query in QUERIES if query.of_values)
