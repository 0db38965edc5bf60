"""What values teach about the schema that was inferred for them: which are looked at, and whether it helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from converter.types import BoolArray
from converter.values.model import CellsExceededError, Decoder
from rsm_bridge.limits import LOOKS_BETWEEN_MAX, MISFIT_BYTES_READ_MAX, MISFIT_CELLS_MAX, MISFITS_READ_MAX

#: How the names of columns begin that have the members which a schema does not name.
_ADDITIONAL = "_additional"
#: A member that has nothing, which says nothing about its type; levels of such within each other that are seen through.
_EMPTY_MEMBER = r'"(?:[^"\\]|\\.)*"\s*:\s*(?:null|[\[{](?:[\s,\[\]{}]|null)*?[\]}])'
_EMPTY_LEVELS = 3


def few(values: pa.BinaryArray) -> pa.BinaryArray:
    """The first ones that begin as JSON objects do: as many as may be looked at one by one, none of them large."""
    sizes = np.asarray(pc.binary_length(values).to_numpy(zero_copy_only=False))
    small = values.filter(pa.array(sizes <= MISFIT_BYTES_READ_MAX))
    found = small.filter(pc.match_substring_regex(small, r"^[ \t\r\n]*\{"))[:MISFITS_READ_MAX]
    sizes = np.asarray(pc.binary_length(found).to_numpy(zero_copy_only=False))
    return found.filter(pa.array(np.cumsum(sizes) <= MISFIT_BYTES_READ_MAX))


def fits_one(decoder: Decoder | str, values: pa.BinaryArray) -> bool | None:
    """Whether any of the values decodes; None: each has more cells than are looked at."""
    if isinstance(decoder, str):
        return False
    exceeded = 0
    for number in range(len(values)):
        try:
            if decoder.decode(values[number : number + 1], MISFIT_CELLS_MAX).errors.null_count:
                return True
        except CellsExceededError:
            exceeded += 1
    return None if exceeded and exceeded == len(values) else False


def with_other_names(column: pa.Array, name: str = "") -> BoolArray:
    """In which rows a column, or what lies within it, has members with a type that its schema does not name."""
    if name.startswith(_ADDITIONAL) and pa.types.is_string(column.type):
        if column.null_count == len(column):
            return np.zeros(len(column), dtype=np.bool_)
        for _ in range(_EMPTY_LEVELS):
            column = pc.replace_substring_regex(column, _EMPTY_MEMBER, "")
        others = pc.match_substring(column, '"')
        return np.asarray(pc.fill_null(others, fill_value=False).to_numpy(zero_copy_only=False))
    found = np.zeros(len(column), dtype=np.bool_)
    if pa.types.is_struct(column.type):
        for number, field in enumerate(column.type):
            found |= with_other_names(pc.struct_field(column, [number]), field.name)
    elif pa.types.is_list(column.type):
        found[pc.list_parent_indices(column).to_numpy()[with_other_names(pc.list_flatten(column))]] = True
    return found


@dataclass(slots=True)
class Looks:
    """How often something is looked at: ever more seldom while nothing comes of it."""

    _span: int = 0
    _left: int = 0

    def look(self, work: Callable[[], bool | None]) -> bool:
        """What the work finds, if it is time for it; asked once for each piece that has such rows.

        None: it could not look, which says nothing about how often to do so.
        """
        if self._left:
            self._left -= 1
            return False
        found = work()
        if found is None:
            return False
        self._span = 0 if found else min(LOOKS_BETWEEN_MAX, 2 * self._span or 1)
        self._left = self._span
        return found
