"""Sends the flights while the broker tiers, kills the bridge on the way, and waits until the broker's disk is empty."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.exceptions import NoSuchTableError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tierberg.demo.avro import AvroFlights
from tierberg.demo.canonical import checksum_term
from tierberg.demo.checks import DemoSummary, mib
from tierberg.demo.columns import columns_text
from tierberg.demo.duck import open_table
from tierberg.demo.events import FLIGHTS, flights
from tierberg.demo.ledger import Ledger
from tierberg.demo.produce import Producers
from tierberg.demo.servers import AVRO_TOPIC, PARTITIONS, TABLES, TOPIC, TOPICS, Servers
from tierberg.stack.errors import StackError
from tierberg.stack.waiting import wait_for

#: Shares of the flights after which the bridge is killed and started again.
_KILL_AT, _RESTART_AT = 0.4, 0.6
_TIER_S = 300.0
_PUBLISH_S = 180.0
_LOOK_S = 0.5
_COPY_SEEN_S = 5.0
#: Flights between two looks at whether the bridge is to be killed or started.
_STEP = 1000


@dataclass(frozen=True, slots=True)
class KillReport:
    """The state of things at the moment of `kill -9`."""

    segments_stored: int
    copies_running: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent: the bridge's state when it was killed, and the checksum over the flights' columns."""

    kill: KillReport
    columns: int


def produce_with_kill(servers: Servers, ledgers: Mapping[str, Ledger], summary: DemoSummary) -> Sent:
    """Send every flight to both topics; kill the bridge at 40 % and start it again at 60 %."""
    killed: list[KillReport] = []
    columns = 0
    with _progress(summary) as progress, _watch_disk(servers, progress):
        bar = progress.add_task("flights sent", total=FLIGHTS, note="")

        def look(sent: int) -> None:
            progress.update(bar, completed=sent)
            if not killed and sent >= _KILL_AT * FLIGHTS:
                killed.append(_kill(servers))
                summary.console.print(
                    f"[bold red]kill -9[/bold red] of the bridge (process {servers.bridge.process.pid})"
                )
            elif killed and not servers.bridge.process.alive and sent >= _RESTART_AT * FLIGHTS:
                servers.bridge.start()
                summary.console.print(f"bridge started again (process {servers.bridge.process.pid})")

        producers = {topic: Producers(servers.broker.bootstrap, topic, ledgers[topic]) for topic in TOPICS}
        avro = AvroFlights(servers.registry.url, AVRO_TOPIC)
        for number, flight in enumerate(flights(), 1):
            producers[TOPIC].send(flight.event(flight.json()))
            producers[AVRO_TOPIC].send(flight.event(avro.encode(flight)))
            columns += checksum_term(columns_text(flight))
            if number % _STEP == 0 or number == FLIGHTS:
                look(number)
        for each in producers.values():
            each.close()
    return Sent(killed[0], columns)


def wait_until_tiered(servers: Servers, summary: DemoSummary) -> None:
    """Wait until the broker's own logs start at their ends: every record left its disk.

    Raises:
        StackError: that took longer than five minutes.
    """
    with _progress(summary) as progress, _watch_disk(servers, progress):
        bar = progress.add_task("offsets gone from the broker's disk", total=None, note="")

        def tiered() -> bool:
            # Asked again each time: the marker of the last transaction may be written after its producer has returned.
            ends = [servers.admin.end_offsets(topic, PARTITIONS) for topic in TOPICS]
            starts = [servers.local_starts(topic) for topic in TOPICS]
            done, total = (sum(sum(offsets.values()) for offsets in all_of) for all_of in (starts, ends))
            progress.update(bar, completed=done, total=total)
            return starts == ends

        wait_for("the broker to delete its local segments", tiered, _TIER_S, _LOOK_S)


def wait_until_published(servers: Servers, rows: int, summary: DemoSummary) -> None:
    """Wait until the current snapshot of each table has `rows` rows.

    Raises:
        StackError: one had fewer, or more, for three minutes.
    """
    with _progress(summary) as progress:
        bar = progress.add_task("rows in the Iceberg tables", total=rows * len(TOPICS), note="")

        def published() -> bool:
            found = [published_rows(servers, topic) for topic in TOPICS]
            progress.update(bar, completed=sum(found))
            return all(count == rows for count in found)

        wait_for(f"{rows} rows in {' and '.join(TABLES.values())}", published, _PUBLISH_S, _LOOK_S)


@contextmanager
def record_progress(summary: DemoSummary, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar; the block calls what it is given with how many more there are."""
    with _progress(summary) as progress:
        bar = progress.add_task(what, total=total, note="")
        yield lambda count: progress.advance(bar, count)


def published_rows(servers: Servers, topic: str) -> int:
    """Rows of the current snapshot of the topic's table, by its summary; 0 while there is no table."""
    try:
        snapshot = open_table(servers.bridge.folder, TABLES[topic]).current_snapshot()
    except NoSuchTableError:
        return 0
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)


def _kill(servers: Servers) -> KillReport:
    """Kill the bridge, in the middle of a copy when one is seen within five seconds."""
    with contextlib.suppress(StackError):
        wait_for("a running copy", lambda: servers.bridge.metric("tierberg_copies_running") > 0, _COPY_SEEN_S, 0.01)
    copies = int(servers.bridge.metric("tierberg_copies_running"))
    servers.bridge.kill()
    return KillReport(len(servers.index_objects()), copies)


def _progress(summary: DemoSummary) -> Progress:
    """Bars that go when they are full; where nobody can see them move they stay, or are not there at all."""
    moving = summary.console.is_terminal
    bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(
        *bars,
        TextColumn("{task.fields[note]}"),
        console=summary.console,
        transient=not summary.verbose,
        disable=not (moving or summary.verbose),
    )


@contextmanager
def _watch_disk(servers: Servers, progress: Progress) -> Iterator[None]:
    """Show segments in the store and bytes on the broker's disk until the block ends."""
    stop = threading.Event()
    bar = progress.add_task("segments in the store", total=None, note="")

    def look() -> None:
        while not stop.wait(_LOOK_S):
            _show_disk(servers, progress, bar)
        _show_disk(servers, progress, bar)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def _show_disk(servers: Servers, progress: Progress, bar: TaskID) -> None:
    note = f"{mib(servers.local_bytes())} on the broker's disk"
    progress.update(bar, completed=len(servers.index_objects()), note=note)
