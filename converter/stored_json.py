"""JSON of stored objects, read with suspicion: what comes back is what the caller expects, or a ValueError is raised.

Python's own reader takes NaN, numbers of thousands of digits, texts that no other program can write down (lone
surrogates), and fails with other errors on deep nesting or bytes that are no UTF-8. Each caller turns ValueError into
the one error that it documents.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

_INT64_MAX: Final = 2**63 - 1


def parse(data: bytes | bytearray | memoryview) -> Any:
    """The document. Whole numbers fit into 64 bits, others are finite, texts can be encoded.

    Raises:
        ValueError: it is not such a document.
    """
    try:
        return json.loads(
            bytes(data).decode("utf-8"), parse_int=_whole_of, parse_float=_real_of, parse_constant=_no_constant
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def whole(value: object, low: int = -_INT64_MAX - 1, high: int = _INT64_MAX) -> int:
    """A whole number from `low` to `high`, both inclusive. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{_shown(value)} is no whole number from {low} to {high}")
    return value


def text(value: object) -> str:
    """A text that can be written down. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is no text")  # noqa: TRY004
    value.encode()  # a lone surrogate raises a kind of ValueError
    return value


def truth(value: object) -> bool:
    """True or false. Raises ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")  # noqa: TRY004
    return value


def listed(value: object, length: int | None = None) -> list[Any]:
    """A list, of this length if one is given. Raises ValueError."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError(f"{_shown(value)} is no list" + ("" if length is None else f" of {length}"))
    return value


def fields(value: object) -> dict[str, Any]:
    """An object. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is no object")  # noqa: TRY004
    return value


def field(value: object, name: str) -> Any:
    """A field of an object. Raises ValueError."""
    found = fields(value)
    if name not in found:
        raise ValueError(f"{name} is missing")
    return found[name]


def numbered(value: object) -> dict[int, Any]:
    """An object whose names are Kafka partitions. Raises ValueError."""
    return {whole(_digits(name), 0, 2**31 - 1): entry for name, entry in fields(value).items()}


def _digits(name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise ValueError(f"{_shown(name)} is no partition")
    return int(name)


def _whole_of(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return whole(int(digits))


def _real_of(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number that is not finite")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _shown(value: object) -> str:
    """A few characters of it: what is stored may be long, and is not trusted."""
    shown = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
