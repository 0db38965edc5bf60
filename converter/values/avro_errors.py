"""What is said about rows that were not read."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from converter.limits import VALUE_CELLS_MAX
from converter.types import Int64Array, UInt8Array
from converter.values.avro_ops import Damage
from converter.values.model import FILE_CELLS_TEXT, ValueProblem, error_text

_BAD = ValueProblem.UNDECODABLE
_RANGE = ValueProblem.OUT_OF_RANGE
_TEXTS: Final = {
    Damage.SHORT: (_BAD, "the value ends too early"),
    Damage.VARINT: (_BAD, "a number does not end"),
    Damage.INT_RANGE: (_BAD, "an int of more than 32 bits"),
    Damage.BOOL: (_BAD, "a boolean that is neither 0 nor 1"),
    Damage.LENGTH: (_BAD, "a negative length"),
    Damage.UTF8: (_BAD, "a string that is not UTF-8"),
    Damage.ENUM: (_BAD, "a symbol the enum does not have"),
    Damage.BRANCH: (_BAD, "a branch the union does not have"),
    Damage.COUNT: (_BAD, "an impossible count or size of a block"),
    Damage.TRAILING: (_BAD, "bytes after the value's end"),
    Damage.TWICE: (_BAD, "a map with a key twice"),
    Damage.DEEP: (_RANGE, "nested too deep"),
    Damage.TIMESTAMP: (_RANGE, "a timestamp beyond 64 bits of microseconds"),
    Damage.DECIMAL: (_RANGE, "a decimal with more digits than its type"),
    Damage.CELLS: (_RANGE, f"takes more than {VALUE_CELLS_MAX} cells"),
    Damage.NO_ROOM: (_RANGE, FILE_CELLS_TEXT),
    Damage.EMPTY_ITEMS: (_RANGE, "more items that take no bytes than the value has bytes"),
}

#: What is of the whole value, wherever it was noticed.
_WHOLE: Final = (Damage.TWICE, Damage.NO_ROOM)


def errors(damage: UInt8Array, seen_at: Int64Array, places: tuple[str, ...]) -> pa.StringArray:
    """A text per row, null where the row was read.

    Args:
        damage: per row, a Damage.
        seen_at: per row, the instruction it was seen at.
        places: of each instruction, the field it reads.
    """
    if not damage.any():
        return pa.nulls(len(damage), pa.string())
    kinds, which = np.unique(damage.astype(np.int64) * len(places) + seen_at, return_inverse=True)
    texts = [_text(Damage(kind // len(places)), places[kind % len(places)]) for kind in kinds.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(which, pa.int64()))


def _text(damage: Damage, place: str) -> str | None:
    if damage is Damage.OK:
        return None
    problem, text = _TEXTS[damage]
    at = f", at {place}" if place and damage not in _WHOLE else ""
    return error_text(problem, text + at)
