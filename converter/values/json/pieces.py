"""In which pieces values are worked on: so large that a processor's cache holds them with what becomes of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_ROWS_MAX: Final = 65_536


def piece_bounds(offsets: npt.NDArray[Any], size: int) -> list[tuple[int, int]]:
    """Runs `[first, end)` of the rows between n + 1 offsets, each of about `size` bytes and at most _ROWS_MAX rows."""
    runs = []
    first, count = 0, len(offsets) - 1
    while first < count:
        end = int(np.searchsorted(offsets, int(offsets[first]) + size, side="right")) - 1
        end = min(max(end, first + 1), first + _ROWS_MAX, count)
        runs.append((first, end))
        first = end
    return runs
