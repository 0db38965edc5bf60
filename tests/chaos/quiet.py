"""From the last fault to the judgement: transactions end, segments close, everything is tiered."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException, Producer

from tests.chaos import limits
from tests.chaos.chaos_ledger import Acked, ChaosLedger
from tests.chaos.contents import Content
from tests.chaos.servers import Servers
from tests.chaos.topics import Topic
from tests.chaos.verdicts import Verdict
from tierberg.stack.errors import StackError
from tierberg.stack.waiting import wait_for


def settle(servers: Servers, topics: Sequence[Topic], ledger: ChaosLedger, say: Callable[[str], None]) -> list[Verdict]:
    """Heals, then waits. What does not come in time is a failed verdict, and the judgement goes on."""
    found = []
    for name, step in (
        ("servers are back", servers.heal),
        ("transactions end", lambda: _transactions_end(servers, topics)),
        ("all is tiered", lambda: _tiered(servers, topics, ledger, say)),
    ):
        say(f"waiting: {name}")
        verdict = Verdict(name, "all topics", 1)
        try:
            step()
        except (StackError, KafkaException) as error:
            verdict.add("stuck", error)
        found.append(verdict)
    return found


def _transactions_end(servers: Servers, topics: Sequence[Topic]) -> None:
    """The coordinator aborts what was left behind."""
    admin = servers.admin

    def ended() -> bool:
        return all(
            admin.stable_end_offsets(topic.name, topic.partitions) == admin.end_offsets(topic.name, topic.partitions)
            for topic in topics
        )

    wait_for("the last stable offset to reach the end", ended, limits.TRANSACTIONS_END_S, 1.0)


def _tiered(servers: Servers, topics: Sequence[Topic], ledger: ChaosLedger, say: Callable[[str], None]) -> None:
    """Closing records push what was produced out of the active segments, again and again until it is off the disks."""
    targets = {
        (topic.name, number): end
        for topic in topics
        for number, end in servers.admin.end_offsets(topic.name, topic.partitions).items()
    }
    deadline = time.monotonic() + limits.TIERED_S
    closing_at = 0.0
    by_name = {topic.name: topic for topic in topics}
    while True:
        left = {place: (local, end) for place, end in targets.items() if (local := servers.local_start(*place)) < end}
        if not left:
            return
        if time.monotonic() > deadline:
            shown = {f"{name}-{number}": span for (name, number), span in left.items()}
            raise StackError(f"not tiered after {limits.TIERED_S:.0f} s, local start and end: {shown}")
        if time.monotonic() > closing_at:
            closing_at = time.monotonic() + limits.CLOSING_EVERY_S
            say(f"waiting: {len(left)} partitions are not tiered yet")
            _close(servers, [(by_name[name], number) for name, number in left], ledger)
        time.sleep(1)


def _close(servers: Servers, places: Sequence[tuple[Topic, int]], ledger: ChaosLedger) -> None:
    """Two records to each that do not fit into one segment."""
    producer = Producer(
        {
            "bootstrap.servers": servers.kafka.bootstrap,
            "enable.idempotence": True,
            "message.max.bytes": 1_900_000,
            "log_level": 0,
        }
    )
    for topic, partition in places:
        for _ in range(2):
            content = Content(b"closing", os.urandom(limits.CLOSING_BYTES), (), int(time.time() * 1000))
            noted = _note(ledger, topic, partition, content)
            producer.produce(
                topic.name, content.value, content.key, partition, timestamp=content.timestamp_ms, on_delivery=noted
            )
            producer.flush(limits.FLUSH_S)


def _note(ledger: ChaosLedger, topic: Topic, partition: int, content: Content) -> Callable[..., None]:
    log_append = topic.shape.config.get("message.timestamp.type") == "LogAppendTime"

    def delivered(error: object, message: object) -> None:
        if error is not None:
            ledger.doubt(topic.name, content.digest)
            return
        offset, when = message.offset(), message.timestamp()[1]  # type: ignore[attr-defined]
        record = Acked(when if log_append else content.timestamp_ms, content.digest, 0)
        ledger.acknowledge((topic.topic_id, partition), offset, record, "closing")

    return delivered
