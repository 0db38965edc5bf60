"""The columns of a schema, and in which arrays their values are collected before they become Arrow's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

import pyarrow as pa

from converter.values.avro.schema import AvroType
from converter.values.model import ALIASES, DOC


class Storage(Enum):
    """Arrays that values are collected in. PAIRS: two LONGS a value. DATA: lengths in INTS, and bytes."""

    FLAGS = 0
    INTS = 1
    LONGS = 2
    PAIRS = 3
    DATA = 4


class Form(StrEnum):
    """How the collected values become a column."""

    BOOL = "bool"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    TEXT = "text"
    DATE = "date"
    INSTANT = "instant"
    LOCAL = "local"
    DECIMAL = "decimal"
    DECIMAL_TEXT = "decimal text"
    SYMBOL = "symbol"
    JSON = "json"
    NOTHING = "nothing"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"

    @property
    def storage(self) -> Storage:
        """Where a value of this form is collected; for lists and maps, their lengths."""
        return _STORAGE[self]


_STORAGE: Final = {
    Form.BOOL: Storage.FLAGS,
    Form.INT: Storage.INTS,
    Form.LONG: Storage.LONGS,
    Form.FLOAT: Storage.INTS,
    Form.DOUBLE: Storage.LONGS,
    Form.BYTES: Storage.DATA,
    Form.TEXT: Storage.DATA,
    Form.DATE: Storage.INTS,
    Form.INSTANT: Storage.LONGS,
    Form.LOCAL: Storage.LONGS,
    Form.DECIMAL: Storage.PAIRS,
    Form.DECIMAL_TEXT: Storage.DATA,
    Form.SYMBOL: Storage.INTS,
    Form.JSON: Storage.DATA,
    Form.LIST: Storage.INTS,
    Form.MAP: Storage.INTS,
}

_TYPES: Final = {
    Form.BOOL: pa.bool_(),
    Form.INT: pa.int32(),
    Form.LONG: pa.int64(),
    Form.FLOAT: pa.float64(),
    Form.DOUBLE: pa.float64(),
    Form.BYTES: pa.binary(),
    Form.TEXT: pa.string(),
    Form.DATE: pa.date32(),
    Form.INSTANT: pa.timestamp("us", "UTC"),
    Form.LOCAL: pa.timestamp("us"),
    Form.DECIMAL_TEXT: pa.string(),
    Form.SYMBOL: pa.string(),
    Form.JSON: pa.string(),
    Form.NOTHING: pa.string(),
}


@dataclass(slots=True, eq=False, kw_only=True)
class Column:
    """One column; not changed any more once its schema is laid out.

    Attributes:
        group: what its values are counted with; 0: rows.
        slot: where its values are collected, NO_SLOT for structs and what is always null.
        valid: the slot of its validity, NO_SLOT where it is null only where what it lies in is null.
        children: of structs; the items of a list; keys and values of a map.
        symbols: of an enum.
        precision, scale: of a decimal.
        recursive: the record whose values become JSON.
    """

    name: str
    form: Form
    group: int
    slot: int = -1
    valid: int = -1
    children: tuple[Column, ...] = ()
    symbols: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
    recursive: AvroType | None = None
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    type: pa.DataType = None

    def weigh(self, weights: dict[int, int]) -> int:
        """Cells of one value of this column; adds those of one item of each list and map in it, by their group."""
        inner = [child.weigh(weights) for child in self.children]
        if self.form in (Form.LIST, Form.MAP):
            weights[self.children[0].group] = sum(inner)
            return 1
        texts = max((len(symbol.encode()) for symbol in self.symbols), default=0)
        digits = self.precision + self.scale if self.form is Form.DECIMAL_TEXT else 0
        return sum(inner) + 1 + (texts + digits) // 8 + (self.form is Form.DECIMAL)

    def settle(self) -> pa.DataType:
        """Works out the types of this column and those in it."""
        inner = [child.settle() for child in self.children]
        if self.form is Form.STRUCT:
            self.type = pa.struct([child.field() for child in self.children])
        elif self.form is Form.LIST:
            self.type = pa.list_(inner[0])
        elif self.form is Form.MAP:
            self.type = pa.map_(inner[0], inner[1])
        elif self.form is Form.DECIMAL:
            self.type = pa.decimal128(self.precision, self.scale)
        else:
            self.type = _TYPES[self.form]
        return self.type

    def field(self) -> pa.Field:
        """The column as a struct's field, with the schema's aliases and description."""
        metadata: dict[bytes, str] = {}
        if self.aliases:
            metadata[ALIASES] = json.dumps(list(self.aliases))
        if self.doc is not None:
            metadata[DOC] = self.doc
        return pa.field(self.name, self.type, nullable=True, metadata=metadata or None)
