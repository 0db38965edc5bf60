"""Kafka 4.4's `remote.copy.lag.ms` and `.bytes`: a closed segment is copied once either says so. Pure.

0 of either: at once, and so it is by default and in older releases. Positive: once its newest record is so old, or once
so many newer bytes lie behind it. -1: what the effective local retention says; where that is unlimited, the check does
not apply. When neither check applies nothing is ever copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: A topic's whole-number setting; None where Kafka did not say.
Setting = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class CopyLag:
    """How long closed segments are held back on purpose. `ms`, `bytes`: None where that check does not apply."""

    ms: int | None
    bytes: int | None

    def due(self, newest_ms: int, behind_bytes: float, now_ms: int) -> bool:
        """Whether a closed segment is to be copied.

        Args:
            newest_ms: at the latest its newest record's timestamp, since the epoch.
            behind_bytes: log bytes that lie behind it.
            now_ms: since the epoch.
        """
        by_time = self.ms is not None and now_ms - newest_ms >= self.ms
        return by_time or (self.bytes is not None and behind_bytes >= self.bytes)

    def said(self) -> str:
        """In words."""
        by_time = "" if self.ms is None else f"its newest record is {self.ms} ms old"
        by_size = "" if self.bytes is None else f"{self.bytes} newer bytes lie behind it"
        waits = " or ".join(text for text in (by_time, by_size) if text)
        return f"until {waits}" if waits else "for ever, since no check applies"


def copy_lag(setting: Setting) -> CopyLag | None:
    """What a topic's settings say; None: closed segments are copied at once."""
    found = [
        _effective(setting, f"remote.copy.lag.{unit}", f"local.retention.{unit}", f"retention.{unit}")
        for unit in ("ms", "bytes")
    ]
    return None if 0 in found else CopyLag(*found)


def _effective(setting: Setting, lag: str, local: str, whole: str) -> int | None:
    value = setting(lag)
    if value is None:
        return 0  # a broker that does not know it
    if value != -1:
        return value
    kept = setting(local)
    kept = setting(whole) if kept == -2 else kept
    return None if kept is None or kept < 0 else kept
