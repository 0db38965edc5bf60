"""One form for a table's values, whoever read them: Arrow (PyIceberg, DuckDB), or an SQL engine's text.

Timestamps are microseconds since 1970 (of the clock shown, where they have no zone), dates days, floats hexadecimal,
decimals texts, maps lists of pairs in one order, structs dicts. So nothing depends on zones, on what Python's types can
hold, or on the order in which a map is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from tests.support.typed_case import Entries

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO: Final = date(1970, 1, 1)


def plain(value: Any) -> Any:
    """Of what a test expects; dict: struct, Entries: map."""
    match value:
        case Entries():
            return _entries([[plain(key), plain(item)] for key, item in value])
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case float():
            return _float(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (value - _DAY_ZERO).days
    return value


def _float(value: float) -> str:
    return "nan" if math.isnan(value) else value.hex()


def _entries(pairs: list[list[Any]]) -> list[list[Any]]:
    return sorted(pairs, key=lambda pair: repr(pair[0]))


def of_arrow(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """All values of a column."""
    kind = column.type
    return [_of_arrow(kind, value) for value in pc.cast(column, _counted(kind)).to_pylist()]


def _counted(kind: pa.DataType) -> pa.DataType:
    """The same type with numbers for times."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_counted(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_counted(kind.key_type)), kind.item_field.with_type(_counted(kind.item_type))
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_counted(kind.value_type)))
    return kind


def _of_arrow(kind: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _of_arrow(field.type, value[field.name]) for field in kind}
    if pa.types.is_map(kind):
        return _entries([[_of_arrow(kind.key_type, key), _of_arrow(kind.item_type, item)] for key, item in value])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_of_arrow(kind.value_type, item) for item in value]
    return plain(value)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine's SQL turns values into JSON text. Formats have `{e}` for the value.

    Attributes:
        leaves: by Iceberg type; what is not here is cast to text.
        entry: a map's key and value, of an entry `{e}`.
        text: the type of texts.
    """

    leaves: dict[type[IcebergType], str]
    entry: tuple[str, str]
    text: str

    def row(self, schema: Schema) -> str:
        """An expression of all of a table's columns."""
        return self._struct(StructType(*schema.fields), "", 0)

    def _of(self, kind: IcebergType, value: str, depth: int) -> str:
        one = f"x{depth}"
        if isinstance(kind, StructType):
            inner = self._struct(kind, f"{value}.", depth)
        elif isinstance(kind, ListType):
            inner = self._joined(value, one, self._of(kind.element_type, one, depth + 1))
        elif isinstance(kind, MapType):
            key, item = (part.format(e=one) for part in self.entry)
            pair = (self._of(kind.key_type, key, depth + 1), self._of(kind.value_type, item, depth + 1))
            inner = self._joined(f"map_entries({value})", one, f"concat('[', {pair[0]}, ',', {pair[1]}, ']')")
        else:
            leaf = self.leaves.get(type(kind), "cast({e} AS " + self.text + ")").format(e=value)
            inner = f"concat('\"', {leaf}, '\"')"
        return f"if({value} IS NULL, 'null', {inner})"

    def _struct(self, kind: StructType, prefix: str, depth: int) -> str:
        parts = [self._of(field.field_type, f"{prefix}{self._quoted(field.name)}", depth) for field in kind.fields]
        return f"concat('[', concat_ws(',', {', '.join(parts)}), ']')"

    def _joined(self, listed: str, one: str, text: str) -> str:
        return f"concat('[', array_join(transform({listed}, {one} -> {text}), ','), ']')"

    def _quoted(self, name: str) -> str:
        return f"`{name}`" if self.text == "string" else f'"{name}"'


SPARK: Final = Dialect(
    {
        StringType: "hex({e})",
        BinaryType: "hex({e})",
        DateType: "cast(unix_date({e}) AS string)",
        TimestamptzType: "cast(unix_micros({e}) AS string)",
    },
    ("{e}.key", "{e}.value"),
    "string",
)
TRINO: Final = Dialect(
    {
        StringType: "to_hex(to_utf8({e}))",
        BinaryType: "to_hex({e})",
        DateType: "cast(date_diff('day', DATE '1970-01-01', {e}) AS varchar)",
        TimestamptzType: "cast(at_timezone({e}, 'UTC') AS varchar)",
    },
    ("{e}[1]", "{e}[2]"),
    "varchar",
)


def of_text(schema: Schema, text: str) -> dict[str, Any]:
    """A row of Dialect.row."""
    found: dict[str, Any] = _of_text(StructType(*schema.fields), json.loads(text))
    return found


def _of_text(kind: IcebergType, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        pairs = zip(kind.fields, value, strict=True)
        return {field.name: _of_text(field.field_type, item) for field, item in pairs}
    if isinstance(kind, ListType):
        return [_of_text(kind.element_type, item) for item in value]
    if isinstance(kind, MapType):
        return _entries([[_of_text(kind.key_type, key), _of_text(kind.value_type, item)] for key, item in value])
    return _LEAVES.get(type(kind), _whole_or_flag)(value)


def _whole_or_flag(text: str) -> int | bool:
    return {"true": True, "false": False}[text] if text[0] in "tf" else int(text)


def _micros(text: str) -> int:
    """Of a number, or of a clock's time as engines print it."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return int(plain(datetime.fromisoformat(text.removesuffix(" UTC"))))


_LEAVES: Final[dict[type[IcebergType], Callable[[str], Any]]] = {
    StringType: lambda text: bytes.fromhex(text).decode(),
    BinaryType: bytes.fromhex,
    DoubleType: lambda text: _float(float(text)),
    DecimalType: lambda text: f"{Decimal(text):f}",
    TimestampType: _micros,
    TimestamptzType: _micros,
}


def ordered(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By offset."""
    return sorted(rows, key=lambda row: int(row["_kafka_offset"]))
