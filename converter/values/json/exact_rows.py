"""The slow decoder: one value at a time into what Arrow takes, or the exact reason why that is impossible."""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any, Final

from converter.values.json import nodes
from converter.values.json.exact_reader import BadValue, Content, Number, ObjectMember, Value, parse
from converter.values.json.nodes import Node
from converter.values.model import ValueProblem

_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(
    r"[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))?"
)
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000
_FIRST_US: Final = (1 - _EPOCH_DAY) * _DAY_US
_LAST_US: Final = (dt.date.max.toordinal() + 1 - _EPOCH_DAY) * _DAY_US - 1
_INT64: Final = range(-(2**63), 2**63)
_DECIMAL_LIMIT: Final = 10**38
_WANTED: Final = {
    nodes.STRUCT: "an object",
    nodes.FLAG: "an object without members",
    nodes.MAP: "an object",
    nodes.LIST: "an array",
    nodes.STRING: "a string",
    nodes.DATETIME: "a date-time",
    nodes.DATE: "a date",
    nodes.INTEGER: "an integer",
    nodes.DECIMAL: "an integer",
    nodes.NUMBER: "a number",
    nodes.BOOLEAN: "a boolean",
}


def decode_row(data: bytes, root: Node) -> Any:
    """What pa.array() takes for one row of the root's type.

    Raises:
        BadValue: the value has no columns.
    """
    value = parse(data)
    if value.content is None and root.kind == nodes.STRUCT:
        raise BadValue(ValueProblem.TYPE_MISMATCH, "$: null, not an object")
    return _typed(root, value, "$")


def _typed(node: Node, value: Value, path: str) -> Any:
    content = value.content
    if content is None:
        return None
    kind = node.kind
    if kind == nodes.TEXT:
        return value.text
    if isinstance(content, dict | list):
        return _container(node, content, path)
    if isinstance(content, bool) and kind == nodes.BOOLEAN:
        return content
    if isinstance(content, Number):
        return _numeric(content, kind, path)
    if isinstance(content, str):
        return _string(content, kind, path)
    raise _mismatch(content, kind, path)


def _container(node: Node, content: dict[str, ObjectMember] | list[Value], path: str) -> Any:
    kind = node.kind
    if isinstance(content, list):
        if kind == nodes.LIST:
            return [_typed(node.children[0], element, f"{path}[]") for element in content]
    elif kind == nodes.STRUCT:
        return _struct(node, content, path)
    elif kind == nodes.MAP:
        item = node.children[1]
        return [(name, _typed(item, member.value, f"{path}.*")) for name, member in content.items()]
    elif kind == nodes.FLAG and not content:
        return True
    raise _mismatch(content, kind, path)


def _numeric(content: Number, kind: int, path: str) -> Any:
    if kind in (nodes.INTEGER, nodes.DECIMAL):
        return _integer(content, path, kind)
    if kind == nodes.NUMBER:
        return _number(content, path)
    raise _mismatch(content, kind, path)


def _string(content: str, kind: int, path: str) -> Any:
    if kind == nodes.STRING:
        return content
    if kind == nodes.DATE:
        return _days(content, path)
    if kind == nodes.DATETIME:
        return _microseconds(content, path)
    raise _mismatch(content, kind, path)


