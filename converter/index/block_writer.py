"""Collects batches into encoded blocks of the index while a segment streams through.

A block's batches and timestamp deltas are encoded as soon as it is full, so that a segment of twelve million one-record
batches is held as a few bytes a batch. Its pages are added at the end, when the data file is closed and they are known.
"""

from __future__ import annotations

import numpy as np
from crc32c import crc32c

from converter.index.columns import pack_batches, pack_integers, pack_pages
from converter.index.model import BLOCK_DTYPE, BlockTable
from converter.index.position import last_offsets
from converter.limits import BLOCK_BATCHES_MAX, BLOCK_DELTAS
from converter.parquet.page_table import page_slice
from converter.types import BatchTable, Int64Array, PageTable


class BlockWriter:
    """Takes batches with their positions, gives blocks."""

    def __init__(self) -> None:
        self._batches: list[BatchTable] = []
        self._deltas: list[Int64Array] = []
        self._encoders: list[Int64Array] = []
        self._encoded = False
        self._pending = 0
        self._pending_deltas = 0
        self._first_batch = 0
        self._deltas_start = 0
        self._entries: list[BlockTable] = []
        self._parts: list[bytes] = []

    def add(self, batches: BatchTable, deltas: Int64Array, encoders: Int64Array | None = None) -> None:
        """Append batches, the timestamp deltas that belong to them, and the encoder of each of their rows.

        encoders: as in Block; None: the bytes of all values are stored.
        """
        counts = np.where(batches["timestamps_start"] >= 0, batches["count"], 0).astype(np.int64)
        delta_ends = np.cumsum(counts)
        row_ends = np.cumsum(batches["row_count"], dtype=np.int64)
        start = 0
        used = 0
        while start < len(batches):
            room = min(start + BLOCK_BATCHES_MAX - self._pending, len(batches))
            # At least one batch, then up to the batch that reaches the limit of deltas.
            full = int(np.searchsorted(delta_ends, used + BLOCK_DELTAS - self._pending_deltas, side="left")) + 1
            end = max(start + 1, min(room, full))
            upto = int(delta_ends[end - 1])
            # Copies: the step's arrays must not live on in a slice.
            self._batches.append(batches[start:end].copy())
            self._deltas.append(deltas[used:upto].copy())
            first_row, end_row = int(row_ends[start - 1]) if start else 0, int(row_ends[end - 1])
            if encoders is None:
                self._encoders.append(np.broadcast_to(np.int64(0), end_row - first_row))
            else:
                self._encoders.append(encoders[first_row:end_row].copy())
                self._encoded = True
            self._pending += end - start
            self._pending_deltas += upto - used
            if self._pending == BLOCK_BATCHES_MAX or self._pending_deltas >= BLOCK_DELTAS:
                self._close()
            start, used = end, upto

    def end_block(self) -> None:
        """Close the block that is being filled, whatever it holds."""
        if self._pending:
            self._close()

    def finish(self, pages: PageTable | None) -> tuple[BlockTable, list[bytes]]:
        """The block array (places not yet known) and each block's bytes."""
        self.end_block()
        empty: BlockTable = np.empty(0, dtype=BLOCK_DTYPE)
        table = np.concatenate(self._entries) if self._entries else empty
        for number in range(len(table)):
            entry = table[number]
            row_start = int(entry["row_start"])
            part, raw, count = b"", 0, 0
            if pages is not None and entry["rows"]:
                chosen = page_slice(pages, row_start, row_start + int(entry["rows"]))
                count = len(chosen.column)
                part, raw = pack_pages(chosen)
            entry["pages"], entry["pages_length"], entry["pages_raw"] = count, len(part), raw
            self._parts[number] += part
            entry["crc32c"] = crc32c(self._parts[number])
        return table, self._parts

    def _close(self) -> None:
        batches = np.concatenate(self._batches)
        deltas = np.concatenate(self._deltas)
        packed, packed_raw = pack_batches(batches)
        packed_deltas, deltas_raw = pack_integers(deltas)
        packed_encoders, encoders_raw, listed = b"", 0, 0
        if self._encoded:
            encoders = np.concatenate(self._encoders)
            packed_encoders, encoders_raw = pack_integers(encoders)
            listed = len(encoders)
        entry = np.zeros(1, dtype=BLOCK_DTYPE)
        entry["first_batch"] = self._first_batch
        entry["batches"] = len(batches)
        entry["first_offset"] = batches["base_offset"][0]
        entry["last_offset"] = last_offsets(batches[-1:])[0]
        entry["position"] = batches["position"][0]
        entry["row_start"] = batches["row_start"][0]
        entry["rows"] = batches["row_count"].sum(dtype=np.int64)
        entry["deltas_start"] = self._deltas_start
        entry["deltas"] = len(deltas)
        entry["encoders"] = listed
        entry["batches_length"], entry["batches_raw"] = len(packed), packed_raw
        entry["deltas_length"], entry["deltas_raw"] = len(packed_deltas), deltas_raw
        entry["encoders_length"], entry["encoders_raw"] = len(packed_encoders), encoders_raw
        self._entries.append(entry)
        self._parts.append(packed + packed_deltas + packed_encoders)
        self._first_batch += len(batches)
        self._deltas_start += len(deltas)
        self._batches.clear()
        self._deltas.clear()
        self._encoders.clear()
        self._encoded = False
        self._pending = self._pending_deltas = 0
