"""Schemas made wider in some places, for values that do not fit them, and by names that come later.

Of one that was inferred, what differs is kept, as JSON: a list of [steps from the schema's root, the schema there].
That is short, where the schema may have 1,500 places.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from converter.values.json.nodes import is_extra_name
from converter.values.json.schema.infer import widened, with_names
from converter.values.json.schema.parse import JSON_TEXT

_Schema = dict[str, Any]
_Steps = tuple[str, ...]
#: Of a place that has no one type any more. Its column is no string's: '1' and 1 would be the same in it.
_TEXT: _Schema = {JSON_TEXT: True}


def wider_places(text: str, values: pa.BinaryArray) -> str | None:
    """Places where values have other types than a schema says, with types that hold both; None where there are none.

    Args:
        text: as converter.values.json.schema.infer.infer_schema makes it.
        values: some; those that are no JSON objects, and names that the schema does not say, are left out.
    """
    before = json.loads(text)
    found = [[*item] for item in _differences(before, widened(before, values), ())]
    return json.dumps(found) if found else None


def more_places(text: str, values: pa.BinaryArray, most: int) -> str | None:
    """Names that a schema does not say and that some value gives another value than null; None where there are none.

    Args:
        text: as converter.values.json.schema.infer.infer_schema makes it.
        values: some; those that are no JSON objects are left out. Members with a name like that of the column for
            those that have none stay in it.
        most: so many names, those within others counted.
    """
    before = json.loads(text)
    found = [[*item] for item in _names(before, with_names(before, values, most), ())]
    return json.dumps(found) if found else None


def each_place(places: str) -> list[str]:
    """Each place alone, of several; none of one."""
    found = json.loads(places)
    return [json.dumps([place]) for place in found] if len(found) > 1 else []


def all_places(several: Iterable[str]) -> str:
    """Places of several together; one that has different types in them is JSON text, and takes what lies within it."""
    found: dict[_Steps, _Schema] = {}
    for steps, schema in (place for places in several for place in json.loads(places)):
        known = found.setdefault(tuple(steps), schema)
        if known != schema:
            found[tuple(steps)] = _TEXT
    outer = [steps for steps, schema in found.items() if schema == _TEXT]
    kept = [
        [steps, schema]
        for steps, schema in sorted(found.items())
        if not any(len(of) < len(steps) and steps[: len(of)] == of for of in outer)
    ]
    return json.dumps(kept)


def count_places(places: str) -> int:
    """How many names and elements they are, those within others counted."""
    return sum(1 + _count(schema) for _, schema in json.loads(places))


def with_places(text: str, places: str) -> str:
    """The schema `text` with places that :func:`wider_places`, or :func:`more_places`, found."""
    schema = json.loads(text)
    for steps, wider in json.loads(places):
        parent = schema
        for step in steps[:-1]:
            parent = parent[step]
        parent[steps[-1]] = wider
    return json.dumps(schema)


def _differences(before: _Schema, after: _Schema, steps: _Steps) -> Iterator[tuple[_Steps, _Schema]]:
    if before == after:
        return
    if "items" in before and "items" in after:
        yield from _differences(before["items"], after["items"], (*steps, "items"))
    elif "properties" in before and "properties" in after:
        for name, member in before["properties"].items():
            yield from _differences(member, after["properties"][name], (*steps, "properties", name))
    else:
        yield steps, after or _TEXT


def _names(before: _Schema, after: _Schema, steps: _Steps) -> Iterator[tuple[_Steps, _Schema]]:
    if "items" in before and "items" in after:
        yield from _names(before["items"], after["items"], (*steps, "items"))
    if "properties" in before and "properties" in after:
        for name, schema in after["properties"].items():
            within = (*steps, "properties", name)
            if name in before["properties"]:
                yield from _names(before["properties"][name], schema, within)
            elif not is_extra_name(name):  # that column is ours since the first rows
                yield within, schema


def _count(schema: _Schema) -> int:
    within = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return sum(1 + _count(item) for item in within)


def schema_without_times(text: str) -> str | None:
    """The schema with each `format: date-time` left out, so that such a member is a string; None where there is none.

    RFC 3339 allows any number of digits behind the second, and .NET and Go write seven and nine.

    Args:
        text: of the schema.
    """
    try:
        document, found = _without(json.loads(text))
    except (RecursionError, ValueError):  # columns of it end far above; no JSON at all
        return None
    return json.dumps(document) if found else None


def _without(part: Any) -> tuple[Any, bool]:
    if isinstance(part, list):
        made = [_without(item) for item in part]
        return [item for item, _ in made], any(found for _, found in made)
    if not isinstance(part, dict):
        return part, False
    timed = part.get("format") == "date-time"
    kept = {name: _without(item) for name, item in part.items() if not (timed and name == "format")}
    return {name: item for name, (item, _) in kept.items()}, timed or any(found for _, found in kept.values())
