"""How a writer puts values into JSON, as far as columns do not say: what an encoder has beside the schema.

A style is stored as JSON text with the rows that need no bytes because of it, so what its words mean never changes.
Nodes are named by their place in the walk of the schema's tree, parents first (nodes.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

_SPACES: Final = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberForm:
    """How a double's shortest digits d.ddd × 10^e are written.

    Attributes:
        low, high: without exponent where low <= e < high.
        point: whole numbers end in `.0`; with an exponent, too, where `exponent_point` is set.
        letter: `e` or `E`.
        plus: positive exponents have a sign.
        digits: exponents have at least so many.
        minus_zero: -0.0 keeps its sign.
    """

    low: int
    high: int
    point: bool
    exponent_point: bool
    letter: str
    plus: bool
    digits: int
    minus_zero: bool


#: `python`: repr(). `orjson`. `rust`: the ryu crate, in serde_json for long. `java`: Double.toString(), Jackson, Gson.
#: `javascript`: JSON.stringify(). `go`: encoding/json. `dotnet`: System.Text.Json.
NUMBER_FORMS: Final[Mapping[str, NumberForm]] = MappingProxyType(
    {
        "python": NumberForm(
            low=-4, high=16, point=True, exponent_point=False, letter="e", plus=True, digits=2, minus_zero=True
        ),
        "orjson": NumberForm(
            low=-5, high=16, point=True, exponent_point=False, letter="e", plus=True, digits=1, minus_zero=True
        ),
        "rust": NumberForm(
            low=-5, high=16, point=True, exponent_point=False, letter="e", plus=False, digits=1, minus_zero=True
        ),
        "java": NumberForm(
            low=-3, high=7, point=True, exponent_point=True, letter="E", plus=False, digits=1, minus_zero=True
        ),
        "javascript": NumberForm(
            low=-6, high=21, point=False, exponent_point=False, letter="e", plus=True, digits=1, minus_zero=False
        ),
        "go": NumberForm(
            low=-6, high=21, point=False, exponent_point=False, letter="e", plus=True, digits=1, minus_zero=True
        ),
        "dotnet": NumberForm(
            low=-4, high=15, point=False, exponent_point=False, letter="E", plus=True, digits=2, minus_zero=True
        ),
    }
)
#: Digits behind a second's point: as many as the number says; or `micros`: none or 6 (Python's isoformat()), `groups`:
#: none, 3 or 6 (Java's Instant), `shortest`: without zeros at the end (Go). Where a sample fits several, the first.
FRACTIONS: Final = ("micros", "3", "6", "groups", "shortest", "0", "1", "2", "4", "5", "7", "8", "9")


@dataclass(frozen=True, slots=True)
class TimeForm:
    """How a date-time is written: `T`, `t` or a space between date and time, one of FRACTIONS, `Z`, `z` or `±hh:mm`."""

    separator: str = "T"
    fraction: str = "micros"
    zone: str = "Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """A writer's habits.

    Attributes:
        comma, colon: with the white space around them.
        escapes: ASCII characters by how they are written; others than the usual: `"` and the backslash have a backslash
            in front, U+0008, U+0009, U+000A, U+000C and U+000D are letters, other control characters numbers.
        ascii: characters beyond ASCII are numbers; else they are UTF-8, `lines`: but for U+2028 and U+2029.
        upper: hexadecimal letters are capitals.
        skip_nulls: a member that is null is left out; but for the nodes in `nulls_differ`, where it is the other way.
        number, time: forms of numbers and date-times, but for the nodes in `numbers`, `times`.
        orders: of structs that are not written in the schema's order with `_additional` last: numbers of the children.
    """

    comma: str = ","
    colon: str = ":"
    escapes: Mapping[str, str] = field(default_factory=dict)
    ascii: bool = False
    lines: bool = False
    upper: bool = False
    skip_nulls: bool = False
    nulls_differ: frozenset[int] = frozenset()
    number: str = "python"
    numbers: Mapping[int, str] = field(default_factory=dict)
    time: TimeForm = field(default_factory=TimeForm)
    times: Mapping[int, TimeForm] = field(default_factory=dict)
    orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def skips_null(self, node: int) -> bool:
        """Whether the member is left out where it is null."""
        return self.skip_nulls != (node in self.nulls_differ)


def style_text(style: Style) -> str:
    """The style as it is stored."""
    document = {
        "comma": style.comma,
        "colon": style.colon,
        "escapes": dict(style.escapes),
        "ascii": style.ascii,
        "lines": style.lines,
        "upper": style.upper,
        "skip_nulls": style.skip_nulls,
        "nulls_differ": sorted(style.nulls_differ),
        "number": style.number,
        "numbers": {str(node): name for node, name in style.numbers.items()},
        "time": _time_list(style.time),
        "times": {str(node): _time_list(form) for node, form in style.times.items()},
        "orders": {str(node): list(order) for node, order in style.orders.items()},
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def parse_style(text: str) -> Style:
    """The style of a stored text.

    Raises:
        ValueError: it is none.
    """
    document = json.loads(text)
    try:
        style = Style(
            comma=_mark(document["comma"], ","),
            colon=_mark(document["colon"], ":"),
            escapes={_ascii(char): _escape(char, form) for char, form in document["escapes"].items()},
            ascii=bool(document["ascii"]),
            lines=bool(document["lines"]),
            upper=bool(document["upper"]),
            skip_nulls=bool(document["skip_nulls"]),
            nulls_differ=frozenset(map(int, document["nulls_differ"])),
            number=_number(document["number"]),
            numbers={int(node): _number(name) for node, name in document["numbers"].items()},
            time=_time(document["time"]),
            times={int(node): _time(form) for node, form in document["times"].items()},
            orders={int(node): tuple(map(int, order)) for node, order in document["orders"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no style of JSON: {error!r}") from None
    return style


def zone_minutes(zone: str) -> int:
    """East of UTC.

    Raises:
        ValueError: it is neither `Z` nor `±hh:mm`.
    """
    if zone in {"Z", "z"}:
        return 0
    hours, minutes = zone[1:3], zone[4:]
    if len(zone) != 6 or zone[0] not in "+-" or zone[3] != ":" or not (hours + minutes).isdecimal():
        raise ValueError(f"{zone!r} is no zone")
    return (int(hours) * 60 + int(minutes)) * (-1 if zone[0] == "-" else 1)


def _time_list(form: TimeForm) -> list[str]:
    return [form.separator, form.fraction, form.zone]


def _mark(text: str, mark: str) -> str:
    if text.strip(_SPACES) != mark:
        raise ValueError(f"{text!r} is no {mark!r} with white space")
    return text


def _ascii(char: str) -> str:
    if len(char) != 1 or not char.isascii():
        raise ValueError(f"{char!r} is no ASCII character")
    return char


def _escape(char: str, form: str) -> str:
    """The form: the character itself, a backslash and a character, or a number."""
    short = len(form) == 2 and form[0] == "\\" and form.isascii()
    if form != char and not short and form != "\\u":
        raise ValueError(f"{form!r} is no way to write {char!r}")
    return form


def _number(name: Any) -> str:
    if name not in NUMBER_FORMS:
        raise ValueError(f"{name!r} is no form of numbers")
    return str(name)


def _time(parts: Any) -> TimeForm:
    separator, fraction, zone = parts
    if separator not in {"T", "t", " "} or fraction not in FRACTIONS:
        raise ValueError(f"{parts!r} is no form of date-times")
    zone_minutes(zone)
    return TimeForm(separator, fraction, zone)
