"""Which logical types there are, on which types, and what makes one valid.

One that is not valid is ignored, as the Avro specification demands ("Logical Types").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

#: A decimal's digits beyond this are not converted; such a type counts as not valid. Python converts 4,300 at most.
DECIMAL_DIGITS_MAX: Final = 4000


class Meaning(StrEnum):
    """Logical types that change a column."""

    DECIMAL = "decimal"
    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    UUID = "uuid"
    DURATION = "duration"


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type; precision and scale are a decimal's digits, all of them and those after the point."""

    meaning: Meaning
    precision: int = 0
    scale: int = 0


#: On which types a logical type may stand. Those in nanoseconds and uuid on a string change nothing.
_ON: Final = {
    Meaning.DECIMAL: ("bytes", "fixed"),
    Meaning.DATE: ("int",),
    Meaning.TIME_MILLIS: ("int",),
    Meaning.TIME_MICROS: ("long",),
    Meaning.TIMESTAMP_MILLIS: ("long",),
    Meaning.TIMESTAMP_MICROS: ("long",),
    Meaning.LOCAL_TIMESTAMP_MILLIS: ("long",),
    Meaning.LOCAL_TIMESTAMP_MICROS: ("long",),
    Meaning.UUID: ("fixed",),
    Meaning.DURATION: ("fixed",),
}
#: Bytes of the fixed types these may stand on.
_SIZES: Final = {Meaning.UUID: 16, Meaning.DURATION: 12}


def logical_of(parsed: Mapping[str, Any], word: str, size: int | None = None) -> Logical | None:
    """The logical type that a type's JSON object names, None where it names none that counts.

    Args:
        parsed: the type's JSON object.
        word: the type below, as a schema writes it.
        size: bytes of a fixed type; None for others.
    """
    name = parsed.get("logicalType")
    if not isinstance(name, str) or name not in list(Meaning):
        return None
    meaning = Meaning(name)
    if word not in _ON[meaning] or _SIZES.get(meaning, size) != size:
        return None
    if meaning is not Meaning.DECIMAL:
        return Logical(meaning)
    precision, scale = parsed.get("precision"), parsed.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if not 0 < precision <= DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        return None
    if size is not None and (10**precision - 1).bit_length() > max(8 * size - 1, 0):
        return None  # more digits than the bytes can hold; by bits, for a size may say gigabytes
    return Logical(meaning, precision, scale)
