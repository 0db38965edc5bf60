"""What the demo says of records that come back wrong. The consumer is a script; the real one is used end to end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tierberg.demo import consume
from tierberg.demo.consume import read_back
from tierberg.demo.errors import DemoError
from tierberg.demo.events import Event
from tierberg.demo.ledger import Ledger

EVENT = Event(partition=0, key=b"k", value=b"value", headers=(("h", b"1"), ("h", None)), timestamp_ms=1234)


class FakeMessage:
    def __init__(self, offset: int, event: Event | None, error: KafkaError | None = None) -> None:
        self._offset, self._event, self._error = offset, event, error

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._event.key if self._event else None

    def value(self) -> bytes | None:
        return self._event.value if self._event else None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._event.headers) if self._event and self._event.headers else None

    def timestamp(self) -> tuple[int, int]:
        return (1, self._event.timestamp_ms if self._event else -1)


END = FakeMessage(-1, None, KafkaError(KafkaError._PARTITION_EOF))


class FakeConsumer:
    script: list[FakeMessage] = []

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def assign(self, partitions: list[Any]) -> None:
        assert [partition.offset for partition in partitions] == [0]

    def consume(self, count: int, timeout: float) -> list[FakeMessage]:
        messages, FakeConsumer.script = FakeConsumer.script, []
        return messages

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def fake_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "Consumer", FakeConsumer)
    monkeypatch.setattr(consume, "_PATIENCE_S", 0.05)


def ledger_of(*events: Event) -> Ledger:
    ledger = Ledger()
    for offset, event in enumerate(events):
        ledger.add(offset, event, committed=True)
    return ledger


def read(ledger: Ledger, *messages: FakeMessage, isolation: consume.Isolation = "read_committed") -> consume.ReadBack:
    FakeConsumer.script = list(messages)
    return read_back("nowhere", "t", ledger, isolation, lambda _: None)


def test_equal_records_pass() -> None:
    result = read(ledger_of(EVENT, EVENT), FakeMessage(0, EVENT), FakeMessage(1, EVENT), END)
    assert (result.records, result.differing, result.last_offset) == (2, 0, {0: 1})
    assert result.checksum > 0


@pytest.mark.parametrize(
    "wrong",
    [
        replace(EVENT, key=None),
        replace(EVENT, key=b""),
        replace(EVENT, value=b"valuE"),
        replace(EVENT, headers=()),
        replace(EVENT, headers=(("h", None), ("h", b"1"))),
        replace(EVENT, timestamp_ms=1235),
    ],
)
def test_a_changed_field_is_told(wrong: Event) -> None:
    result = read(ledger_of(EVENT), FakeMessage(0, wrong), END)
    assert result.differing == 1
    assert "partition 0 offset 0: sent" in result.differences[0]


def test_a_missing_record_is_told() -> None:
    result = read(ledger_of(EVENT, EVENT), FakeMessage(0, EVENT), END)
    assert result.differences == ["partition 0 offset 1 did not come back"]


def test_a_doubled_record_is_told() -> None:
    result = read(ledger_of(EVENT), FakeMessage(0, EVENT), FakeMessage(0, EVENT), END)
    assert result.differences == ["partition 0 offset 0 came back and should not have"]


def test_a_leaked_aborted_record_is_told() -> None:
    ledger = ledger_of(EVENT)
    ledger.add(1, EVENT, committed=False)
    messages = (FakeMessage(0, EVENT), FakeMessage(1, EVENT), END)
    assert read(ledger, *messages).differing == 1
    assert read(ledger, *messages, isolation="read_uncommitted").differing == 0


def test_many_differences_are_counted_and_few_are_shown() -> None:
    events = [EVENT] * 50
    result = read(ledger_of(*events), END)
    assert result.differing == 50
    assert len(result.differences) == 5


def test_silence_ends_the_reading() -> None:
    with pytest.raises(DemoError, match="no record came"):
        read(ledger_of(EVENT), FakeMessage(0, EVENT))


def test_an_error_that_lasts_ends_the_reading() -> None:
    with pytest.raises(DemoError, match="reading back failed"):
        read(ledger_of(EVENT), FakeMessage(0, None, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))


def test_the_broker_may_not_give_an_offset_twice() -> None:
    ledger = ledger_of(EVENT)
    with pytest.raises(ValueError, match="acknowledged twice"):
        ledger.add(0, EVENT, committed=True)


def test_the_ledger_counts_and_weighs() -> None:
    ledger = ledger_of(EVENT)
    ledger.add(1, replace(EVENT, key=None, headers=()), committed=False)
    assert (ledger.committed_count(), ledger.aborted_count()) == (1, 1)
    assert ledger.payload_bytes() == (1 + 5 + 1 + 1 + 1) + 5
