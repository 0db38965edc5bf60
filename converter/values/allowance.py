"""What lists and maps of the values of one file may take together.

A value of few bytes may command a million cells, and a batch holds a thousand such values in a few bytes. So what a
value takes beyond what its bytes pay for is counted by file, in the order of its rows.
"""

from __future__ import annotations

import numpy as np

from converter.kernel import kernel, readonly
from converter.limits import CELLS_PER_BYTE, EXCESS_CELLS_MAX, FILE_CELLS_MAX, RECORD_BYTES
from converter.types import BoolArray, Int64Array

_EXCESS, _ALL = 0, 1


class Allowance:
    """Cells that the values of one file may take yet. Used by one thread."""

    def __init__(self) -> None:
        self._left = np.array([EXCESS_CELLS_MAX, FILE_CELLS_MAX], dtype=np.int64)

    @property
    def left(self) -> tuple[int, int]:
        """Beyond what values' bytes pay for, and of all."""
        return int(self._left[_EXCESS]), int(self._left[_ALL])

    def back_to(self, left: tuple[int, int]) -> None:
        """Gives back what was taken since this was left: the values are decoded again."""
        self._left[:] = left

    def refused(self, cells: Int64Array, sizes: Int64Array) -> BoolArray:
        """Which values there is no room for; that of the others is taken.

        Args:
            cells: that lists and maps of each value take.
            sizes: of the values in bytes.
        """
        refused = np.zeros(len(cells), dtype=np.bool_)
        _take(readonly(cells, np.int64), readonly(sizes, np.int64), self._left, CELLS_PER_BYTE, RECORD_BYTES, refused)
        return refused


def refused_by(allowance: Allowance | None, cells: Int64Array, sizes: Int64Array) -> BoolArray:
    """See Allowance.refused; nothing is refused where there is none."""
    return np.zeros(len(cells), dtype=np.bool_) if allowance is None else allowance.refused(cells, sizes)


@kernel
def _take(
    cells: Int64Array, sizes: Int64Array, left: Int64Array, per_byte: int, record_bytes: int, refused: BoolArray
) -> None:
    """Caller's promise: all arrays but `left`, which has two numbers, are equally long."""
    for i in range(len(cells)):
        excess = max(0, cells[i] - per_byte * (sizes[i] + record_bytes))
        # What has no excess does not wait for one that is used up.
        if cells[i] > left[_ALL] or (excess > 0 and excess > left[_EXCESS]):
            refused[i] = True
        else:
            left[_EXCESS] -= excess
            left[_ALL] -= cells[i]
