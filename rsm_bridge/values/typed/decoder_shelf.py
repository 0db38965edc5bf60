"""What decoders of all topics of a bridge may take together: one limit, and the topic that takes most makes room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

import pyarrow as pa

from rsm_bridge.limits import DECODERS_BYTES_MAX, KIB

#: What a column of a decoder takes, with its Arrow type and the table's binding: 0.3 to 4 KiB were seen.
_COLUMN_BYTES = 2 * KIB
_LEAST_BYTES = 8 * KIB


class DecoderShelf:
    """Keeps what was made of schemas. May be used by several threads.

    A producer decides how many schemas, and messages of one, its values name: some kilobytes may ask for gigabytes of
    decoders. Beyond the limit the least recently used leave of the owner that has most, so others keep theirs.
    """

    def __init__(self, bytes_max: int = DECODERS_BYTES_MAX) -> None:
        """Empty.

        Args:
            bytes_max: that everything kept takes together, as estimated.
        """
        self._bytes_max = bytes_max
        self._kept: dict[Hashable, OrderedDict[Hashable, tuple[Any, int]]] = {}
        self._sizes: dict[Hashable, int] = {}
        self._size = 0
        self._lock = Lock()

    def get(self, owner: Hashable, key: Hashable) -> Any:
        """What the owner keeps under the key; None when there is nothing, or no more."""
        with self._lock:
            mine = self._kept.get(owner)
            if mine is None or key not in mine:
                return None
            mine.move_to_end(key)
            return mine[key][0]

    def put(self, owner: Hashable, key: Hashable, value: Any, size: int) -> None:
        """Keeps a value, if there is room. size: bytes it takes, as estimated."""
        with self._lock:
            mine = self._kept.setdefault(owner, OrderedDict())
            self._count(owner, size - mine.pop(key, (None, 0))[1])
            mine[key] = value, size
            while self._size > self._bytes_max:
                most = max(self._sizes, key=self._sizes.__getitem__)
                _, (_, freed) = self._kept[most].popitem(last=False)
                self._count(most, -freed)

    def _count(self, owner: Hashable, size: int) -> None:
        self._sizes[owner] = self._sizes.get(owner, 0) + size
        self._size += size


def decoder_bytes(kind: pa.StructType, text: str) -> int:
    """About what a decoder takes. kind: its columns; text: what it keeps of its schema."""
    return _LEAST_BYTES + _COLUMN_BYTES * column_count(kind) + 2 * len(text)


def column_count(kind: pa.DataType) -> int:
    """Columns within a type, those that hold others too; 0 for one that has none within."""
    inner = [kind.field(number) for number in range(kind.num_fields)]
    return len(inner) + sum(column_count(field.type) for field in inner)
