"""A process that dies at a fail point, as a test in the same process sees it: nothing after the point happens."""

from __future__ import annotations

import pytest

from iceberg_catalog import failpoints


class KilledError(BaseException):
    """Not an Exception: nothing may handle it."""


def die_at(patched: pytest.MonkeyPatch, step: str, times: int = 1) -> None:
    """Ends whatever comes to the step for the given time."""
    left = [times]

    def hit(point: str, about: str = "") -> None:
        left[0] -= point == step
        if not left[0]:
            raise KilledError(f"killed at {step}, {about}")

    patched.setattr(failpoints, "hit", hit)