def _struct(node: Node, members: dict[str, ObjectMember], path: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    rest: list[ObjectMember] = []
    for name, member in members.items():
        child = node.named.get(name)
        if child is None:
            rest.append(member)
        else:
            row[name] = _typed(child, member.value, f"{path}.{name}")
    if rest:
        if node.extra is None:
            raise BadValue(ValueProblem.TYPE_MISMATCH, f"{path}: a member the schema does not allow")
        row[node.extra.name] = "{" + ",".join(member.text for member in rest) + "}"
    return row


def _mismatch(content: Content, kind: int, path: str) -> BadValue:
    kinds = {bool: "a boolean", str: "a string", Number: "a number", list: "an array", dict: "an object"}
    return BadValue(ValueProblem.TYPE_MISMATCH, f"{path}: {kinds[type(content)]}, not {_WANTED[kind]}")


def _out_of_range(path: str, what: str) -> BadValue:
    return BadValue(ValueProblem.OUT_OF_RANGE, f"{path}: {what}")


def _integer(number: Number, path: str, kind: int) -> int | Decimal:
    """The integer a number is; 1.0 and 1e2 are integers in JSON Schema."""
    mantissa, _, power = number.text.lower().partition("e")
    size = power.lstrip("+-").lstrip("0")
    exponent = int(size or 0) if len(size) < 10 else 10**9
    if power.startswith("-"):
        exponent = -exponent
    whole, _, fraction = mantissa.partition(".")
    digits = whole.lstrip("-") + fraction
    exponent -= len(fraction)
    significant = digits.rstrip("0")
    exponent += len(digits) - len(significant)
    significant = significant.lstrip("0")
    if not significant:
        result = 0
    elif exponent < 0:
        raise BadValue(ValueProblem.TYPE_MISMATCH, f"{path}: a number with a fraction, not an integer")
    elif len(significant) + exponent > 38:
        raise _out_of_range(path, "an integer of more than 38 digits")
    else:
        result = int(significant) * 10**exponent * (-1 if whole.startswith("-") else 1)
    if kind == nodes.DECIMAL:
        return Decimal(result)
    if result not in _INT64:
        raise _out_of_range(path, "an integer beyond 64 bits")
    return result


def _number(number: Number, path: str) -> float:
    if number.whole and (
        len(number.text) > 17 or not -nodes.WHOLE_DOUBLE_MAX <= int(number.text) <= nodes.WHOLE_DOUBLE_MAX
    ):
        raise _out_of_range(path, "an integer beyond 2^53, which a double may not hold")
    result = float(number.text)
    if math.isinf(result):
        raise _out_of_range(path, "a number beyond the largest double")
    return result


def _day(match: re.Match[str], path: str, kind: int) -> int:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(year or 4, month)[1]:
        raise _mismatch("", kind, path)
    if year == 0:
        raise _out_of_range(path, "the year 0000")
    return dt.date(year, month, day).toordinal() - _EPOCH_DAY


def _days(text: str, path: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise _mismatch(text, nodes.DATE, path)
    return _day(match, path, nodes.DATE)


def _microseconds(text: str, path: str) -> int:
    """Microseconds since 1970-01-01T00:00:00Z."""
    day, time = _DATE.match(text), _TIME.fullmatch(text[10:])
    if day is None or time is None:
        raise _mismatch(text, nodes.DATETIME, path)
    if time[5] is None and time[6] is None:
        raise BadValue(ValueProblem.TYPE_MISMATCH, f"{path}: a date-time without offset")
    days = _day(day, path, nodes.DATETIME)
    hour, minute, second = int(time[1]), int(time[2]), int(time[3])
    offset_hours, offset_minutes = int(time[7] or 0), int(time[8] or 0)
    if hour > 23 or minute > 59 or second > 60 or offset_hours > 23 or offset_minutes > 59:
        raise _mismatch(text, nodes.DATETIME, path)
    if second == 60:
        raise _out_of_range(path, "a leap second")
    fraction = (time[4] or "").rstrip("0")
    if len(fraction) > 6:
        raise _out_of_range(path, "a date-time finer than a microsecond")
    offset = (offset_hours * 60 + offset_minutes) * (-1 if time[6] == "-" else 1)
    minutes = hour * 60 + minute - offset
    result = days * _DAY_US + (minutes * 60 + second) * 1_000_000 + int(fraction.ljust(6, "0"))
    if not _FIRST_US <= result <= _LAST_US:
        raise _out_of_range(path, "an instant outside the years 0001 to 9999")
    return result
