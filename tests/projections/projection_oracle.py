"""What the projections of a topic must be, from its log alone, by a list and a dict.

The append projection has each record once, the upsert projection the latest row of each key that was not deleted;
what cannot be a row is a dead letter. Whatever Kafka's retention deletes stays in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.projections.projection_values import Value, bare, row
from tests.support.shim_client import Segment

NAMES = {"append": ("kafka", "all_orders"), "upsert": ("kafka", "orders_now")}
Kind = Literal["plain", "debezium", "moving"]
Place = tuple[int, int]  # partition, offset


@dataclass(frozen=True)
class Shape:
    """Of topic and projections. `moving`: keys change partitions, and timestamps order them. `where`: some rows."""

    kind: Kind = "plain"
    writes: str = "merge-on-read"
    version: int = 2
    where: bool = True

    def rules(self) -> tuple[dict[str, Any], ...]:
        """Of the projections."""
        append: dict[str, Any] = {"table": NAMES["append"][1], "format_version": self.version}
        upsert = {"table": NAMES["upsert"][1], "format_version": self.version, "row_writes": self.writes}
        upsert |= {"mode": "upsert"}
        if self.kind == "debezium":
            upsert |= {"key": ["id"], "envelope": "debezium"}
        else:
            append |= {"partition_by": ["bucket(3, id)"], "sort_by": ["n desc"]}
            append |= {"select": ["*", "60 div (n % 5) AS share"], "where": "n IS NULL OR n % 7 <> 3"}
            upsert |= {"key": ["k"], "partition_by": ["bucket(2, k)"]}
            upsert |= {"select": ["cast(_kafka_key AS string) AS k", "*", "60 div (n % 5) AS share"]}
        if self.kind == "moving":
            return append, upsert | {"key_order": "timestamp"}
        return append, upsert | ({"where": "n % 7 <> 3"} if self.where else {})


@dataclass(frozen=True)
class Entry:
    """A record: its value, with `debezium` the event; None is a tombstone. `late`: the table has no row of it yet."""

    key: bytes | None
    value: Value | None
    time: int
    broken: bool = False
    late: bool = False


@dataclass
class Log:
    """One partition: records by offset; segments that Kafka still has, each with the end of what is alive of it, and
    where they begin; epoch of the leader."""

    entries: list[Entry] = field(default_factory=list)
    segments: list[tuple[Segment, int]] = field(default_factory=list)
    start: int = 0
    epoch: int = 0


@dataclass
class Expected:
    """Columns of rows by place (append) and by key (upsert), last changes by key, and dead letters by projection."""

    log: dict[Place, Value] = field(default_factory=dict)
    rows: dict[Any, Value] = field(default_factory=dict)
    last: dict[Any, Place] = field(default_factory=dict)
    letters: dict[str, set[tuple[int, int, int]]] = field(default_factory=lambda: {name: set() for name in NAMES})


def expected(logs: Sequence[Log], shape: Shape) -> Expected:
    """Once everything was read that has rows."""
    found = Expected()
    places = [((p, o), entry) for p, log in enumerate(logs) for o, entry in enumerate(log.entries) if not entry.late]
    for at, entry in places:
        if entry.broken or (shape.kind != "debezium" and _fails(entry)):
            found.letters["append"].add((*at, entry.time))
        elif shape.kind == "debezium" or entry.value is None or entry.value["n"] % 7 != 3:
            found.log[at] = _columns(entry.value, shape)
    if shape.kind == "moving":
        places.sort(key=lambda item: (item[1].time, item[0]))
    for at, entry in places:
        for key, value in () if entry.broken else _changes(entry, shape):
            if key is None:
                found.letters["upsert"].add((*at, entry.time))
                continue
            found.rows.pop(key, None)
            found.last[key] = at
            if value is not None:
                found.rows[key] = value
        if entry.broken:
            found.letters["upsert"].add((*at, entry.time))
    return found


def _fails(entry: Entry) -> bool:
    """Whether `select` divides by zero."""
    return entry.value is not None and entry.value["n"] % 5 == 0


def _columns(value: Value | None, shape: Shape) -> Value:
    if value is None:
        return {}
    if shape.kind == "debezium":
        sides = {name: None if value[name] is None else row(value[name]) for name in ("before", "after")}
        return dict(bare(sides | {"op": value["op"]}))
    return row(value) | {"share": 60 // (value["n"] % 5)}


def _changes(entry: Entry, shape: Shape) -> Iterator[tuple[Any, Value | None]]:
    """Keys, and their rows; a key of None is a dead letter, a row of None a delete."""
    value = entry.value
    if shape.kind != "debezium":
        key = None if entry.key is None or _fails(entry) else entry.key.decode()
        gone = value is None or (shape.kind == "plain" and shape.where and value["n"] % 7 == 3)
        yield key, None if gone or key is None else {"k": key} | _columns(value, shape)
    elif value is not None:
        before, after = value["before"], value["after"]
        if before is not None:
            yield before["id"], None
        if after is not None:
            yield after["id"], row(after) if not shape.where or after["n"] % 7 != 3 else None
        if before is None and after is None:
            yield None, None
