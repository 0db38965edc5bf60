"""`tierberg demo`: the whole path on real servers and real data, each promise checked."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tierberg.demo.both_worlds import kafka_row, show_columns, show_layouts, show_side_by_side
from tierberg.demo.checks import DemoSummary, mib
from tierberg.demo.columns import AVRO_TYPES, JSON_TYPES
from tierberg.demo.consume import ISOLATIONS, Isolation, ReadBack, read_back
from tierberg.demo.duck import ask_duckdb, open_table, value_types
from tierberg.demo.engines import Engine, show, show_once
from tierberg.demo.errors import DemoError
from tierberg.demo.events import JFK
from tierberg.demo.keep import ended_in_order, how_to_use, own_command, refuse_running
from tierberg.demo.ledger import Ledger
from tierberg.demo.projection import compare_layouts, make_projection
from tierberg.demo.queries import ONE_DAY, QUERIES
from tierberg.demo.servers import (
    AVRO_TOPIC,
    BRIDGE_FOLDER,
    PROJECTION,
    SPARK_FOLDER,
    TABLES,
    TOPIC,
    TOPICS,
    Servers,
    running_servers,
)
from tierberg.demo.spark import ask_spark, spark_session
from tierberg.demo.tier import produce_with_kill, record_progress, wait_until_published, wait_until_tiered
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
from tierberg.stack.errors import StackError
from tierberg.stack.jars import broker_jars, registry_server, require_kafka, shim_jar, spark_jars
from tierberg.stack.jdk import require_java
from tierberg.stack.jmx import JmxReader

Ledgers = Mapping[str, Ledger]

_MARKER = ".tierberg-demo"
#: Columns where the output is no terminal.
_FILE_WIDTH = 120
_STORED = {"data": "bytes in Parquet", "kept": "bytes kept as they came", "index": "bytes in segment indexes"}
_TYPES = {TOPIC: JSON_TYPES, AVRO_TOPIC: AVRO_TYPES}
#: How each topic is read back.
_READ_AS: dict[str, tuple[Isolation, ...]] = {TOPIC: ISOLATIONS, AVRO_TOPIC: ("read_committed",)}


def prepared(data_dir: Path, kafka_version: str) -> Path:
    """The folder for a demo, made anew, once nothing is known that keeps one from running.

    Raises:
        DemoError: it exists and no demo made it, or servers of an earlier demo run in it.
        StackError: the version is none of KAFKA_VERSIONS, or there is no Java that runs brokers.
    """
    require_kafka(kafka_version)
    require_java()
    return _fresh_folder(data_dir)


def run(folder: Path, *, called: Path, kafka_version: str, keep: bool = False, verbose: bool = False) -> int:
    """Run the demo.

    Args:
        folder: of `prepared`.
        called: the same as the user names it.
        kafka_version: of the stock broker, one of KAFKA_VERSIONS.
        keep: leave the servers running afterwards, and say how to use and end them.
        verbose: print every statement, column, check and figure, not only an answer to each question.

    Returns:
        0 when every check held, otherwise 1.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    summary = DemoSummary(console=console, verbose=verbose)
    servers: Servers | None = None
    try:
        with ended_in_order():
            with summary.step("Fetch what is missing"):
                broker_jars(kafka_version)
                spark_jars()
                registry_server()
                shim_jar()
            servers = _play(summary, folder, kafka_version, keep=keep)
    except (DemoError, StackError) as error:
        said, _, log = str(error).partition("\n")
        if log:
            console.print(log, markup=False, highlight=False)
        summary.check("ran to its end", False, said)
    summary.show()
    console.print(_last_words(called, servers, keep=keep), markup=False, highlight=False, soft_wrap=True)
    return 0 if summary.passed else 1


def _last_words(data_dir: Path, servers: Servers | None, *, keep: bool) -> str:
    """Where everything is, and what to try next; `servers` is None when the demo did not run to its end."""
    where = f"Everything is in {data_dir}"
    if servers is None:
        return f"{where}; no server was left running."
    if not keep:
        return f"{where}. Try next:\n{_next()}"
    return f"{where}. {how_to_use(servers)}"


