"""Schemas that were inferred from a topic's values, as properties of its table, for all bridges.

The first one is of the topic's first values. Each other one is for values that fit none before it: the first one with
other types in some places. They are written once each, and never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from rsm_bridge.limits import VERSIONS_MAX

Part = Literal["value", "key"]
#: Properties of the first ones.
INFERRED: Final[Mapping[Part, str]] = {"value": "tierberg.value-schema", "key": "tierberg.key-schema"}


def property_of(first: str, number: int) -> str:
    """The property that has the schema of this number, from 0 on; `first`: that of number 0."""
    return f"{first}__v{number + 1}" if number else first


def fixed(first: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """The texts that a table has, up to the first that it has not."""
    found: list[str] = []
    while len(found) < VERSIONS_MAX and (text := properties.get(property_of(first, len(found)))) is not None:
        found.append(text)
    return tuple(found)
