"""The table as Spark sees it: a local session with the Iceberg runtime, on the catalog that the bridge writes."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tierberg.demo.canonical import SPARK_CHECKSUM
from tierberg.demo.columns import SPARK_COLUMNS
from tierberg.demo.engines import Engine, EngineAnswer, Row
from tierberg.demo.queries import QUERIES
from tierberg.stack.jars import spark_jars
from tierberg.stack.ports import LOOPBACK

#: Not UTC, so that a wrong time zone anywhere shows.
SESSION_ZONE = "America/New_York"
CATALOG = "tierberg"


@contextmanager
def spark_session(data_dir: Path, logs: Path) -> Iterator[Any]:
    """A session whose catalog `tierberg` is the bridge's SQLite file; ended on leaving.

    Args:
        data_dir: the bridge's.
        logs: folder for Spark's own output and scratch files.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    logs.mkdir(parents=True, exist_ok=True)
    catalog = f"spark.sql.catalog.{CATALOG}"
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar"))),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.local.dir": str(logs),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": SESSION_ZONE,
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{data_dir / 'catalog.db'}",
        f"{catalog}.warehouse": (data_dir / "warehouse").as_uri(),
        f"{catalog}.jdbc.schema-version": "V1",
    }
    conf = SparkConf().setMaster("local[*]").setAppName("tierberg-demo").setAll(list(settings.items()))
    with _no_child_left_by_a_failure():
        interrupted = signal.getsignal(signal.SIGINT)
        # An interrupted call is logged with two tracebacks; whatever fails is raised as well.
        logging.disable(logging.CRITICAL)
        with _stderr_to(logs / "spark.log"):
            SparkContext.getOrCreate(conf)
            # The context's own handler calls Java from inside the call it interrupts, and fails.
            signal.signal(signal.SIGINT, interrupted)
            session = SparkSession.builder.getOrCreate()
        yield session
        session.stop()
        logging.disable(logging.NOTSET)


def ask_spark(session: Any, table: str, partition: int, offset: int) -> Engine:
    """Ask all questions, count, add up the checksums and read one row.

    Args:
        session: from :func:`spark_session`.
        table: with its namespace, without the catalog.
        partition: of the row wanted.
        offset: of the row wanted.
    """
    name = f"{CATALOG}.{table}"
    answers = [_run(session, query.spark.format(table=name)) for query in QUERIES]
    counts = f"count(*), {SPARK_CHECKSUM}, {SPARK_COLUMNS}, count(_kafka_error)"
    rows, checksum, columns, errors = session.sql(f"SELECT {counts} FROM {name}").collect()[0]
    found = session.sql(
        f"""SELECT unix_millis(_kafka_timestamp) AS ms, _kafka_key, _kafka_headers, _kafka_value
            FROM {name} WHERE _kafka_partition = {partition} AND _kafka_offset = {offset}"""
    ).collect()[0]
    headers = tuple((header["key"], _bytes(header["value"])) for header in found["_kafka_headers"] or ())
    sample = Row(
        partition=partition,
        offset=offset,
        timestamp_ms=found["ms"],
        key=_bytes(found["_kafka_key"]),
        value=_bytes(found["_kafka_value"]),
        headers=headers,
    )
    return Engine(
        name="Spark",
        answers=answers,
        rows=int(rows),
        checksum=int(checksum),
        columns=int(columns),
        errors=int(errors),
        sample=sample,
    )


@contextmanager
def _no_child_left_by_a_failure() -> Iterator[None]:
    """Kill what the block has started when an exception leaves it: Spark's Java side outlives an interrupted start."""
    before = set(psutil.Process().children())
    try:
        yield
    except BaseException:
        for child in set(psutil.Process().children()) - before:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        raise


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Give children that start meanwhile another standard error: Spark's Java side writes there all its life."""
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _run(session: Any, statement: str) -> EngineAnswer:
    frame = session.sql(statement)
    return EngineAnswer(statement, frame.columns, [tuple(row) for row in frame.collect()])


def _bytes(content: bytearray | None) -> bytes | None:
    return None if content is None else bytes(content)
