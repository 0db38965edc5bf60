"""Ids that the registry answers for with something else: how long rows wait for them, and who hears of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
import structlog
from structlog.testing import capture_logs

from rsm_bridge.limits import REGISTRY_REFUSED_SECONDS, REGISTRY_REFUSED_TRIES_MIN
from rsm_bridge.values.registry.errors import RegistryUnavailableError, SchemaRefusedError, SchemaUnknownError
from rsm_bridge.values.registry.schemas import RegisteredSchema
from rsm_bridge.values.typed.schema_waits import OF_RULE, SchemaWaits, is_hopeless
from rsm_bridge.values.typed.schemas import ColumnsWaitError, SchemaRule, ValueSchemas

ENOUGH = REGISTRY_REFUSED_TRIES_MIN


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(sort: str = "403", tries: int = ENOUGH, *, malformed: bool = False) -> SchemaRefusedError:
    error = SchemaRefusedError("said so", answer=f"{sort}, denied", sort=sort, malformed=malformed)
    error.tries = tries
    return error


def is_over(waits: SchemaWaits, schema_id: int, error: RegistryUnavailableError) -> bool:
    try:
        waits.require_hope(schema_id, error)
    except SchemaUnknownError:
        return True
    return False


@pytest.mark.parametrize(
    ("tries", "seconds", "malformed", "hopeless"),
    [
        (ENOUGH, REGISTRY_REFUSED_SECONDS, False, True),
        (ENOUGH, REGISTRY_REFUSED_SECONDS - 0.1, False, False),
        (ENOUGH - 1, REGISTRY_REFUSED_SECONDS * 10, False, False),
        (ENOUGH, 0.0, True, True),
        (ENOUGH - 1, REGISTRY_REFUSED_SECONDS * 10, True, False),
    ],
)
def test_a_refused_id_is_waited_for_so_long(tries: int, seconds: float, malformed: bool, hopeless: bool) -> None:
    assert REGISTRY_REFUSED_SECONDS == 600
    assert ENOUGH > 2
    assert is_hopeless(tries=tries, seconds=seconds, malformed=malformed) == hopeless


def test_rows_say_what_the_registry_answers() -> None:
    waits = SchemaWaits(patient=False)
    with pytest.raises(SchemaUnknownError, match=r"^schema id 7: the registry answers 403, denied$"):
        waits.require_hope(7, refused(tries=1))


def test_many_ids_take_no_longer_than_one() -> None:
    clock = Clock()
    waits = SchemaWaits(clock=clock)
    assert not is_over(waits, 1, refused())
    clock.now += REGISTRY_REFUSED_SECONDS
    assert is_over(waits, 1, refused())
    assert is_over(waits, 2, refused())
    assert not is_over(waits, 3, refused(tries=1))
    assert not is_over(waits, 4, refused("500"))  # of which the registry has answered nothing so far


def test_a_rare_id_does_not_wait_anew_each_time_and_another_one_does() -> None:
    clock = Clock()
    waits = SchemaWaits(clock=clock)
    is_over(waits, 1, refused())
    clock.now += REGISTRY_REFUSED_SECONDS
    assert is_over(waits, 1, refused())
    clock.now += REGISTRY_REFUSED_SECONDS + 1
    assert not is_over(waits, 2, refused())
    assert is_over(waits, 1, refused("500", tries=1))
    waits.ended(1)
    assert not is_over(waits, 1, refused())


def test_what_no_producer_chooses_waits_without_end() -> None:
    clock = Clock()
    waits = SchemaWaits(clock=clock)
    away = RegistryUnavailableError("away")
    for _ in range(100):
        assert not is_over(waits, OF_RULE, refused(tries=1000))
        assert not is_over(waits, 1, away)
        clock.now += REGISTRY_REFUSED_SECONDS
    assert is_over(waits, 1, refused())
    assert not is_over(waits, 1, away)


def test_each_id_is_logged_once_as_it_begins_to_wait_and_once_at_the_end() -> None:
    clock = Clock()
    with capture_logs() as logs:
        waits = SchemaWaits(topic="orders", log=structlog.get_logger(), clock=clock)
        for tries in range(1, 50):
            for number in (1, 2, OF_RULE):
                is_over(waits, number, refused(tries=tries))
            is_over(waits, 3, RegistryUnavailableError("away"))
            clock.now += 30
    assert all((line["log_level"], line["topic"]) == ("warning", "orders") for line in logs)
    waiting, dead = "rows wait for a schema", "rows of a schema are dead letters"
    said = [(line["event"], line.get("schema_id"), line["error"]) for line in logs]
    assert said == [
        (waiting, 1, "said so"),
        (waiting, 2, "said so"),
        (waiting, None, "said so"),
        (waiting, 3, "away"),
        (dead, 1, "said so"),
        (dead, 2, "said so"),
    ]


class Refusing:
    """A registry that refuses ids above 1, and remembers which it was asked for."""

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.asked: list[int] = []

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id > 1:
            raise refused(tries=self.tries)
        return RegisteredSchema(schema_id, "avro", '"long"', {})

    def ask(self, schema_ids: Iterable[int]) -> None:
        pass


def test_all_ids_of_some_values_begin_to_wait_together() -> None:
    clock = Clock()
    registry: Any = Refusing(1)
    schemas = ValueSchemas(rule=SchemaRule(kind=None, source="wire"), registry=registry, waits=SchemaWaits(clock=clock))
    values = pa.array([b"\0\0\0\0" + bytes([number]) + b"\2" for number in (1, 2, 3, 4)], pa.binary())
    with pytest.raises(ColumnsWaitError, match="said so"):
        schemas.parted(values)
    assert registry.asked == [1, 2, 3, 4]
    clock.now += REGISTRY_REFUSED_SECONDS
    registry.tries = ENOUGH
    found = [schemas.decoder(part.writer) for part in schemas.parted(values).parts]
    assert [isinstance(item, str) for item in found] == [False, True, True, True]
    assert found[1] == "unknown_schema: schema id 2: the registry answers 403, denied"
