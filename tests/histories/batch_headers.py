"""Bytes of record batches without records, for what looks at their headers only."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tests.histories.kafka_model import MARKERS, PLAIN, Batch

_HEADER = struct.Struct(">qiibIhiqqqhii")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def header_bytes(batches: Iterable[Batch]) -> bytes:
    """One header of 61 bytes for each."""
    return b"".join(
        _HEADER.pack(
            batch.base,
            _HEADER.size - 12,
            batch.epoch,
            2,
            0,
            0 if batch.kind is PLAIN else _TRANSACTIONAL | (_CONTROL if batch.kind in MARKERS else 0),
            batch.last - batch.base,
            batch.time_ms,
            batch.time_ms,
            batch.pid,
            0,
            -1,
            0,
        )
        for batch in batches
    )
