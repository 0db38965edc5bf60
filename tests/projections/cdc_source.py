"""A database table and what a connector says of it: an oracle that knows rows, not how a projection is written.

Forms of the events are the PostgreSQL connector's (Debezium 3, "Data change events"): a changed primary key is a delete
and an insert, a text that an update leaves alone may be the placeholder, a truncation has no key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from tests.projections.projection_support import Sent, framed

PLACEHOLDER = "__debezium_unavailable_value"
Row = dict[str, Any]
Form = Literal["json", "json with schemas", "avro"]
#: Of replica identity: what `before` has.
Identity = Literal["default", "index", "full"]

_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "body", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    ],
}
_SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": "connector", "type": "string"}, {"name": "lsn", "type": "long"}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", _ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": _SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}


@dataclass
class CdcSource:
    """One table and its events so far.

    Attributes:
        random: decides what happens.
        form: of the events.
        identity: of the table.
        rows: as they are, by id.
        gone: rows that were deleted and not made again, as they were, by id; a truncation forgets all.
        known: ids whose `body` has been said since the row was made; of others nobody can know it.
    """

    random: Random
    form: Form = "json"
    identity: Identity = "default"
    rows: dict[int, Row] = field(default_factory=dict)
    gone: dict[int, Row] = field(default_factory=dict)
    lsn: int = 0

    def snapshot(self, count: int) -> list[Sent]:
        """What a topic begins with."""
        events: list[Sent] = []
        for number in range(count):
            self.rows[number] = self._row(number)
            events.append(self._event("r", number, None, self.rows[number]))
        return events

    def step(self) -> list[Sent]:
        """Something happens to the table; its events."""
        verb = self.random.choices(
            ["insert", "update", "delete", "move", "truncate", "message", "resnapshot"], [4, 10, 3, 2, 0.3, 0.5, 0.5]
        )[0]
        if verb == "message":
            message = {"op": "m", "before": None, "after": None, "source": self._source(), "ts_ms": 1}
            return [(json.dumps({"prefix": "p"}).encode(), self._framed(message))]
        if verb == "truncate":
            self.rows.clear()
            self.gone.clear()
            return [(None, self._framed(self._body("t", None, None)))]
        if verb == "insert" or not self.rows:
            number = self.random.randrange(12)
            return self._update(number) if number in self.rows else self._insert(number)
        number = self.random.choice(sorted(self.rows))
        if verb == "update":
            return self._update(number)
        if verb == "delete":
            return self._delete(number)
        if verb == "resnapshot":
            return [self._event("r", number, None, self.rows[number])]
        other = self.random.randrange(12, 20)
        if other in self.rows:
            return self._update(number)
        row = {**self.rows[number], "id": other}
        events = self._delete(number)
        self.rows[other] = row
        self.gone.pop(other, None)
        return [*events, self._event("c", other, None, row)]

    def _insert(self, number: int) -> list[Sent]:
        self.rows[number] = self._row(number)
        self.gone.pop(number, None)
        return [self._event("c", number, None, self.rows[number])]

    def _update(self, number: int) -> list[Sent]:
        was = self.rows[number]
        new = {**self._row(number), **{name: was[name] for name in ("body", "tags") if self.random.random() < 0.6}}
        self.rows[number] = new
        said = dict(new)
        if self.identity != "full":
            for name, form in (("body", PLACEHOLDER), ("tags", [PLACEHOLDER])):
                if new[name] is not None and new[name] == was[name]:
                    said[name] = form
        return [self._event("u", number, self._before(was), said)]

    def _delete(self, number: int) -> list[Sent]:
        was = self.rows.pop(number)
        self.gone[number] = was
        before = self._before(was) or {"id": number, "name": None, "body": None, "tags": None}
        return [self._event("d", number, before, None), (self._key(number), None)]

    def _before(self, row: Row) -> Row | None:
        if self.identity == "default":
            return None
        return dict(row) if self.identity == "full" else {**dict.fromkeys(row), "id": row["id"]}

    def _row(self, number: int) -> Row:
        serial = self.random.randrange(1000)
        return {
            "id": number,
            "name": self.random.choice([None, f"n{serial}"]),
            "body": self.random.choice([None, f"b{serial}" * 3]),
            "tags": self.random.choice([None, [f"t{serial}"], ["a", "b"]]),
        }

    def _event(self, op: str, number: int, before: Row | None, after: Row | None) -> Sent:
        return self._key(number), self._framed(self._body(op, before, after))

    def _body(self, op: str, before: Row | None, after: Row | None) -> Row:
        return {"before": before, "after": after, "source": self._source(), "op": op, "ts_ms": 1_700_000_000_000}

    def _source(self) -> Row:
        self.lsn += 8
        return {"connector": "postgresql", "lsn": self.lsn}

    def _key(self, number: int) -> bytes:
        key = {"id": number}
        return json.dumps({"schema": {"type": "struct"}, "payload": key} if "schemas" in self.form else key).encode()

    def _framed(self, event: Row) -> bytes:
        if self.form == "avro":
            return framed(1, ENVELOPE, event)
        event["transaction"] = {"id": "571", "total_order": 1, "data_collection_order": 1}
        return json.dumps(
            {"schema": {"type": "struct"}, "payload": event} if "schemas" in self.form else event
        ).encode()
