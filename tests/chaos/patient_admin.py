"""The stack's administrative client, for a world in which brokers come and go: questions are asked again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from tests.chaos.limits import ADMIN_S
from tierberg.stack.admin import Admin

T = TypeVar("T")
#: No answer: the client lost the broker, or dropped an address it had been given to begin with. Or the answer of a
#: broker that has not heard of a topic yet, or of its leader.
_ASK_AGAIN = (
    KafkaError._DESTROY_BROKER,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)


def patiently(call: Callable[[], T]) -> T:
    """What the call gives; one that failed for want of a broker is made again until ADMIN_S."""
    deadline = time.monotonic() + ADMIN_S
    while True:
        try:
            return call()
        except KafkaException as error:
            cause = error.args[0]
            if not (cause.retriable() or cause.code() in _ASK_AGAIN) or time.monotonic() > deadline:
                raise
            time.sleep(0.5)


class PatientAdmin(Admin):
    """Its questions; what it changes fails as before."""

    def start_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return patiently(lambda: Admin.start_offsets(self, topic, partitions))

    def end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return patiently(lambda: Admin.end_offsets(self, topic, partitions))

    def stable_end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return patiently(lambda: Admin.stable_end_offsets(self, topic, partitions))

    def leader(self, topic: str, partition: int) -> int | None:
        return patiently(lambda: Admin.leader(self, topic, partition))

    def under_replicated(self) -> list[str]:
        return patiently(lambda: Admin.under_replicated(self))

    def topic_names(self) -> set[str]:
        return patiently(lambda: Admin.topic_names(self))

    def topic_id(self, topic: str) -> str:
        return patiently(lambda: Admin.topic_id(self, topic))
