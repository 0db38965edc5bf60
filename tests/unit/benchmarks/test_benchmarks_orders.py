"""The stream of orders of the projection's benchmark: keys that stay in their partition, each order placed once."""

from __future__ import annotations

import json
from itertools import islice

from benchmarks.orders import ARROW, BEGIN_MS, DAY_MS, KEYS, ORDERS, PARTITIONS, Sized, events

SMALL = Sized(orders=2_000, days=4)


def test_every_order_is_placed_once_over_all_days() -> None:
    placed = list(events(SMALL, 0, SMALL.orders))
    assert sorted(json.loads(event.value)["order_id"] for event in placed) == list(range(SMALL.orders))
    days = [(event.timestamp_ms - BEGIN_MS) // DAY_MS for event in placed]
    assert days == sorted(days)
    assert {day: days.count(day) for day in range(4)} == dict.fromkeys(range(4), 500)


def test_each_key_stays_in_its_partition() -> None:
    seen: dict[tuple[str, int], int] = {}
    for event in events(SMALL, 0, SMALL.orders + 1_000):
        value = json.loads(event.value)
        for name in KEYS:
            assert seen.setdefault((name, value[name]), event.partition) == event.partition
    assert set(seen.values()) == set(range(PARTITIONS))


def test_values_have_the_columns_of_the_table() -> None:
    value = json.loads(next(events(Sized(), ORDERS + 5, 1)).value)
    assert list(value) == ARROW.names
    assert value["event"] == ORDERS + 5


def test_a_stretch_of_it_is_the_same_every_time() -> None:
    first = [event.value for event in islice(events(Sized(), 0, 100), 50)]
    assert first == [event.value for event in islice(events(Sized(), 0, 100), 50)]
