"""`tierberg demo`: the whole path on real servers and real data, each promise checked."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from demo.both_worlds import kafka_row, show_side_by_side
from demo.checks import Summary, mib
from demo.consume import ISOLATIONS, ReadBack, read_back
from demo.duck import ask_duckdb, open_table
from demo.engines import Engine, show
from demo.errors import DemoError
from demo.events import JFK
from demo.keep import ended_in_order, how_to_use, refuse_running
from demo.ledger import Ledger
from demo.queries import QUERIES
from demo.servers import BRIDGE_FOLDER, TABLE, TOPIC, Servers, running_servers
from demo.spark import ask_spark, spark_session
from demo.tier import produce_with_kill, record_progress, wait_until_published, wait_until_tiered
from demo.verdicts import RemoteReads, judge_engines, judge_ledger, judge_origin, judge_reading
from stack.errors import StackError
from stack.jars import broker_jars, shim_jar, spark_jars
from stack.jmx import JmxReader

_MARKER = ".tierberg-demo"
#: Columns where the output is no terminal.
_FILE_WIDTH = 120


def run(data_dir: Path, *, kafka_version: str, keep: bool = False) -> int:
    """Run the demo.

    Args:
        data_dir: made anew; refused when it exists and no demo made it.
        kafka_version: of the stock broker, `4.3.1` or `4.4.0`.
        keep: leave broker and bridge running afterwards, and say how to use and end them.

    Returns:
        0 when every check held, otherwise 1.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    summary = Summary(console)
    servers: Servers | None = None
    try:
        with ended_in_order():
            folder = _fresh_folder(data_dir)
            with summary.step("Fetch what is missing"):
                broker_jars(kafka_version)
                spark_jars()
                shim_jar()
            servers = _play(summary, folder, kafka_version, keep=keep)
    except (DemoError, StackError) as error:
        console.print(str(error), markup=False, highlight=False)
        summary.check("ran to its end", False, str(error).partition("\n")[0])
    summary.show()
    console.print(_last_words(data_dir, servers, keep=keep), markup=False, highlight=False, soft_wrap=True)
    return 0 if summary.passed else 1


def _last_words(data_dir: Path, servers: Servers | None, *, keep: bool) -> str:
    """Where everything is, and what runs now; `servers` is None when the demo did not run to its end."""
    where = f"Everything is in {data_dir}"
    if not keep:
        return f"{where}; `tierberg demo --keep` leaves the servers running."
    if servers is None:
        return f"{where}; no server was left running."
    return f"{where}. {how_to_use(servers)}"


def _play(summary: Summary, folder: Path, kafka_version: str, *, keep: bool) -> Servers:
    ledger = Ledger()
    with ExitStack() as open_things:
        with summary.step(f"Start a bridge and stock Kafka {kafka_version} with the plugin"):
            servers = open_things.enter_context(running_servers(folder, kafka_version, keep=keep))
            jmx = open_things.enter_context(JmxReader(servers.broker.jmx_port))
        _tier(summary, servers, ledger)
        with summary.step("Consume everything back and compare each record"):
            committed = _consume(summary, servers, ledger, jmx)
        _query(summary, folder, servers, ledger, committed)
        _figures(summary, servers, ledger, jmx)
        return servers


def _tier(summary: Summary, servers: Servers, ledger: Ledger) -> None:
    with summary.step("Send 336,776 flights; kill -9 the bridge on the way"):
        kill = produce_with_kill(servers, ledger, summary.console)
    judge_ledger(summary, ledger)
    with summary.step("Wait until the broker has deleted its local segments"):
        wait_until_tiered(servers, summary.console)
    stored = len(servers.index_objects())
    figures = f"{kill.segments_stored} segments stored, {kill.copies_running} being copied when killed; {stored} now"
    summary.check("tiering went on after kill -9", stored > kill.segments_stored, figures)
    with summary.step("Wait until the table has every committed record"):
        wait_until_published(servers, ledger.committed_count(), summary.console)


def _consume(summary: Summary, servers: Servers, ledger: Ledger, jmx: JmxReader) -> ReadBack:
    starts_before = servers.local_starts()
    bootstrap = servers.broker.bootstrap
    results = []
    for isolation in ISOLATIONS:
        expected = ledger.committed_count() + (ledger.aborted_count() if isolation == "read_uncommitted" else 0)
        with record_progress(summary.console, f"records, {isolation}", expected) as progress:
            results.append(read_back(bootstrap, TOPIC, ledger, isolation, progress))
        judge_reading(summary, f"Kafka's records are the producer's, {isolation}", expected, results[-1])
    origin = RemoteReads(
        starts_before,
        servers.local_starts(),
        jmx.topic_total("RemoteFetchBytesPerSec", TOPIC),
        int(servers.bridge.metric("tierberg_served_bytes_total", method="fetch")),
    )
    judge_origin(summary, results, origin)
    return results[0]


def _query(summary: Summary, folder: Path, servers: Servers, ledger: Ledger, committed: ReadBack) -> None:
    offset, event = min(ledger.committed[JFK].items())
    kafka = kafka_row(JFK, offset, event)
    console = summary.console
    engines: list[Engine] = []
    with summary.step("Ask the table in Spark"), spark_session(servers.bridge.folder, folder / "spark") as session:
        engines.append(ask_spark(session, TABLE, JFK, offset))
    with summary.step("Ask the table in PyIceberg and DuckDB"):
        engines.append(ask_duckdb(open_table(servers.bridge.folder, TABLE), JFK, offset))
    for number, query in enumerate(QUERIES):
        console.print(f"\n[bold]{query.question}")
        for engine in engines:
            show(console, engine.name, engine.answers[number])
    show_side_by_side(console, kafka, engines)
    judge_engines(summary, committed, kafka, engines)


def _figures(summary: Summary, servers: Servers, ledger: Ledger, jmx: JmxReader) -> None:
    committed, aborted = ledger.committed_count(), ledger.aborted_count()
    summary.figure("Kafka", servers.broker.options.version)
    summary.figure("records", f"{committed:,} committed, {aborted:,} aborted")
    summary.figure("keys, values and headers", mib(ledger.payload_bytes()))
    summary.figure("segments", f"{len(servers.index_objects())}")
    summary.figure("bytes in Kafka's segments", mib(jmx.topic_total("RemoteCopyBytesPerSec", TOPIC)))
    summary.figure("bytes in Parquet", mib(servers.stored_bytes("data")))
    summary.figure("bytes kept as they came", mib(servers.stored_bytes("kept")))
    summary.figure("bytes in segment indexes", mib(servers.stored_bytes("index")))
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
