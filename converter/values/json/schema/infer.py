"""A JSON Schema from a sample of values: made once, stored, used for ever; wider ones for values that do not fit it.

Hence it promises little. A member is a column of a type where every value of the sample has that type; where they
differ it is JSON text. Strings stay strings, dates too: the first one of another form would get another column.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from converter.limits import VALUE_CELLS_MAX
from converter.values.json import nodes
from converter.values.json.exact_reader import BadValue, Number, Value, parse, parsing_cells
from converter.values.json.schema.parse import NAMES_LATER

#: Names of one object beyond which it is taken for a map of things, and stays JSON text.
INNER_MEMBERS_MAX: Final = 200
#: Columns of the value itself; the names that come later go to `_additional`.
MEMBERS_MAX: Final = 1000
#: Objects and arrays within each other; deeper ones stay JSON text.
LEVELS_MAX: Final = 8
#: Places of the values that get a column, one within another counted too: a table has room for 2,000. Names that come
#: later go to `_additional` of the object they are in.
PLACES_MAX: Final = 1_500
#: Longer names go there as well: no table takes them as a column's.
NAME_CHARS_MAX: Final = 1_000
#: What parsing the sample may take together, in cells; its first object is looked at in any case.
SAMPLE_CELLS_MAX: Final = 4 * VALUE_CELLS_MAX
_INT64: Final = range(-(2**63), 2**63)
_DECIMAL_DIGITS: Final = 38


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What was seen at one place of the values. `kinds`: types of JSON Schema; `text`: no type holds all of it."""

    kinds: set[str] = field(default_factory=set)
    beyond_double: bool = False
    beyond_int64: bool = False
    text: bool = False
    members: dict[str, _Seen] = field(default_factory=dict)
    elements: _Seen | None = None


def infer_schema(values: pa.BinaryArray, *, empty: bool = True) -> str | None:
    """The text of a JSON Schema that every JSON object of the sample decodes with.

    Args:
        values: up to some thousand values; nulls are left out, values that are too large to be parsed
            (VALUE_CELLS_MAX), and after the first object those beyond SAMPLE_CELLS_MAX. The schema depends on them and
            their order only.
        empty: whether names that are null, or empty, in all of them get columns, of JSON text.

    Returns:
        None when no value is a JSON object.
    """
    root = _Seen()
    _see_all(root, values, PLACES_MAX)
    if not root.kinds:
        return None
    if empty:
        return json.dumps(_of_values(root))
    told = _of_values(_without_empty(root))
    return json.dumps(told if told["properties"] else {**told, NAMES_LATER: True})


def widened(schema: dict[str, Any], values: pa.BinaryArray) -> dict[str, Any]:
    """A schema from here with wider types where these values do not have those it says; it gets no other names."""
    root = _seen(schema)
    _see_all(root, values, 0)
    return _of_values(root)


def with_names(schema: dict[str, Any], values: pa.BinaryArray, places: int) -> dict[str, Any]:
    """A schema from here with the names, at most so many, that these values have beside; types may be others, too.

    Names that are null, or empty, in all of them are none.
    """
    root = _seen(schema)
    _see_all(root, values, places)
    return _of_values(_without_empty(root))


def _without_empty(seen: _Seen) -> _Seen:
    members = {name: _without_empty(member) for name, member in seen.members.items()}
    elements = None if seen.elements is None else _without_empty(seen.elements)
    typed = {name: member for name, member in members.items() if _has_type(member)}
    return replace(seen, members=typed, elements=elements)


def _has_type(seen: _Seen) -> bool:
    """Whether anything is known of it: not of what was null, or an empty object or array, each time."""
    if seen.text or seen.members or seen.kinds - {"object", "array"}:
        return True
    return seen.elements is not None and _has_type(seen.elements)


def _of_values(root: _Seen) -> dict[str, Any]:
    properties = {name: _schema(seen) for name, seen in list(root.members.items())[:MEMBERS_MAX]}
    return {"type": "object", "properties": properties}


