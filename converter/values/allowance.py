"""What lists and maps of the values of one file may take together.

A value of few bytes may command a million cells, and a batch holds a thousand such values in a few bytes. So what a
value takes beyond what its bytes pay for is counted by file, in the order of its rows.
"""

from __future__ import annotations

import numpy as np

from converter.kernels.kernel import kernel, readonly
from converter.limits import CELLS_PER_BYTE, EXCESS_CELLS_MAX, FILE_CELLS_MAX, RECORD_BYTES, SLOW_STEPS_MAX
from converter.types import BoolArray, Int64Array

_EXCESS, _ALL, _STEPS = 0, 1, 2


class Allowance:
    """Cells that the values of one file may take yet. Used by one thread."""

    def __init__(self) -> None:
        self._left = np.array([EXCESS_CELLS_MAX, FILE_CELLS_MAX, SLOW_STEPS_MAX], dtype=np.int64)

    @property
    def left(self) -> tuple[int, int, int]:
        """Beyond what values' bytes pay for, and of all; steps."""
        return int(self._left[_EXCESS]), int(self._left[_ALL]), int(self._left[_STEPS])

    def back_to(self, left: tuple[int, int, int]) -> None:
        """Gives back what was taken since this was left: the values are decoded again."""
        self._left[:] = left

    def refused(self, cells: Int64Array, sizes: Int64Array, steps: Int64Array | None = None) -> BoolArray:
        """Which values there is no room for; that of the others is taken.

        Args:
            cells: that lists and maps of each value take.
            sizes: of the values in bytes.
            steps: that Python takes for each value; None: no value is decoded slowly.
        """
        refused = np.zeros(len(cells), dtype=np.bool_)
        arrays = [
            readonly(array, np.int64) for array in (cells, sizes, np.zeros_like(cells) if steps is None else steps)
        ]
        _take(arrays[0], arrays[1], arrays[2], self._left, CELLS_PER_BYTE, RECORD_BYTES, refused)
        return refused


def refused_by(
    allowance: Allowance | None, cells: Int64Array, sizes: Int64Array, steps: Int64Array | None = None
) -> BoolArray:
    """See Allowance.refused; nothing is refused where there is none."""
    return np.zeros(len(cells), dtype=np.bool_) if allowance is None else allowance.refused(cells, sizes, steps)


@kernel
def _take(
    cells: Int64Array,
    sizes: Int64Array,
    steps: Int64Array,
    left: Int64Array,
    per_byte: int,
    record_bytes: int,
    refused: BoolArray,
) -> None:
    """Caller's promise: all arrays but `left`, which has three numbers, are equally long."""
    for i in range(len(cells)):
        excess = max(0, cells[i] - per_byte * (sizes[i] + record_bytes))
        # What has no excess does not wait for one that is used up.
        if cells[i] > left[_ALL] or (excess > 0 and excess > left[_EXCESS]) or steps[i] > left[_STEPS]:
            refused[i] = True
        else:
            left[_EXCESS] -= excess
            left[_ALL] -= cells[i]
            left[_STEPS] -= steps[i]
