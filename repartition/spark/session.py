"""The Spark session of the jobs.

On its own it is `local[*]`; under `spark-submit` master, memory and jars are what the submitter said, and only the
catalogs are added. What the settings' `repartition.spark` says wins over both, but for what Java is started with
(memory, jars), which `spark-submit` has done by then. No setting is in a command line.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from repartition.errors import RepartitionError, first_line, java_causes

_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
#: What the jobs rely on. Wrong values fail (ANSI) and are caught row by row; timestamps mean the same everywhere.
_NEEDED: Final = {
    "spark.sql.extensions": _EXTENSIONS,
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    # Otherwise `${env:NAME}` in a value becomes what the variable has, wherever a value goes into a statement.
    "spark.sql.variable.substitute": "false",
}
_CATALOGS: Final = "spark.sql.catalog."
#: Spark's own, and what else Iceberg's catalogs call a credential: a session's settings are on pages of Spark's UI.
_BLANKED: Final = "(?i)secret|password|token|credential|signature|connection-string|(access|account)[.-]?key"
_NO_SPARK: Final = (
    "PySpark is not installed: `pip install 'tierberg[repartition]'`, and Java 17 or 21, or start the job by a "
    "`spark-submit` of Spark 4.1"
)
_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_NO_ICEBERG: Final = (
    "Spark has no Iceberg: set `repartition.spark: {spark.jars.packages: "
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0}`, or under spark-submit its option --packages; S3 and "
    "databases need one more each (docs/running-projections.md, Jars)"
)
_CONSTRAINTS: Final = "spark.sql.constraintPropagation.enabled"
_ALONE: Final = {
    "spark.master": "local[*]",
    "spark.app.name": "tierberg-repartition",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.log.level": "WARN",
}


@contextmanager
def spark_session(catalogs: Mapping[str, str], given: Mapping[str, str]) -> Iterator[Any]:
    """A session with these catalogs; ended on leaving.

    Catalogs are settings of the session alone, which Iceberg reads when it first meets their names: what Spark is
    started with, it hands on to executors and shows in its logs.

    Args:
        catalogs: `spark.sql.catalog.*`, with credentials.
        given: of the settings; may have such as well.

    Raises:
        RepartitionError: `no_spark`, also without Iceberg's jar; `spark` when it does not start.
    """
    try:
        session = _started({key: value for key, value in given.items() if not key.startswith(_CATALOGS)})
    except ImportError as error:
        raise RepartitionError("no_spark", _NO_SPARK) from error
    except RepartitionError:
        raise
    except Exception as error:
        said = f"Spark does not start ({first_line(error)}). Is there a Java 17 or 21? Its own words are above"
        raise RepartitionError("spark", said) from error
    try:
        for key, value in {**catalogs, **given}.items():
            if key.startswith(_CATALOGS):
                session.conf.set(key, value)
        yield session
    except BaseException:
        # A call to Java that was interrupted leaves nothing that answers: that error must not take the place of this.
        with suppress(Exception):
            session.stop()
        raise
    session.stop()


def _started(given: Mapping[str, str]) -> Any:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    settings = {**_NEEDED, **given}
    if "SPARK_ENV_LOADED" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {**_ALONE, **settings}
        start_java(settings)
    require_iceberg()
    conf = SparkConf().setAll(list(settings.items())).setIfMissing("spark.redaction.regex", _BLANKED)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def require_iceberg() -> None:
    """Looks for Iceberg where Spark will: what it says itself, later, is a trace of Java's that names no jar.

    Raises:
        RepartitionError: `no_spark`; it is not there.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_CATALOG)
    except Py4JJavaError as error:
        if any(name == "java.lang.ClassNotFoundException" for name, _ in java_causes(error)):
            raise RepartitionError("no_spark", _NO_ICEBERG) from None
        raise


def beside(session: Any, settings: Mapping[str, str]) -> Any:
    """Another session of the same application: with settings, views and catalogs of its own.

    Args:
        session: of :func:`spark_session`.
        settings: catalogs and what else that one was given.
    """
    other = session.newSession()
    for key, value in settings.items():
        if key.startswith(_CATALOGS):
            other.conf.set(key, value)
    return other


def in_pool(session: Any, name: str) -> None:
    """What this thread runs from now on shares the cores with other pools evenly, and is counted by its name.

    It is the session's: what is asked of Java without SQL goes by settings of the thread's session, catalogs too.
    """
    session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    context = session.sparkContext
    context.setLocalProperty("spark.scheduler.pool", name)
    context.setJobGroup(name, name)


def require_session(session: Any) -> None:
    """Asks the session something that costs nothing.

    Raises:
        RepartitionError: `spark` if it never runs anything again: Java has died, or has stopped Spark.
    """
    gone = "Spark's driver has ended, so nothing runs any more: start the job again"
    try:
        stopped = bool(session.sparkContext._jsc.sc().isStopped())
    except Exception as error:  # py4j's, or the network's
        raise RepartitionError("spark", f"{gone} ({first_line(error)})") from error
    if stopped:
        raise RepartitionError("spark", gone)


def running_tasks(pool: str) -> tuple[int, int] | None:
    """Of the stages that Spark runs now for a pool: tasks done, and all. None: it runs none. For any thread."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return None
    try:
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(pool)]
        mine = {int(stage) for job in jobs if job is not None for stage in job.stageIds}
        stages = [tracker.getStageInfo(stage) for stage in mine.intersection(tracker.getActiveStageIds())]
    except Exception:  # noqa: BLE001 - the session ends meanwhile: nobody needs the figure any more
        return None
    known = [stage for stage in stages if stage is not None]
    return (sum(item.numCompletedTasks for item in known), sum(item.numTasks for item in known)) if known else None


@contextmanager
def configured(session: Any, key: str, value: str) -> Iterator[None]:
    """A setting of the session has this value within the block, and what it had before after it."""
    before = session.conf.get(key, None)
    session.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, before)


def unconstrained(session: Any) -> AbstractContextManager[None]:
    """Statements of the block are planned without inferred constraints, which no write of ours gains from.

    Spark infers them in time that doubles with each nested column of a MERGE: minutes, then the driver's memory.
    """
    return configured(session, _CONSTRAINTS, "false")


_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_PLAIN: Final = frozenset("./_-")


def start_java(settings: Mapping[str, str]) -> None:
    """Starts it for this process, unless it runs already.

    Memory, jars and options of Java count only now. What `spark-defaults.conf` has more counts too, and what
    `PYSPARK_SUBMIT_ARGS` says wins, as always.

    Args:
        settings: Spark's configuration (`spark.…`).
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    # Java has read the file when it answers. The folder is this user's alone.
    with tempfile.TemporaryDirectory(prefix="tierberg-") as folder:
        file = Path(folder) / "spark.properties"
        file.touch(0o600)
        file.write_text(properties_text(settings), encoding="ascii")
        with _arguments(f"--properties-file {shlex.quote(str(file))} --load-spark-defaults"):
            SparkContext._ensure_initialized()


def properties_text(settings: Mapping[str, str]) -> str:
    """As `java.util.Properties` reads them, in ASCII."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    return "".join(c if (c.isascii() and c.isalnum()) or c in _PLAIN else _units(c) for c in text)


def _units(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


@contextmanager
def _arguments(added: str) -> Iterator[None]:
    """Within the block `spark-submit` is told this too, before what the environment tells it."""
    before = os.environ.get(_ARGUMENTS)
    os.environ[_ARGUMENTS] = f"{added} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before
