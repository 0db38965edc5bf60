"""Ages, moments, counts and sizes as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("d", 86400), ("h", 3600), ("min", 60))
_NEAR_MS = 12 * 3600 * 1000


def age(seconds: float) -> str:
    """Two significant units at most: `3 s`, `4 min 10 s`, `2 h 5 min`, `9 d 3 h`."""
    left = round(seconds)
    for number, (name, size) in enumerate(_UNITS):
        if left >= size:
            below_name, below_size = (*_UNITS, ("s", 1))[number + 1]
            rest = left % size // below_size
            return f"{left // size} {name}" + (f" {rest} {below_name}" if rest else "")
    return f"{seconds:.1f} s" if seconds < 10 and seconds != left else f"{left} s"


def moment(at_ms: int, now_ms: int) -> str:
    """A time of day in UTC; with the date unless it is near."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"  # Kafka takes any 64-bit number for a timestamp
    near = abs(now_ms - at_ms) < _NEAR_MS
    return at.strftime("%H:%M:%S UTC" if near else "%Y-%m-%d %H:%M UTC")


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 offset`, `1,234 offsets`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(count: int) -> str:
    """Bytes: `0 B`, `999 B`, `1.5 KiB`, `12 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
