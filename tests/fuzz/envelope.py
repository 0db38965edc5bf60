"""An input of several parts as one file: a line of JSON, then the parts one behind the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def packed(facts: Mapping[str, Any], parts: Sequence[bytes]) -> bytes:
    """One file."""
    return json.dumps({"facts": facts, "sizes": [len(part) for part in parts]}).encode() + b"\n" + b"".join(parts)


def unpacked(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Back from :func:`packed`."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    parts, at = [], 0
    for size in head["sizes"]:
        parts.append(rest[at : at + size])
        at += size
    return head["facts"], parts
