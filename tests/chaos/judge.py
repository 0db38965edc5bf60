"""The judgement, when all is quiet: bytes, consumers of two libraries and tables against ledger and brokers' files."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from tests.chaos import java_writer, readers, verdicts
from tests.chaos.chaos_ledger import ChaosLedger
from tests.chaos.hard_links import HardLinks
from tests.chaos.lake_rows import LakeRows
from tests.chaos.limits import PUBLISHED_S
from tests.chaos.raw_fetch import FetchError, RawFetch
from tests.chaos.record_batches import Batch
from tests.chaos.served_bytes import served_bytes
from tests.chaos.servers import Servers
from tests.chaos.topics import Topic, hex_of
from tests.chaos.true_log import TrueLog
from tests.chaos.verdicts import Verdict
from tierberg.stack.errors import StackError
from tierberg.stack.java_program import JavaProgram


@dataclass(slots=True)
class Judge:
    """Goes through all topics; `found` has every verdict."""

    servers: Servers
    ledger: ChaosLedger
    links: HardLinks
    lake: LakeRows
    java: JavaProgram
    say: Callable[[str], None]
    found: list[Verdict] = field(default_factory=list)
    _logs: dict[tuple[str, int], TrueLog] = field(default_factory=dict)
    _transactions: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def all(self, topics: Sequence[Topic]) -> list[Verdict]:
        for topic in topics:
            for partition in topic.partitions:
                self.say(f"judging {topic.name}-{partition}: bytes and consumers")
                self._partition(topic, partition)
        for topic in topics:
            self.say(f"judging {topic.name}: table")
            self._table(topic)
            for former in topic.former:
                self._former(topic, former)
        self.found.append(verdicts.atomic(self._transactions))
        losing = {name for topic in topics if topic.shape.unclean for name in (topic.topic_id, *topic.former)}
        self.found.append(verdicts.acknowledged_once(self.ledger.conflicts, self.ledger.total(), losing))
        return self.found

    def _log(self, topic_id: str, partition: int) -> TrueLog:
        key = (topic_id, partition)
        if key not in self._logs:
            self._logs[key] = TrueLog.read(self.links.files(topic_id, partition), self.links.aborts)
        return self._logs[key]

    def _partition(self, topic: Topic, partition: int) -> None:
        where = f"{topic.name}-{partition}"
        admin = self.servers.admin
        start = admin.start_offsets(topic.name, [partition])[partition]
        span = (start, admin.end_offsets(topic.name, [partition])[partition])
        log = self._log(topic.topic_id, partition)
        served: list[Batch] = []
        verdict, chosen = served_bytes(where, self._served(topic.name, partition, span, served), log, span)
        if served and served[-1].last + 1 < span[1]:
            verdict.add("lost", f"{served[-1].last + 1} to {span[1] - 1}")
        self.found.append(verdict)
        if topic.shape.unclean:
            # Which branch lives is for the brokers to say.
            log.follow(chosen)
        elif log.differing:
            verdict.add("replicas differ", log.differing[:3])
        for hole in log.holes:
            if hole[1] >= start:
                verdict.add("files miss", hole)
        self._consumers(where, topic.name, partition, span, log)
        if not topic.shape.unclean:
            self._ledger(topic, partition, start, log)

    def _served(self, topic: str, partition: int, span: tuple[int, int], served: list[Batch]) -> Sequence[Batch]:
        broker = self.servers.leader(topic, partition)
        try:
            with RawFetch("127.0.0.1", broker.port) as client:
                for batch in client.all(topic, partition, *span):
                    served.append(batch)
        except (FetchError, OSError) as error:
            failed = Verdict("raw fetch", f"{topic}-{partition}", len(served))
            failed.add("stopped", error)
            self.found.append(failed)
        return served

    def _consumers(self, where: str, topic: str, partition: int, span: tuple[int, int], log: TrueLog) -> None:
        bootstrap = self.servers.kafka.bootstrap
        for committed in (True, False):
            isolation = "read_committed" if committed else "read_uncommitted"
            expected = log.visible(*span, committed=committed)
            for library in ("librdkafka", "java"):
                check = f"{library} {isolation}"
                try:
                    if library == "java":
                        got = java_writer.consume(self.java, bootstrap, topic, partition, span, committed=committed)
                    else:
                        got = readers.consume(bootstrap, topic, partition, span, committed=committed)
                except (StackError, KafkaException, TimeoutError) as error:
                    failed = Verdict(check, where)
                    failed.add("stopped", error)
                    self.found.append(failed)
                    continue
                forgotten = log.forgotten if committed else ()
                self.found.append(verdicts.consumed(check, where, got, expected, forgotten))

    def _ledger(self, topic: Topic, partition: int, start: int, log: TrueLog) -> None:
        where = f"{topic.name}-{partition}"
        place = (topic.topic_id, partition)
        acked = self.ledger.acked[place]
        self.found.append(verdicts.ledger(where, acked, log.records, self.ledger.ends, start))
        allowed = self.ledger.uncertain[topic.name].copy()
        allowed.update(self.ledger.placeless[place])
        self.found.append(verdicts.unexplained(where, acked, log.records, allowed, self.ledger.repeatable))
        asked = None if topic.retained else topic.deleted_below.get(partition, 0)
        self.found.append(verdicts.log_start(where, start, asked))
        for offset, sent in acked.items():
            if sent.transaction and offset in log.records:
                self._transactions[sent.transaction].add(log.records[offset].state)

    def _table(self, topic: Topic) -> None:
        spans = {partition: self._table_span(topic, partition) for partition in topic.partitions}
        topic_id = hex_of(topic.topic_id)
        self._wait_published(topic, topic_id, spans)
        rows = self.lake.rows(topic_id)
        for partition, span in spans.items():
            log = self._log(topic.topic_id, partition)
            self.found.append(verdicts.table(f"{topic.name}-{partition}", rows[partition], log.records, span))

    def _table_span(self, topic: Topic, partition: int) -> tuple[int, int]:
        start = self.servers.admin.start_offsets(topic.name, [partition])[partition]
        return 0 if topic.shape.kept else start, max(start, self.servers.local_start(topic.name, partition))

    def _wait_published(self, topic: Topic, topic_id: str, spans: dict[int, tuple[int, int]]) -> None:
        """Until every row is there that must be; what is missing after the deadline is for the verdict to say."""
        wanted = {
            partition: set(self._log(topic.topic_id, partition).visible(*span, committed=True))
            for partition, span in spans.items()
        }
        deadline = time.monotonic() + PUBLISHED_S
        while time.monotonic() < deadline:
            have = self.lake.offsets(topic_id)
            missing = {number: len(rows - have.get(number, set())) for number, rows in wanted.items()}
            if not any(missing.values()):
                return
            self.say(f"waiting for rows of {topic.name}: missing {missing}")
            time.sleep(5)

    def _former(self, topic: Topic, topic_id: str) -> None:
        """What is left of a topic that was deleted: nothing that was not committed."""
        for partition, rows in self.lake.rows(hex_of(topic_id)).items():
            log = self._log(topic_id, partition)
            where = f"{topic.name}-{partition} as {topic_id}"
            verdict = verdicts.table(where, rows, log.records, (0, 0))
            verdict.check = "table of a deleted topic"
            self.found.append(verdict)
