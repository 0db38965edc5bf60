"""JSON schemas, texts of every style, and what must become of them, without any code of the decoder.

A spec is a Spec: ("integer",), ("list", spec), ("map", spec), ("object", {name: spec}, open), …
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import re
import struct
from decimal import Context, Decimal, InvalidOperation
from typing import Any

Spec = tuple[Any, ...]
WIDE = Context(prec=1000)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NAMES = ["a", "A", "", "a.b", 'q"q', "ü", "\\", "\U0001f600", "_additional", "id", "name", "value", "\u0000", "x" * 40]
EDGES = [0, 1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 10**17, 10**18, 2**63 - 1, 2**63, 2**64, 10**19, 10**38 - 1, 10**38]
MOMENTS = [
    "2024-02-29T23:59:59Z", "2023-02-29T00:00:00Z", "2024-03-05T12:00:00.1+01:30", "2024-03-05T12:00:00.123456-23:59",
    "2024-03-05T12:00:00.1234567Z", "2024-03-05T12:00:00.1234560Z", "2024-03-05t12:00:00z", "2024-03-05 12:00:00Z",
    "2016-12-31T23:59:60Z", "2024-03-05T12:00:00", "2024-03-05T24:00:00Z", "2024-13-05T12:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-00:01",
    "1900-02-29T00:00:00Z", "2000-02-29T00:00:00+00:00", "2024-03-05T12:00:00.Z", "2024-03-05T12:00Z", "",
    "2024-03-05T12:00:00+01", "2024-03-05T12:00:00+0100", "2024-03-05T12:00:00.5", "1969-12-31T23:59:59.999999Z",
]  # fmt: skip
DATES = [
    "2024-02-29",
    "2023-02-29",
    "0001-01-01",
    "9999-12-31",
    "2024-3-05",
    "2024-04-31",
    "0000-01-01",
    "1900-02-29",
    "x",
]


class Raw(str):
    """A number, or any other piece of JSON, as it is written."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object's members, in order, doubles included."""


FRACTIONS = [
    "1.0", "-0.0", "1e2", "1E+2", "1e-2", "2.5e3", "1e400", "-1e400", "1e-400", "9007199254740993.0", "0e0", "0.1",
    "1.5e0",
    "15e-1", "100e-2", "1e37", "1e38", "0.30000000000000004", "1" * 50 + ".5", "1e99", "4.9e-324",
    "1e999999999999", "-0",
]  # fmt: skip
TEXTS = [
    "",
    "1",
    "true",
    "\u2028",
    "\U0001f600é",
    '"\\/',
    "x" * 70,
    "\n\t\b\f\r\x01",
    "\x7f\x80\u07ff\u0800\uffff\U0010ffff",
]
DAMAGE = [
    b"\xff", b"\x00", b"\\", b'"', b"{", b"}", b"[", b"]", b",", b"NaN", b"-", b"\\ud800", b"\xef\xbb\xbf", b"0",
    b"\xed\xa0\x80", b" ", b"e", b".", b"[" * 101, b"nul",
]  # fmt: skip
LEAVES = ["integer", "decimal", "number", "boolean", "string", "datetime", "date", "text", "flag"]


