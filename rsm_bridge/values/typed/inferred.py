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

    def base(self) -> str:
        """The first schema, with the names that came later."""
        from converter.values.json.schema.widen import with_places

        return functools.reduce(with_places, self.names, self.first)

    def texts(self) -> tuple[str, ...]:
        """The schemas; values are read by the first one that they fit: those with fewest odd places come first."""
        from converter.values.json.schema.parse import JSON_TEXT
        from converter.values.json.schema.widen import count_places, with_places

        base = self.base()
        # Of as many places, those of a narrower type: JSON text takes everything.
        wider = sorted(self.wider, key=lambda places: (count_places(places), places.count(JSON_TEXT)))
        return (base, *(with_places(base, places) for places in wider))

    def more(self, values: pa.BinaryArray) -> Inferred:
        """With names that these values have beside, as long as there is room."""
        from converter.values.json.schema.widen import count_places, more_places

        room = ADDED_PLACES_MAX - sum(count_places(places) for places in self.names)
        found = more_places(self.base(), values, room) if room > 0 and len(self.names) < ADDITIONS_MAX else None
        return self if found is None else replace(self, names=(*self.names, found))

    def widened(self, values: pa.BinaryArray) -> Inferred:
        """With schemas for values that fit none so far, as long as there is room.

        One for each way in which they do not fit, and for each place alone, so that a row has nothing in another column
        but what is odd in it. Once half of them are used up, one for all that was ever odd.
        """
        from converter.values.json.schema.widen import all_places, each_place, wider_places

        room = VERSIONS_MAX - 1 - len(self.wider)
        if not room:
            return self
        base = self.base()
        ways = [wider_places(base, values[number : number + 1]) for number in range(len(values))]
        found = [places for places in dict.fromkeys(ways) if places is not None]
        alone = [place for places in found for place in each_place(places)]
        for wanted in (dict.fromkeys([*found, *alone]), dict.fromkeys(found)):
            new = [places for places in wanted if places not in self.wider]
            if len(new) <= room - VERSIONS_MAX // 2:
                return replace(self, wider=(*self.wider, *new))
        every = all_places([*self.wider, *found])
        return self if every in self.wider else replace(self, wider=(*self.wider, every))


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
