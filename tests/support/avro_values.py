"""Random Avro schemas and encoded values, and what fastavro makes of them, to hold the columns against."""

from __future__ import annotations

import io
import json
import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa

Json = Any
INTS = [0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
#: Milliseconds at the edges of what 64 bits of microseconds hold, and within.
MILLIS = [0, -1, 1, 253402300799999, -62135596800000, (2**63 - 1) // 1000, -((2**63 - 1) // 1000)]
DOUBLES = [0.0, -0.0, 1.5, -1e308, 5e-324, math.inf, -math.inf, math.nan, 2**53 + 0.0]
FLOATS = [0.0, -0.0, 1.5, 3.4028234663852886e38, 1.401298464324817e-45, math.inf, -math.inf, math.nan]
TEXTS = ["", "a", "né", "漢字", "🦆", "x" * 300, "\x00", '"\\']


def zigzag(value: int) -> bytes:
    """The shortest encoding of a long."""
    raw = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def random_schema(rng: random.Random, fields: int = 4) -> Json:
    """A record of up to this many fields, of any construct."""
    return SchemaMaker(rng).record(fields, 0)


class SchemaMaker:
    """Makes types, each a JSON value; `depth`: how many types they lie in."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.count = 0
        self.open: list[str] = []
        self.namespace = rng.choice(["", "a.b."])

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def record(self, fields: int, depth: int) -> Json:
        name = self.namespace + self.name("R")
        self.open.append(name)
        members = [
            {"name": self.name("f"), "type": self.type(depth + 1)}
            for _ in range(self.rng.randint(0 if depth else 1, fields))
        ]
        self.open.pop()
        return {"type": "record", "name": name, "fields": members}

    def type(self, depth: int) -> Json:
        kinds: list[Callable[[int], Json]] = [self.primitive, self.primitive, self.logical, self.named]
        if depth < 4:
            kinds += [self.optional, self.optional, self.union, self.array, self.map, self.nested, self.recursive]
        return self.rng.choice(kinds)(depth)

    def primitive(self, depth: int) -> Json:
        return self.rng.choice("null boolean int long float double bytes string".split())

    def logical(self, depth: int) -> Json:
        precision = self.rng.choice([1, 5, 18, 37, 38, 39, 60])
        decimal = {"logicalType": "decimal", "precision": precision, "scale": self.rng.randint(0, precision)}
        size = (10**precision).bit_length() // 8 + self.rng.randint(1, 3)
        return self.rng.choice(
            [
                {"type": "int", "logicalType": "date"},
                {"type": "int", "logicalType": "time-millis"},
                {"type": "long", "logicalType": "time-micros"},
                *(
                    {"type": "long", "logicalType": f"{local}timestamp-{unit}"}
                    for local in ("", "local-")
                    for unit in ("millis", "micros", "nanos")
                ),
                {"type": "string", "logicalType": "uuid"},
                {"type": "fixed", "name": self.name("U"), "size": 16, "logicalType": "uuid"},
                {"type": "fixed", "name": self.name("D"), "size": 12, "logicalType": "duration"},
                {"type": "bytes", **decimal},
                {"type": "fixed", "name": self.name("D"), "size": size, **decimal},
            ]
        )

    def named(self, depth: int) -> Json:
        if self.rng.random() < 0.5:
            return {"type": "enum", "name": self.name("E"), "symbols": ["A", "B", "CC"]}
        return {"type": "fixed", "name": self.name("F"), "size": self.rng.choice([0, 1, 7, 40])}

    def optional(self, depth: int) -> Json:
        inner = self.type(depth + 1)
        if inner == "null" or isinstance(inner, list):
            inner = "long"
        return self.rng.choice([["null", inner], [inner, "null"]])

    def union(self, depth: int) -> Json:
        branches: dict[str, Json] = {}
        for _ in range(self.rng.randint(1, 4)):
            branch = self.type(depth + 1)
            if not isinstance(branch, list):
                branches.setdefault(branch_key(branch), branch)
        return list(branches.values()) or ["null"]

    def array(self, depth: int) -> Json:
        return {"type": "array", "items": self.type(depth + 1)}

    def map(self, depth: int) -> Json:
        return {"type": "map", "values": self.type(depth + 1)}

    def nested(self, depth: int) -> Json:
        return self.record(3, depth)

    def recursive(self, depth: int) -> Json:
        return ["null", self.rng.choice(self.open)]


def branch_key(branch: Json) -> str:
    """What must differ between a union's branches: the name, or the type."""
    return str(branch.get("name", branch["type"])) if isinstance(branch, dict) else str(branch)


def short(branch: Json) -> str:
    """The name of a union's branch without namespace."""
    return branch_key(branch).rpartition(".")[2]


class Encoder:
    """Writes random values of a schema, any legal way: blocks of every kind, edges of every type."""

    def __init__(self, schema: Json, rng: random.Random) -> None:
        self.schema = schema
        self.rng = rng
        self.names: dict[str, Json] = {}
        collect(schema, self.names)

    def value(self) -> bytes:
        """One value."""
        return self._of(self.schema, 0)

    def _long(self, edges: list[int], bits: int) -> bytes:
        rng = self.rng
        if rng.random() < 0.5:
            return zigzag(rng.choice(edges))
        return zigzag(rng.getrandbits(rng.randint(1, bits)) - 2 ** (bits - 1))

    def _of(self, schema: Json, depth: int) -> bytes:
        if isinstance(schema, list):
            return self._union(schema, depth)
        if isinstance(schema, str) and schema in self.names:
            schema = self.names[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if kind == "record":
            return b"".join(self._of(member["type"], depth + 1) for member in schema["fields"])
        if kind in ("array", "map"):
            return self._blocks(schema, kind, depth)
        if logical == "decimal":
            return self._decimal(schema)
        if kind == "long":
            return self._long(MILLIS if logical.endswith("timestamp-millis") else LONGS, 40 if logical else 63)
        return self._leaf(schema, kind)

    def _leaf(self, schema: Json, kind: str) -> bytes:
        rng = self.rng
        match kind:
            case "null":
                return b""
            case "boolean":
                return rng.choice([b"\0", b"\1"])
            case "int":
                return self._long(INTS, 31)
            case "float":
                return struct.pack("<f", rng.choice(FLOATS))
            case "double":
                return struct.pack("<d", rng.choice(DOUBLES))
            case "string":
                text = rng.choice(TEXTS).encode()
                return zigzag(len(text)) + text
            case "bytes":
                data = rng.randbytes(rng.choice([0, 1, 5, 200]))
                return zigzag(len(data)) + data
            case "enum":
                return zigzag(rng.randrange(len(schema["symbols"])))
            case _:
                return rng.randbytes(schema["size"])

    def _union(self, schema: Json, depth: int) -> bytes:
        branch = self.rng.randrange(len(schema))
        if depth > 8 and "null" in schema:
            branch = schema.index("null")
        return zigzag(branch) + self._of(schema[branch], depth + 1)

    def _blocks(self, schema: Json, kind: str, depth: int) -> bytes:
        out = b""
        for block in range(self.rng.choice([0, 1, 1, 2]) if depth < 8 else 0):
            count = self.rng.randint(1, 3)
            items = b"".join(self._item(schema, kind, f"{block}.{i}", depth + 1) for i in range(count))
            out += zigzag(count) if self.rng.random() < 0.7 else zigzag(-count) + zigzag(len(items))
            out += items
        return out + b"\0"

    def _item(self, schema: Json, kind: str, key: str, depth: int) -> bytes:
        if kind == "array":
            return self._of(schema["items"], depth)
        name = (self.rng.choice(TEXTS) + key).encode()
        return zigzag(len(name)) + name + self._of(schema["values"], depth)

    def _decimal(self, schema: Json) -> bytes:
        limit = 10 ** schema["precision"] - 1
        number = self.rng.choice([0, 1, -1, limit, -limit, self.rng.randint(-limit, limit)])
        size = schema.get("size") or number.bit_length() // 8 + self.rng.choice([1, 1, 3])
        data: bytes = number.to_bytes(size, "big", signed=True)
        return data if "size" in schema else zigzag(size) + data


def collect(schema: Json, names: dict[str, Json]) -> None:
    """Adds the named types of a schema to `names`."""
    if isinstance(schema, list):
        for part in schema:
            collect(part, names)
    elif isinstance(schema, dict):
        if "name" in schema:
            names[schema["name"]] = schema
        for part in [schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", []))]:
            collect(part, names)


def without_logical(schema: Json) -> Json:
    """A schema without its logical types."""
    if isinstance(schema, list):
        return [without_logical(part) for part in schema]
    if isinstance(schema, dict):
        return {k: without_logical(v) for k, v in schema.items() if k not in ("logicalType", "precision", "scale")}
    return schema


def read_all(parsed: Json, data: bytes) -> Any:
    """What fastavro reads; an exception where it cannot, or leaves bytes."""
    stream = io.BytesIO(data)
    value = fastavro.schemaless_reader(stream, parsed, None)
    if stream.read(1):
        raise ValueError("bytes are left")
    return value


def rows_of(array: pa.Array) -> list[Any]:
    """A column's values, points in time as numbers, so that no range of Python's types matters."""
    kind = array.type
    if pa.types.is_struct(kind):
        children = {field.name: rows_of(array.field(i)) for i, field in enumerate(kind)}
        return [
            {name: child[i] for name, child in children.items()} if ok else None
            for i, ok in enumerate(array.is_valid().to_pylist())
        ]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        if pa.types.is_map(kind):
            inner: list[Any] = list(zip(rows_of(array.keys), rows_of(array.items), strict=True))
        else:
            inner = rows_of(array.values)
        bounds = array.offsets.to_pylist()
        return [inner[bounds[i] : bounds[i + 1]] if ok else None for i, ok in enumerate(array.is_valid().to_pylist())]
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date(kind):
        array = array.cast(pa.int32())
    values: list[Any] = array.to_pylist()
    return values


class Matcher:
    """Compares a column's value with what fastavro read under the schema without logical types."""

    def __init__(self, schema: Json) -> None:
        self.names: dict[str, Json] = {}
        collect(schema, self.names)

    def matches(self, schema: Json, column: Any, read: Any, within: tuple[str, ...] = ()) -> bool:
        """Whether they are the same. `within`: records this one lies in."""
        if isinstance(schema, list):
            return self._union(schema, column, read, within)
        if isinstance(schema, str) and schema in self.names:
            schema = self.names[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record":
            return self._record(schema, column, read, within)
        if kind == "array":
            return len(column) == len(read) and all(
                self.matches(schema["items"], a, b, within) for a, b in zip(column, read, strict=True)
            )
        if kind == "map":
            return [k for k, _ in column] == list(read) and all(
                self.matches(schema["values"], v, read[k], within) for k, v in column
            )
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        return _same(column, _meant(schema, logical, read))

    def json_matches(self, schema: Json, text: Any, read: Any) -> bool:
        """Whether Avro's JSON of a value says what fastavro read."""
        if isinstance(schema, list):
            if text is None or read is None:
                return text is None and read is None
            [(name, inner)] = text.items()
            return self.json_matches(next(p for p in schema if short(p) == name.rpartition(".")[2]), inner, read)
        if isinstance(schema, str) and schema in self.names:
            schema = self.names[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record":
            types = {member["name"]: member["type"] for member in schema["fields"]}
            return list(text) == list(types) and all(self.json_matches(t, text[n], read[n]) for n, t in types.items())
        if kind == "array":
            pairs = zip(text, read, strict=True)
            return len(text) == len(read) and all(self.json_matches(schema["items"], a, b) for a, b in pairs)
        if kind == "map":
            return list(text) == list(read) and all(
                self.json_matches(schema["values"], value, read[name]) for name, value in text.items()
            )
        if isinstance(read, bytes):
            return bool(text.encode("iso-8859-1") == read)
        return _same(float(text) if isinstance(read, float) else text, read)

    def _record(self, schema: Json, column: Any, read: Any, within: tuple[str, ...]) -> bool:
        if schema["name"] in within:
            return self.json_matches(schema, json.loads(column), read)
        if not schema["fields"]:
            return column is True
        inner = (*within, schema["name"])
        return list(column) == [m["name"] for m in schema["fields"]] and all(
            self.matches(m["type"], column[m["name"]], read[m["name"]], inner) for m in schema["fields"]
        )

    def _union(self, schema: Json, column: Any, read: Any, within: tuple[str, ...]) -> bool:
        given = [part for part in schema if part != "null"]
        if read is None or column is None:
            return read is None and column is None
        if len(given) == 1:
            return self.matches(given[0], column, read, within)
        chosen = [name for name, value in column.items() if value is not None]
        if len(chosen) != 1:
            return False
        part = next(p for p in given if short(p) == chosen[0])
        return self.matches(part, column[chosen[0]], read, within)


def _meant(schema: Json, logical: str | None, read: Any) -> Any:
    match logical:
        case "time-millis" | "timestamp-millis" | "local-timestamp-millis":
            return read * 1000
        case "decimal":
            number = Decimal(int.from_bytes(read, "big", signed=True))
            digits = number.as_tuple()
            exact = Decimal((digits.sign, digits.digits, -schema["scale"]))
            return exact if schema["precision"] <= 38 else f"{exact:f}"
        case "uuid" if isinstance(read, bytes):
            h = read.hex()
            return "-".join([h[:8], h[8:12], h[12:16], h[16:20], h[20:]])
        case "duration":
            return dict(zip(("months", "days", "millis"), struct.unpack("<III", read), strict=True))
    return read


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)
