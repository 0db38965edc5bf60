"""Batches of the model as the plan reads them, made once per segment, when it asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from iceberg_catalog.plan.types import Batches
from tests.histories.kafka_model import Batch


def load_later(
    batches: Sequence[Batch], held: Collection[Batch], aborts: Sequence[tuple[int, int, int]]
) -> Callable[[], Batches]:
    """`held`: those whose rows the segment's data files have."""
    made: list[Batches] = []

    def load() -> Batches:
        if not made:
            table = np.array(
                [(b.base, b.last, b.epoch, b.pid, b.kind, b in held, b.time_ms) for b in batches], dtype=np.int64
            )
            table = table.reshape(-1, 7).T
            made.append(
                Batches(
                    base=table[0],
                    last=table[1],
                    epoch=table[2].astype(np.int32),
                    producer_id=table[3],
                    kind=table[4].astype(np.uint8),
                    rows=table[5].astype(np.bool_),
                    max_timestamp_ms=table[6],
                    aborts=np.array(aborts, dtype=np.int64).reshape(-1, 3),
                )
            )
        return made[0]

    return load
