"""Spark and Trino on the REST catalog of a lake, in a zone that is not UTC: one way to ask both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Protocol

from tests.e2e.engine_rows import ZONE, Sum, spark_query, trino_query
from tierberg.stack.jars import spark_jars, spark_s3_jars
from tierberg.stack.lake import Lake
from tierberg.stack.ports import LOOPBACK
from tierberg.stack.servers.trino import CATALOG, TrinoServer

SPARK_START_S = 180
STATEMENT_S = 240
#: As a careless operator would set them: everything counts as old.
NO_RETENTION = {"iceberg.expire-snapshots.min-retention": "0s", "iceberg.remove-orphan-files.min-retention": "0s"}


class EngineError(Exception):
    """What an engine refused, in its words."""


class Engine(Protocol):
    """An SQL engine whose catalog `lake` is the REST catalog."""

    name: str

    def sql(self, statement: str) -> list[Sequence[Any]]:
        """The rows. Raises EngineError."""

    def sums(self, table: str, *, text: bool) -> dict[int, Sum]:
        """Rows and checksum by partition; `table` without the catalog."""


def as_sums(rows: list[Sequence[Any]]) -> dict[int, Sum]:
    return {int(partition): Sum(int(count), int(checksum)) for partition, count, checksum in rows}


class Spark:
    """A session in a process of its own, so that its JVM ends with it."""

    name = "Spark"

    def __init__(self, lake: Lake, folder: Path) -> None:
        folder.mkdir(parents=True)
        settings = folder / "settings.json"
        settings.write_text(json.dumps(spark_settings(lake, folder)))
        with (folder / "spark.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("spark_sql.py")), str(settings)],
                cwd=folder,
                env={**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "TZ": "America/New_York"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answers: Queue[str] = Queue()
        self._log = folder / "spark.log"
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_ready(self) -> None:
        assert self._answer(SPARK_START_S) == "ready"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(json.dumps({"error": "Spark ended"}))

    def _answer(self, seconds: float) -> Any:
        try:
            return json.loads(self._answers.get(timeout=seconds))
        except Empty:
            raise AssertionError(f"Spark says nothing; its log ends\n{self._log.read_text()[-3000:]}") from None

    def sql(self, statement: str) -> list[Sequence[Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        answer = self._answer(STATEMENT_S)
        if "error" in answer:
            raise EngineError(answer["error"])
        rows: list[Sequence[Any]] = answer["rows"]
        return rows

    def sums(self, table: str, *, text: bool) -> dict[int, Sum]:
        return as_sums(self.sql(spark_query(f"lake.{table}", text=text)))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._listener.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def spark_settings(lake: Lake, folder: Path) -> dict[str, str]:
    jars = [*spark_jars().glob("iceberg-spark-runtime-*.jar"), *spark_s3_jars().glob("*.jar")]
    catalog = "spark.sql.catalog.lake"
    given = lake.catalog.client_properties() | {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
        "cache-enabled": "false",
    }
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": ZONE,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{catalog}.{name}": value for name, value in given.items()},
    }


class Trino:
    """One connection to a server of the stack."""

    name = "Trino"

    def __init__(self, server: TrinoServer) -> None:
        from trino.dbapi import connect

        self._connection = connect(
            host=LOOPBACK, port=server.port, user="e2e", catalog=CATALOG, schema="kafka", timezone=ZONE
        )

    def sql(self, statement: str) -> list[Sequence[Any]]:
        from trino.exceptions import TrinoQueryError

        cursor = self._connection.cursor()
        try:
            cursor.execute(statement)
            return list(cursor.fetchall())
        except TrinoQueryError as error:
            raise EngineError(str(error)) from error
        finally:
            cursor.close()

    def sums(self, table: str, *, text: bool) -> dict[int, Sum]:
        return as_sums(self.sql(trino_query(f"{CATALOG}.{table}", text=text)))


@contextmanager
def spark_on(lake: Lake, folder: Path) -> Iterator[Spark]:
    session = Spark(lake, folder)
    try:
        session.wait_ready()
        yield session
    finally:
        session.stop()


@contextmanager
def trino_on(lake: Lake, folder: Path) -> Iterator[Trino]:
    server = TrinoServer(folder, lake.catalog.uri, lake.warehouse, NO_RETENTION)
    try:
        server.start()
        yield Trino(server)
    finally:
        server.stop()
