"""R8: markers that only look alive.

An unclean election can cut a marker off without any checkpoint to show it: the new leader's log start has risen over
the place before its first copy, and a checkpoint begins at the log start. What shows it is the producer snapshot of
such a copy: it lists a transaction as open that the marker ended. That marker is dead. Left in the view it would end
the transaction, or contradict the broker's files for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.types import BoolArray
from iceberg_catalog.decide import SnapshotEnd, View
from iceberg_catalog.plan_types import BatchKind


def dead_markers(view: View, ends: Sequence[SnapshotEnd]) -> BoolArray:
    """Which batches of the view are markers that a later producer snapshot proves dead.

    Only below the offset from which the snapshot's leader tells its history, and only of an older epoch than that
    history begins with: two logs that agree on an epoch agree on everything below it.

    Args:
        view: the log as the lineage has it.
        ends: producer snapshots at ends of wholly valid segments in the view.
    """
    dead = np.zeros(len(view.base), dtype=np.bool_)
    marker = (view.kind == BatchKind.COMMIT) | (view.kind == BatchKind.ABORT)
    for snapshot in ends:
        for producer, first in snapshot.open:
            low, high = np.searchsorted(view.base, (first, min(snapshot.told_from, snapshot.end + 1)))
            part = slice(int(low), int(high))
            dead[part] |= marker[part] & (view.producer_id[part] == producer) & (view.epoch[part] < snapshot.told_epoch)
    return dead