def _next() -> str:
    command = own_command()
    tried = {
        f"{command} demo --verbose": "prints every statement, column, check and figure as well",
        f"{command} demo --keep": "leaves the servers running, with commands that consume, query and repartition",
        "docs/first-topic.md": "goes from nothing to a SELECT on a topic of your own",
    }
    width = max(map(len, tried))
    return "\n".join(f"  {what:<{width}}   {why}" for what, why in tried.items())


def _play(summary: DemoSummary, folder: Path, kafka_version: str, *, keep: bool) -> Servers:
    ledgers = {topic: Ledger() for topic in TOPICS}
    with ExitStack() as open_things:
        with summary.step(f"Start a schema registry, a bridge, and stock Kafka {kafka_version} with the plugin"):
            servers = open_things.enter_context(running_servers(folder, kafka_version, keep=keep))
            jmx = open_things.enter_context(JmxReader(servers.broker.jmx_port))
        columns = _tier(summary, servers, ledgers)
        with summary.step("Consume everything back and compare each record"):
            committed = {topic: _consume(summary, servers, topic, ledgers[topic], jmx) for topic in TOPICS}
        engines = _query(summary, folder, servers, ledgers)
        _judge(summary, servers, ledgers, committed, engines, columns)
        offset = min(ledgers[TOPIC].committed[JFK])
        _show_projection(summary, folder, servers, offset, committed[TOPIC], engines[TOPIC][-1], columns)
        _figures(summary, servers, ledgers, jmx)
        return servers


def _tier(summary: DemoSummary, servers: Servers, ledgers: Ledgers) -> int:
    """Returns the checksum over the flights' columns."""
    with summary.step("Send 336,776 flights as JSON and as Avro; kill -9 the bridge on the way"):
        sent = produce_with_kill(servers, ledgers, summary)
    judge_ledgers(summary, ledgers)
    with summary.step("Wait until the broker has deleted its local segments"):
        wait_until_tiered(servers, summary)
    stored, kill = len(servers.index_objects()), sent.kill
    figures = f"{kill.segments_stored} segments stored, {kill.copies_running} being copied when killed; {stored} now"
    summary.check("tiering went on after kill -9", stored > kill.segments_stored, figures)
    with summary.step("Wait until the tables have every committed record"):
        wait_until_published(servers, ledgers[TOPIC].committed_count(), summary)
    return sent.columns


def _consume(summary: DemoSummary, servers: Servers, topic: str, ledger: Ledger, jmx: JmxReader) -> ReadBack:
    """Returns what a reader of committed records got."""
    starts_before, served_before = servers.local_starts(topic), _served_bytes(servers)
    results: dict[Isolation, ReadBack] = {}
    for isolation in _READ_AS[topic]:
        expected = ledger.committed_count() + (ledger.aborted_count() if isolation == "read_uncommitted" else 0)
        with record_progress(summary, f"records of {topic}, {isolation}", expected) as progress:
            result = results[isolation] = read_back(servers.broker.bootstrap, topic, ledger, isolation, progress)
        judge_reading(summary, f"Kafka's records of {topic} are the producer's, {isolation}", expected, result)
    origin = RemoteReads(
        starts_before,
        servers.local_starts(topic),
        jmx.topic_total("RemoteFetchBytesPerSec", topic),
        _served_bytes(servers) - served_before,
    )
    judge_origin(summary, topic, list(results.values()), origin)
    return results["read_committed"]


def _served_bytes(servers: Servers) -> int:
    return int(servers.bridge.metric("tierberg_served_bytes_total", method="fetch"))


def _query(summary: DemoSummary, folder: Path, servers: Servers, ledgers: Ledgers) -> dict[str, list[Engine]]:
    """Returns what Spark and DuckDB say of each topic's table."""
    bridge_folder = servers.bridge.folder
    engines: dict[str, list[Engine]] = {topic: [] for topic in TOPICS}
    with summary.step("Ask the tables in Spark"), spark_session(bridge_folder, folder / SPARK_FOLDER) as session:
        for topic in TOPICS:
            engines[topic].append(ask_spark(session, TABLES[topic], JFK, min(ledgers[topic].committed[JFK])))
    with summary.step("Ask the tables in PyIceberg and DuckDB"):
        for topic in TOPICS:
            table = open_table(bridge_folder, TABLES[topic])
            engines[topic].append(ask_duckdb(table, topic, JFK, min(ledgers[topic].committed[JFK])))
    return engines


