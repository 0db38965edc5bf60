"""One run from start to verdict."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.chaos_ledger import ChaosLedger
from tests.chaos.fault_acts import Acts
from tests.chaos.faulting import Faulting
from tests.chaos.hard_links import HardLinks
from tests.chaos.java_writer import JavaWriter, java_client
from tests.chaos.judge import Judge
from tests.chaos.lake_rows import LakeRows
from tests.chaos.quiet import settle
from tests.chaos.readers import Reader
from tests.chaos.servers import Servers
from tests.chaos.topics import SHAPES, UNCLEAN, Topic
from tests.chaos.verdicts import Verdict
from tests.chaos.writers import LibrdkafkaWriter, TransactionalWriter, Writer
from tierberg.stack.cluster_admin import ClusterAdmin

_SAY_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        minutes: of faults; waiting and judging come on top.
        seed: of the plan of faults.
        brokers: 1 or 3.
        bridges: how many.
        faults: names of those that may come.
        rate: records a second that are aimed at.
        folder: everything is kept in it.
    """

    minutes: float
    seed: int
    brokers: int
    bridges: int
    faults: Collection[str]
    rate: float
    folder: Path


@dataclass(slots=True)
class Result:
    """What came of it."""

    ledger: ChaosLedger
    faults: Counter[str]
    passed_over: Counter[str]
    reads: Counter[str]
    troubles: Counter[str]
    verdicts: list[Verdict]
    seconds: float


class ChaosRun:
    """Make it, :meth:`run` it once."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._options, self._say = options, say
        shim = {"peek.later.txn.indexes": "true"} if options.seed % 2 else {}
        self._servers = Servers.make(options.folder, options.brokers, options.bridges, shim)
        shapes = {**SHAPES, **(UNCLEAN if options.brokers > 1 and "unclean" in options.faults else {})}
        self._topics = [Topic(name, shape) for name, shape in shapes.items()]
        self._ledger = ChaosLedger()
        brokers = self._servers.kafka.brokers
        folders = {number: broker.log_folders for number, broker in brokers.items()}
        self._links = HardLinks(options.folder / "links", folders)

    def run(self) -> Result:
        """All of it; servers are stopped at the end, whatever happens."""
        begun = time.monotonic()
        self._say("starting servers")
        self._servers.start()
        java: ClusterAdmin | None = None
        try:
            for topic in self._topics:
                self._servers.create(topic)
            self._links.start()
            if self._options.brokers > 1:
                java = ClusterAdmin(self._servers.kafka.bootstrap, self._servers.kafka.version)
            acts = Acts(self._servers, self._topics, threading.Event(), java)
            return self._with(acts, begun)
        finally:
            self._say("stopping servers")
            self._links.stop()
            self._servers.stop()
            if java is not None:
                java.close()

    def _with(self, acts: Acts, begun: float) -> Result:
        options, ledger = self._options, self._ledger
        bootstrap = self._servers.kafka.bootstrap
        writers = self._writers(bootstrap)
        reading = [Reader(number, options.seed, bootstrap, ledger, self._topics) for number in range(2)]
        journal = options.folder / "faults.jsonl"
        faulting = Faulting(options.seed, options.brokers, options.faults, acts, journal, self._say)
        for writer in writers:
            writer.start(self._topics, options.rate / len(writers))
        for reader in reading:
            reader.start()
        faulting.start()
        try:
            self._watch(faulting, begun)
        finally:
            self._say("no more faults")
            faulting.stop()
            for writer in writers:
                writer.stop()
            for reader in reading:
                reader.stop()
            for writer in writers:
                writer.join()
        crashes = [one.crash for one in writers if one.crash] + [one.crash for one in reading if one.crash]
        found = self._side_verdicts(faulting, reading, crashes)
        found += settle(self._servers, self._topics, ledger, self._say)
        self._links.look()
        found += self._judged()
        reads = sum((reader.counts for reader in reading), Counter())
        troubles = sum((Counter(writer.failures) for writer in writers), Counter())
        return Result(ledger, faulting.done, faulting.passed_over, reads, troubles, found, time.monotonic() - begun)

    def _judged(self) -> list[Verdict]:
        lake = LakeRows(self._servers.lake.catalog.client_properties())
        with java_client() as java:
            judge = Judge(self._servers, self._ledger, self._links, lake, java, self._say)
            return judge.all(self._topics)

    def _writers(self, bootstrap: str) -> list[Writer]:
        seed, ledger = self._options.seed, self._ledger
        return [
            LibrdkafkaWriter("plain", 1, seed, bootstrap, ledger, idempotent=False),
            LibrdkafkaWriter("idempotent", 2, seed, bootstrap, ledger, idempotent=True),
            TransactionalWriter("transactions-a", 3, seed, bootstrap, ledger),
            TransactionalWriter("transactions-b", 4, seed, bootstrap, ledger),
            JavaWriter("java-a", 5, seed, bootstrap, ledger),
            JavaWriter("java-b", 6, seed, bootstrap, ledger),
        ]

    def _watch(self, faulting: Faulting, begun: float) -> None:
        end = time.monotonic() + self._options.minutes * 60
        while time.monotonic() < end:
            time.sleep(min(_SAY_EVERY_S, max(0.0, end - time.monotonic())))
            busy = " ".join(name for name in faulting.now.values() if name != "-")
            self._say(
                f"{self._ledger.total()} records acknowledged, {faulting.done.total()} faults; now: {busy or 'calm'}"
            )

    @staticmethod
    def _side_verdicts(faulting: Faulting, reading: list[Reader], crashes: list[str]) -> list[Verdict]:
        """What went wrong while faults were at work."""
        beside = Verdict("consumers beside the faults", "all topics", sum(one.counts["records"] for one in reading))
        for wrong in (wrong for reader in reading for wrong in reader.wrong):
            beside.add("wrong", wrong)
        came_back = Verdict("servers come back", "all servers", faulting.done.total())
        for broken in faulting.broken:
            came_back.add("broken", broken)
        ours = Verdict("writers and readers go on", "this program", len(reading))
        for crash in crashes:
            ours.add("ended", crash)
        return [beside, came_back, ours]
