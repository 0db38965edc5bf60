"""Schemas that were inferred from a topic's values, as properties of its table, for all bridges.

The first one is of the topic's first values; names that came later are kept beside it. Each other one is for values
that fit none before it: the first one with other types in some places. A property is written once, and never changed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from rsm_bridge.limits import ADDED_PLACES_MAX, ADDITIONS_MAX, VERSIONS_MAX

Part = Literal["value", "key"]
#: Properties of the first ones.
INFERRED: Final[Mapping[Part, str]] = {"value": "tierberg.value-schema", "key": "tierberg.key-schema"}
#: The number in the name of the first property behind that: a column of it is `name__v2`.
_FIRST: Final = 2


@dataclass(frozen=True, slots=True)
class Inferred:
    """What was inferred so far.

    Attributes:
        first: the text of the first schema.
        names: places that came later, for all schemas.
        wider: of each other schema, places that differ from the first one; both as converter.values.json.schema.widen
            says.
    """

    first: str
    names: tuple[str, ...] = ()
    wider: tuple[str, ...] = ()

    def texts(self) -> tuple[str, ...]:
        """The schemas; values are read by the first one that they fit."""
        from converter.values.json.schema.widen import with_places

        base = functools.reduce(with_places, self.names, self.first)
        return (base, *(with_places(base, places) for places in self.wider))

    def more(self, values: pa.BinaryArray) -> Inferred:
        """With names that these values have beside, as long as there is room."""
        from converter.values.json.schema.widen import count_places, more_places

        (base, *_) = self.texts()
        room = ADDED_PLACES_MAX - sum(count_places(places) for places in self.names)
        found = more_places(base, values, room) if room > 0 and len(self.names) < ADDITIONS_MAX else None
        return self if found is None else replace(self, names=(*self.names, found))

    def widened(self, values: pa.BinaryArray) -> Inferred:
        """With schemas for values that fit none so far, as long as there is room.

        One for each way in which they do not fit, so that a row has nothing in another column but what is odd in it;
        one for all of them where those would be too many.
        """
        from converter.values.json.schema.widen import wider_places

        (base, *_) = self.texts()
        room = VERSIONS_MAX - 1 - len(self.wider)
        each = [wider_places(base, values[number : number + 1]) for number in range(len(values))] if room else []
        found = [places for places in dict.fromkeys(each) if places is not None and places not in self.wider]
        if len(found) > room:
            found = [places for places in [wider_places(base, values)] if places is not None]
        # Values are read by the first schema that they fit, and JSON text takes everything.
        return replace(self, wider=(*self.wider, *sorted(found, key=lambda places: places.count("{}"))))


def inferred_of(part: Part, properties: Mapping[str, str]) -> Inferred | None:
    """What a table has; None: nothing yet."""
    first = properties.get(INFERRED[part])
    if first is None:
        return None
    names = _texts(properties, f"{INFERRED[part]}__names", ADDITIONS_MAX)
    return Inferred(first, names, _texts(properties, f"{INFERRED[part]}__v", VERSIONS_MAX - 1))


def as_properties(part: Part, found: Inferred) -> dict[str, str]:
    """What :func:`inferred_of` reads, each property for itself."""
    first = INFERRED[part]
    names = {f"{first}__names{number}": text for number, text in enumerate(found.names, start=_FIRST)}
    return {first: found.first} | names | {f"{first}__v{n}": text for n, text in enumerate(found.wider, start=_FIRST)}


def _texts(properties: Mapping[str, str], prefix: str, most: int) -> tuple[str, ...]:
    """Up to the first that the table has not."""
    found: list[str] = []
    while len(found) < most and (text := properties.get(f"{prefix}{_FIRST + len(found)}")) is not None:
        found.append(text)
    return tuple(found)
