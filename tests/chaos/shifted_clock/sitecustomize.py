"""Loaded by every Python process that has this folder on its path: `time.time` runs ahead or behind.

The file that CHAOS_CLOCK names holds the seconds to add; it is read again when half a second has passed.
"""

from __future__ import annotations

import os
import time

_file = os.environ.get("CHAOS_CLOCK")
_true, _true_ns, _steady = time.time, time.time_ns, time.monotonic
_looked = -1.0
_shift = 0.0


def _shift_now() -> float:
    global _looked, _shift  # noqa: PLW0603 - one clock for the process
    now = _steady()
    if _file and now - _looked > 0.5:
        _looked = now
        try:
            with open(_file, encoding="ascii") as held:  # noqa: PTH123 - pathlib is not to be loaded this early
                _shift = float(held.read() or 0)
        except (OSError, ValueError):
            _shift = 0.0
    return _shift


if _file:
    time.time = lambda: _true() + _shift_now()
    time.time_ns = lambda: _true_ns() + int(_shift_now() * 1e9)
