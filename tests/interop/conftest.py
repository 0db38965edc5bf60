"""What the interop tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.kafka_classes import KafkaClasses


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaClasses]:
    """Kafka's own classes in a Java process."""
    with KafkaClasses() as classes:
        yield classes
