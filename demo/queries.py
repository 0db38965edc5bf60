"""Three questions to both tables, in the words of Spark and of DuckDB. `{table}` is the table's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    """One question, and a statement for each engine; all must give the same rows.

    Attributes:
        of_values: about the columns of the value: its answers are shown for both tables.
    """

    question: str
    spark: str
    duckdb: str
    of_values: bool = False


QUERIES = (
    Query(
        "How many events came from each airport, and when were the first and the last? (New York's time)",
        """SELECT _kafka_partition AS partition, count(*) AS events, min(_kafka_offset) AS first_offset,
       date_format(min(_kafka_timestamp), 'yyyy-MM-dd HH:mm') AS first,
       date_format(max(_kafka_timestamp), 'yyyy-MM-dd HH:mm') AS last
FROM {table} GROUP BY _kafka_partition ORDER BY partition""",
        """SELECT _kafka_partition AS partition, count(*) AS events, min(_kafka_offset) AS first_offset,
       strftime(min(_kafka_timestamp), '%Y-%m-%d %H:%M') AS first,
       strftime(max(_kafka_timestamp), '%Y-%m-%d %H:%M') AS last
FROM {table} GROUP BY _kafka_partition ORDER BY partition""",
    ),
    Query(
        "Which carriers flew most, and how late did they leave on average?",
        """SELECT carrier, count(*) AS flights, round(avg(dep_delay), 2) AS mean_delay
FROM {table} GROUP BY carrier ORDER BY flights DESC LIMIT 5""",
        """SELECT carrier, count(*) AS flights, round(avg(dep_delay), 2) AS mean_delay
FROM {table} GROUP BY carrier ORDER BY flights DESC LIMIT 5""",
        of_values=True,
    ),
    Query(
        "Which aircraft (the record's key) flew most under the header carrier=B6?",
        """SELECT decode(_kafka_key, 'UTF-8') AS aircraft, count(*) AS flights
FROM {table}
WHERE exists(_kafka_headers, h -> h.key = 'carrier' AND h.value = encode('B6', 'UTF-8')) AND _kafka_key IS NOT NULL
GROUP BY aircraft ORDER BY flights DESC, aircraft LIMIT 5""",
        """SELECT decode(_kafka_key) AS aircraft, count(*) AS flights
FROM {table}
WHERE list_contains(_kafka_headers, {{'key': 'carrier', 'value': 'B6'::blob}}) AND _kafka_key IS NOT NULL
GROUP BY aircraft ORDER BY flights DESC, aircraft LIMIT 5""",
    ),
)