class World(random.Random):
    """Draws schemas, documents and texts."""

    def integer(self) -> str:
        return str(self.choice([1, -1]) * self.choice(EDGES) if self.random() < 0.4 else self.randint(-100, 100))

    def number(self) -> Raw:
        kind = self.randrange(4)
        if kind == 0:
            return Raw(self.integer())
        if kind == 1:
            return Raw(self.choice(FRACTIONS))
        if kind == 2:
            return Raw(f"{self.uniform(-1000, 1000):.6g}")
        value = struct.unpack("<d", self.randbytes(8))[0]
        return Raw(repr(value) if math.isfinite(value) else "0.5")

    def text(self) -> str:
        if self.random() < 0.4:
            return self.choice(TEXTS)
        return "".join(self.choice('aZ9"\\/ é\u20ac\U0001f600\x1f{}[]:,') for _ in range(self.randrange(20)))

    def name(self) -> str:
        return self.choice(NAMES) if self.random() < 0.8 else self.text()[:3]

    def anything(self, depth: int = 0) -> Any:
        kind = self.randrange(9 if depth < 3 else 7)
        if kind < 2:
            return self.choice([None, True, False])
        if kind < 4:
            return self.number()
        if kind < 7:
            return self.text() if kind < 6 else self.choice(MOMENTS)
        count = self.randrange(4)
        if kind == 7:
            return [self.anything(depth + 1) for _ in range(count)]
        return Pairs({self.name(): self.anything(depth + 1) for _ in range(count)}.items())

    def members(self, depth: int) -> dict[str, Spec]:
        return {self.name(): self.spec(depth + 1) for _ in range(self.randint(1, 6))}

    def spec(self, depth: int = 0) -> Spec:
        kind = self.randrange(8 if depth < 3 else 4)
        if (depth == 0 and kind < 6) or kind == 4:
            return ("object", self.members(depth), self.random() < 0.6)
        if kind < 4 or (kind == 7 and depth == 0):
            return (self.choice(LEAVES),)
        return (self.choice(["list", "map"]), self.spec(depth + 1))

    def fitting(self, spec: Spec) -> Any:
        """A document that mostly follows the spec."""
        kind = spec[0]
        odd = self.randrange(40)
        if odd == 0 or kind == "text":
            return self.anything()
        if odd == 1:
            return None
        if kind in ("integer", "decimal"):
            return Raw(self.integer()) if self.random() < 0.95 else self.number()
        if kind == "datetime":
            return self.choice(MOMENTS) if self.random() < 0.4 else self.moment().isoformat().replace("+00:00", "Z")
        if kind == "date":
            return self.choice(DATES) if self.random() < 0.2 else str(self.moment().date())
        if kind == "list":
            return [self.fitting(spec[1]) for _ in range(self.randrange(4))]
        if kind == "map":
            return self.doubled(Pairs({self.name(): self.fitting(spec[1]) for _ in range(self.randrange(4))}.items()))
        if kind == "object":
            members = [(name, self.fitting(inner)) for name, inner in spec[1].items() if self.random() < 0.9]
            if self.random() < 0.3:
                members += [(self.name(), self.anything()) for _ in range(self.randrange(3))]
            self.shuffle(members)
            return self.doubled(Pairs(dict(members).items()))
        plain = {"number": self.number, "boolean": lambda: self.random() < 0.5, "string": self.text, "flag": Pairs}
        return plain[kind]()

    def moment(self) -> dt.datetime:
        return EPOCH + dt.timedelta(microseconds=self.randrange(-(10**16) * 6, 10**17 * 2))

    def doubled(self, members: Pairs) -> Pairs:
        """Rarely with one member twice."""
        if members and self.random() < 0.02:
            members.insert(self.randrange(len(members) + 1), self.choice(members))
        return members

    def written(self, document: Any) -> bytes:
        """A text of the document: compact, spaced or escaped throughout; rarely damaged."""
        style = self.choice(["compact", "compact", "python", "space", "escape"])
        gaps = {
            "compact": ("", "", ""),
            "python": ("", "", " "),
            "space": (" ", "\n\t", "\r "),
            "escape": ("", " ", ""),
        }
        text = gaps[style][1] + write(document, style, gaps[style]) + gaps[style][2]
        data = text.encode()
        damage, at = self.randrange(30), self.randrange(len(data) + 1)
        if damage == 0:
            return data[:at]
        if damage == 1:
            return data[:at] + self.choice(DAMAGE) + data[at + self.randrange(2) :]
        return data + self.choice(DAMAGE) if damage == 2 else data

    def values(self, spec: Spec, count: int) -> list[bytes]:
        return [self.written(self.fitting(spec)) for _ in range(count)]


