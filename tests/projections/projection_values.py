"""Avro values of orders in several versions, as writers that are upgraded one by one send them, and what rows have."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.projections.projection_support import framed

Value = dict[str, Any]
NULL: Any = "null"


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def _decimal(digits: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}


def _nested(level: int) -> list[tuple[str, Any]]:
    """A struct, a map and a list, whose values are structs; at level 2 each has got a wider and a new field."""
    number = "int" if level == 1 else "long"
    more: list[tuple[str, Any]] = [] if level == 1 else [("more", [NULL, "string"])]
    return [
        ("at", [NULL, _record("At", ("x", "string"), ("y", number), *more)]),
        ("tags", [NULL, {"type": "map", "values": _record("Tag", ("y", number), *more)}]),
        ("items", [NULL, {"type": "array", "items": _record("Item", ("y", number), *more)}]),
    ]


#: Fields of an order by version. New columns, a wider integer, a wider decimal, nested fields, wider nested ones, and
#: last a type that does not fit the column.
_ORDER: tuple[list[tuple[str, Any]], ...] = (
    [("id", [NULL, "int"]), ("n", "int"), ("price", _decimal(5))],
    [("id", [NULL, "long"]), ("n", "int"), ("price", _decimal(12)), ("größe", [NULL, "string"])],
    [("id", [NULL, "long"]), ("n", "int"), *_nested(1)],
    [("id", [NULL, "long"]), ("n", "long"), *_nested(2)],
    [("id", [NULL, "long"]), ("n", "int"), ("price", "string")],
)
VERSIONS = len(_ORDER)
PLAIN = tuple(_record("Order", *fields) for fields in _ORDER)
ENVELOPES = tuple(
    _record("Envelope", ("before", [NULL, _record("Order", *fields)]), ("after", [NULL, "Order"]), ("op", "string"))
    for fields in _ORDER
)


def order(version: int, key: int | None, serial: int) -> Value:
    """A value of this version, 1 and up; whatever has room for it is wider than the version before could hold."""
    nested: Value = {"y": serial if version == 3 else 2**62 + serial}
    if version == 4 and serial % 2:
        nested["more"] = "größer"
    given: list[Value] = [
        {"id": key, "n": serial, "price": Decimal(serial).scaleb(-2)},
        {"id": key, "n": serial, "price": 10**9 + Decimal(serial).scaleb(-2), "größe": "L" if serial % 2 else None},
        {"id": key, "n": serial, "at": {"x": "Ulm", **nested}, "tags": {"t": nested}, "items": [nested, nested]},
        {"id": key, "n": 2**40 + serial, "at": None, "tags": {"": nested}, "items": [nested]},
        {"id": key, "n": serial, "price": "cheap"},
    ]
    return given[version - 1]


def row(value: Value) -> Value:
    """The columns that a row of this value has: a price in another type has a column of its own."""
    price = value.get("price")
    columns = {name: item for name, item in value.items() if name != "price"}
    found: Value = bare(columns | {"price__v2" if isinstance(price, str) else "price": price})
    return found


def bare(value: Any) -> Any:
    """Without nulls, maps as dicts, so that values of different versions of a schema can be compared.

    Without empty lists too: PyIceberg reads a list or map of structs that is null as an empty one.
    """
    if isinstance(value, dict):
        return {name: bare(item) for name, item in value.items() if item not in (None, [])}
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return {name: bare(item) for name, item in value}
    return [bare(item) for item in value] if isinstance(value, list) else value


def encoded(version: int, value: Value, *, envelope: bool = False) -> bytes:
    return framed(version, (ENVELOPES if envelope else PLAIN)[version - 1], value)