def _seen(schema: dict[str, Any]) -> _Seen:
    """What a place of a schema from here says was seen; what is JSON text stays so."""
    kind = schema.get("type", "")
    if kind == "object" and "properties" in schema:
        return _Seen(kinds={kind}, members={name: _seen(member) for name, member in schema["properties"].items()})
    if kind == "array" and "items" in schema:
        return _Seen(kinds={kind}, elements=_seen(schema["items"]))
    if kind in ("", "object", "array"):
        return _Seen(text=True)
    return _Seen(kinds={kind}, beyond_int64="maximum" in schema)


def _see_all(root: _Seen, values: pa.BinaryArray, places: int) -> None:
    cells, left = 0, [places]
    for value in values:
        if not value.is_valid:
            continue
        needed = parsing_cells(np.frombuffer(value.as_buffer(), dtype=np.uint8))
        cells += needed
        if needed > VALUE_CELLS_MAX:
            continue
        if cells > SAMPLE_CELLS_MAX and root.kinds:
            break
        try:
            document = parse(value.as_py())
        except BadValue:
            continue
        if isinstance(document.content, dict):
            _see(root, document, 0, left)


def _see(seen: _Seen, value: Value, level: int, left: list[int]) -> None:
    """`left`: how many places there may be more."""
    content = value.content
    if isinstance(content, Number):
        _see_number(seen, content)
    elif isinstance(content, bool):
        seen.kinds.add("boolean")
    elif isinstance(content, str):
        seen.kinds.add("string")
    elif isinstance(content, dict):
        seen.kinds.add("object")
        if level >= LEVELS_MAX:
            seen.text = True
            return
        for name, member in content.items():
            if (place := _member(seen, name, level, left)) is not None:
                _see(place, member.value, level + 1, left)
    elif isinstance(content, list):
        seen.kinds.add("array")
        if level >= LEVELS_MAX:
            seen.text = True
            return
        for element in content:
            if seen.elements is None:
                left[0] -= 1
                seen.elements = _Seen()
            _see(seen.elements, element, level + 1, left)


def _member(seen: _Seen, name: str, level: int, left: list[int]) -> _Seen | None:
    """The place of an object's member; None where it is to have no column of its own."""
    if (found := seen.members.get(name)) is not None:
        return found
    most = INNER_MEMBERS_MAX + 1 if level else MEMBERS_MAX
    if len(seen.members) >= most or left[0] <= 0 or len(name) > NAME_CHARS_MAX:
        return None
    left[0] -= 1
    return seen.members.setdefault(name, _Seen())


def _see_number(seen: _Seen, number: Number) -> None:
    if not number.whole:
        seen.kinds.add("number")
        seen.text |= math.isinf(float(number.text))
        return
    seen.kinds.add("integer")
    if len(number.text.lstrip("-")) > _DECIMAL_DIGITS:
        seen.text = True
        return
    value = int(number.text)
    seen.beyond_double |= abs(value) > nodes.WHOLE_DOUBLE_MAX
    seen.beyond_int64 |= value not in _INT64


def _schema(seen: _Seen) -> dict[str, Any]:
    """{} where no one type holds what was seen: JSON text."""
    kinds = seen.kinds
    if seen.text:
        return {}
    if kinds == {"integer", "number"}:
        return {} if seen.beyond_double else {"type": "number"}
    if len(kinds) != 1:
        return {}
    (kind,) = kinds
    if kind == "integer" and seen.beyond_int64:
        limit = 10**_DECIMAL_DIGITS - 1
        return {"type": "integer", "minimum": -limit, "maximum": limit}
    if kind == "object" and 0 < len(seen.members) <= INNER_MEMBERS_MAX:
        return {"type": "object", "properties": {name: _schema(member) for name, member in seen.members.items()}}
    if kind == "array" and seen.elements is not None and seen.elements.kinds:
        return {"type": "array", "items": _schema(seen.elements)}
    return {} if kind in ("object", "array") else {"type": kind}