def string(value: str, style: str) -> str:
    if style == "escape":
        units = value.encode("utf-16-be")
        return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'
    return json.dumps(value, ensure_ascii=style == "python")


def write(value: Any, style: str, gaps: tuple[str, str, str]) -> str:
    if isinstance(value, Raw):
        return str.__str__(value)
    if isinstance(value, str):
        return string(value, style)
    comma = gaps[0] + "," + gaps[2]
    if isinstance(value, Pairs):
        pairs = [string(name, style) + gaps[0] + ":" + gaps[2] + write(inner, style, gaps) for name, inner in value]
        return "{" + gaps[1] + comma.join(pairs) + gaps[0] + "}"
    if isinstance(value, list):
        return "[" + gaps[1] + comma.join(write(inner, style, gaps) for inner in value) + gaps[0] + "]"
    return {None: "null", True: "true", False: "false"}[value]


def schema_of(spec: Spec) -> Any:
    kind = spec[0]
    plain = {
        "integer": {"type": ["integer", "null"]},
        "decimal": {"type": "integer", "minimum": -(10**30)},
        "number": {"anyOf": [{"type": "null"}, {"type": "number"}]},
        "boolean": {"type": "boolean"},
        "string": {"enum": ["a", "b"]},
        "datetime": {"type": "string", "format": "date-time"},
        "date": {"type": "string", "format": "date"},
        "text": {},
        "flag": {"type": "object", "additionalProperties": False},
    }
    if kind in plain:
        return plain[kind]
    if kind == "list":
        return {"type": "array", "items": schema_of(spec[1])}
    if kind == "map":
        return {"type": "object", "additionalProperties": schema_of(spec[1])}
    schema = {"type": "object", "properties": {name: schema_of(inner) for name, inner in spec[1].items()}}
    return schema if spec[2] else {**schema, "additionalProperties": False}


class Problems(set[str]):
    """Codes of all that is wrong with a value."""