def _judge(
    summary: DemoSummary,
    servers: Servers,
    ledgers: Ledgers,
    committed: Mapping[str, ReadBack],
    engines: Mapping[str, Sequence[Engine]],
    columns: int,
) -> None:
    detail = summary.detail
    types = {topic: value_types(open_table(servers.bridge.folder, TABLES[topic])) for topic in TOPICS}
    show_columns(detail, types)
    for number, query in enumerate(QUERIES):
        summary.console.print(f"\n[bold]{query.question}")
        for engine in (engine for topic in (TOPICS if query.of_values else (TOPIC,)) for engine in engines[topic]):
            show(detail, engine.name, engine.answers[number])
        if not summary.verbose:
            answers = [(f"{one.name} on {topic}", one.answers[number]) for topic in TOPICS for one in engines[topic]]
            show_once(summary.console, answers)
    judge_answers(summary, engines)
    for topic in TOPICS:
        kafka = kafka_row(JFK, *min(ledgers[topic].committed[JFK].items()))
        if topic == TOPIC:
            show_side_by_side(detail, kafka, engines[topic])
        judge_records(summary, topic, committed[topic], kafka, engines[topic])
        judge_columns(summary, topic, types[topic], _TYPES[topic], columns, engines[topic])


def _show_projection(
    summary: DemoSummary, folder: Path, servers: Servers, offset: int, kafka: ReadBack, own: Engine, columns: int
) -> None:
    """Make the projection of the flights, ask it, and compare its layout with that of the topic's table.

    Args:
        summary: gets the checks.
        folder: of the demo.
        servers: run.
        offset: of a committed record of JFK's partition.
        kafka: what a reader of committed records got.
        own: what DuckDB gave for the topic's table.
        columns: checksum over the flights' columns.
    """
    with summary.step("Make the second copy (projection) of the flights, by month and destination"):
        make_projection(servers, folder, summary)
    with summary.step("Ask the projection in PyIceberg and DuckDB"):
        projection = ask_duckdb(
            open_table(servers.bridge.folder, PROJECTION), PROJECTION.rpartition(".")[2], JFK, offset
        )
    for query, answer in zip(QUERIES, projection.answers, strict=True):
        if query.name == ONE_DAY:
            show(summary.detail, projection.name, answer)
    judge_projection(summary, kafka, columns, own, projection)
    with summary.step("Compare what both tables need for a question, in Spark"):
        comparison = compare_layouts(servers, folder, summary)
    if not summary.verbose:
        show_layouts(summary.console, comparison.report)
    judge_layouts(summary, comparison)


def _figures(summary: DemoSummary, servers: Servers, ledgers: Ledgers, jmx: JmxReader) -> None:
    summary.figure("Kafka", servers.broker.options.version)
    for topic, ledger in ledgers.items():
        summary.figure(
            f"{topic}: records", f"{ledger.committed_count():,} committed, {ledger.aborted_count():,} aborted"
        )
        summary.figure(f"{topic}: keys, values and headers", mib(ledger.payload_bytes()))
        summary.figure(f"{topic}: bytes in Kafka's segments", mib(jmx.topic_total("RemoteCopyBytesPerSec", topic)))
        for kind, what in _STORED.items():
            summary.figure(f"{topic}: {what}", mib(servers.stored_bytes(topic, kind)))
    summary.figure("segments", f"{len(servers.index_objects())}")
    summary.figure("bytes left on the broker's disk", f"{servers.local_bytes():,}")


def _fresh_folder(data_dir: Path) -> Path:
    """Make the folder, emptying it when an earlier demo made it."""
    folder = data_dir.resolve()
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise DemoError(f"{data_dir} exists and was not made by a demo; name another folder with --data-dir")
        refuse_running(data_dir, folder / BRIDGE_FOLDER)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARKER).write_text("Made by `tierberg demo`, which empties this folder each time.\n")
    return folder