def load(text: str) -> Any:
    """The text with numbers as Raw and objects as Pairs; raises ValueError for what is no JSON."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    def whole(text: str) -> Raw:
        return Raw(text)

    return json.loads(text, parse_int=whole, parse_float=Raw, parse_constant=refuse, object_pairs_hook=Pairs)


def broken(value: Any) -> bool:
    """Whether there is a double name or half of a surrogate pair in it."""
    if isinstance(value, Pairs):
        keys = [name for name, _ in value]
        return len(set(keys)) < len(keys) or any(broken(name) or broken(inner) for name, inner in value)
    if isinstance(value, list):
        return any(map(broken, value))
    return isinstance(value, str) and any(0xD800 <= ord(c) < 0xE000 for c in value)


def expected(spec: Spec, data: bytes) -> tuple[Any, Problems]:
    """What `data` becomes (JSON texts: loaded), and all that is wrong with it; a value only where nothing is."""
    problems = Problems()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        problems.add("invalid_utf8")
        return None, problems
    try:
        value = load(text)
    except (ValueError, RecursionError):
        problems.add("undecodable")
        return None, problems
    if broken(value):
        problems.add("undecodable")
        return None, problems
    if spec[0] == "object" and value is None:
        problems.add("type_mismatch")
    return typed(spec, value, problems), problems


def typed(spec: Spec, value: Any, problems: Problems) -> Any:
    good: Any
    kind = spec[0]
    if value is None:
        return None
    if kind == "text":
        return value
    good = {"list": list, "map": Pairs, "object": Pairs, "flag": Pairs, "boolean": bool}.get(kind)
    if kind in ("integer", "decimal", "number"):
        good = Raw
    if kind in ("string", "datetime", "date"):
        good = str
    if type(value) is not good or (kind == "flag" and value):
        problems.add("type_mismatch")
        return None
    if kind == "list":
        return [typed(spec[1], inner, problems) for inner in value]
    if kind == "map":
        return [(name, typed(spec[1], inner, problems)) for name, inner in value]
    if kind == "object":
        return typed_object(spec, dict(value), problems)
    return True if kind == "flag" else scalar(kind, value, problems)


def typed_object(spec: Spec, members: dict[str, Any], problems: Problems) -> dict[str, Any]:
    row = {name: typed(inner, members.pop(name, None), problems) for name, inner in spec[1].items()}
    if members and not spec[2]:
        problems.add("type_mismatch")
    if spec[2]:
        row[extra_name(spec)] = Pairs(members.items()) if members else None
    return row


def extra_name(spec: Spec) -> str:
    name = "_additional"
    while name in spec[1]:
        name += "_"
    return name


def scalar(kind: str, value: Any, problems: Problems) -> Any:
    if kind in ("boolean", "string"):
        return value
    if kind == "date":
        return a_date(value, problems)
    if kind == "datetime":
        return a_moment(value, problems)
    if kind == "number":
        if re.fullmatch("-?[0-9]+", value):
            if abs(int(value)) > 2**53:
                problems.add("out_of_range")
        elif math.isinf(float(value)):
            problems.add("out_of_range")
        return float(value)
    try:
        exact = Decimal(value)
    except InvalidOperation:  # an exponent beyond Decimal's own
        digits, _, exponent = value.lower().partition("e")
        exact = Decimal(0) if Decimal(digits) == 0 else Decimal("1e-99") if exponent[0] == "-" else Decimal("1e999")
    if (exact.adjusted() < -50 and exact != 0) or (exact.adjusted() < 100 and WIDE.remainder(exact, Decimal(1)) != 0):
        problems.add("type_mismatch")
        return None
    limit = range(-(2**63), 2**63) if kind == "integer" else range(-(10**38) + 1, 10**38)
    if exact.adjusted() >= 100 or int(exact) not in limit:
        problems.add("out_of_range")
        return None
    return int(exact) if kind == "integer" else Decimal(int(exact))


def a_date(text: str, problems: Problems) -> Any:
    try:
        if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is None:
            raise ValueError
        if text.startswith("0000"):
            dt.date.fromisoformat("0004" + text[4:])
            problems.add("out_of_range")
            return None
        return dt.date.fromisoformat(text)
    except ValueError:
        problems.add("type_mismatch")


def a_moment(text: str, problems: Problems) -> Any:
    match = re.fullmatch(r"(.{10})[Tt ](\d\d:\d\d):(\d\d)(\.\d+)?(Z|z|[+-]\d\d:\d\d)", text, re.ASCII | re.DOTALL)
    day = a_date(match[1], problems) if match else None
    if match is None or day is None:
        problems.add("type_mismatch" if match is None else next(iter(problems)))
        return None
    fraction = (match[4] or ".0")[1:].rstrip("0")
    beyond = match[3] == "60" or len(fraction) > 6
    try:
        second = "59" if match[3] == "60" else match[3]
        clock = dt.time.fromisoformat(f"{match[2]}:{second}.{fraction[:6]:0<6}")
        zone = match[5].upper().replace("Z", "+00:00")
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise ValueError
    except ValueError:
        problems.add("type_mismatch")
        return None
    if beyond:
        problems.add("out_of_range")
        return None
    offset = dt.timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    try:
        return dt.datetime.combine(day, clock, dt.UTC) - offset
    except OverflowError:
        problems.add("out_of_range")


def loaded(spec: Spec, got: Any) -> Any:
    """What a column gave, with its JSON texts loaded."""
    if got is None:
        return None
    kind = spec[0]
    if kind == "text":
        return load(got)
    if kind == "list":
        return [loaded(spec[1], inner) for inner in got]
    if kind == "map":
        return [(name, loaded(spec[1], inner)) for name, inner in (got.items() if isinstance(got, dict) else got)]
    if kind == "object":
        row = {name: loaded(inner, got[name]) for name, inner in spec[1].items()}
        if spec[2]:
            name = extra_name(spec)
            row[name] = None if got[name] is None else load(got[name])
        return row
    return got.astimezone(dt.UTC) if kind == "datetime" else got
