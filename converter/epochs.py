"""Which leader epoch a segment's offsets count as, where its batches and the broker's metadata may be at odds.

Kafka cuts its leader-epoch checkpoint at the log start, which deleteRecords and retention raise into the midst of a
segment, and a replica that lost its checkpoint begins a new one. So the epochs that come with a copy may begin above
its first batch: below them the epoch is what the batch says. From there on Kafka finds a segment by the metadata's
epochs alone (KIP-405, RemoteLogMetadataManager); where a batch says otherwise, the metadata's word counts for us, too.
Neither fails a copy: the bytes are what the leader has.

Every data file carries the runs of its rows in its footer: a name has no room for the epochs of a segment that lived
through many restarts of brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq

from converter.errors import SegmentError
from converter.limits import EPOCH_RUNS_MAX
from converter.types import BatchFlag, BatchTable, LeaderEpoch

#: Key of a data file's footer: `epoch.offset` pairs, ascending, a blank between two.
FOOTER_KEY = b"tierberg.leader-epochs"


class EpochRuns:
    """Feed batches in order, then ask for the runs.

    Args:
        told: the leader epochs of the segment's metadata, ascending.

    Attributes:
        contradicting: batches so far whose epoch is not the metadata's at their offset.
    """

    def __init__(self, told: Sequence[LeaderEpoch]) -> None:
        self._told = tuple(told)
        self._told_epochs = np.array([entry.epoch for entry in told], dtype=np.int64)
        self._told_starts = np.array([entry.start_offset for entry in told], dtype=np.int64)
        self._own: list[LeaderEpoch] = []
        self.contradicting = 0

    def add(self, batches: BatchTable) -> None:
        """Take the next batches. Those of magic 0 and 1 carry no epoch and say nothing."""
        batches = batches[(batches["flags"] & BatchFlag.LEGACY) == 0]
        if not len(batches):
            return
        epochs, offsets = batches["leader_epoch"].astype(np.int64), batches["base_offset"]
        if len(self._told):
            covering = np.searchsorted(self._told_starts, offsets, side="right") - 1
            wrong = (covering >= 0) & (self._told_epochs[np.maximum(covering, 0)] != epochs)
            self.contradicting += int(np.count_nonzero(wrong))
        starts = np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1))
        for i in starts.tolist():
            # Epochs never fall along a log; what does is damage, and belongs to the run it stands in.
            if len(self._own) < EPOCH_RUNS_MAX and (self._own[-1].epoch if self._own else -1) < epochs[i]:
                self._own.append(LeaderEpoch(int(epochs[i]), int(offsets[i])))

    def runs(self) -> tuple[LeaderEpoch, ...]:
        """(epoch, base offset of its first batch), both ascending, at most EPOCH_RUNS_MAX and the metadata's.

        Where the metadata is contradicted, its entries stand from its first one on, and below it those of the batches.
        Where no batch tells an epoch, for Kafka's cleaner left none or all are of magic 0 and 1, they stand alone.
        """
        if not self._own:
            return self._told
        if not self._told or not self.contradicting:
            return tuple(self._own)
        first = self._told[0]
        below = (run for run in self._own if run.start_offset < first.start_offset and run.epoch < first.epoch)
        return (*below, *self._told)


def footer_entry(runs: Sequence[LeaderEpoch]) -> dict[bytes, bytes]:
    """What a data file's footer says of the runs of its rows."""
    return {FOOTER_KEY: " ".join(f"{run.epoch}.{run.start_offset}" for run in runs).encode()}


def runs_of_footer(footer: pq.FileMetaData) -> tuple[LeaderEpoch, ...]:
    """The runs a data file's footer tells.

    Raises:
        SegmentError: `corrupt_object` when it tells none, or not in this form.
    """
    text = (footer.metadata or {}).get(FOOTER_KEY)
    if text is None:
        raise SegmentError("corrupt_object", f"the data file's footer has no {FOOTER_KEY.decode()}")
    try:
        pairs = [entry.split(".") for entry in text.decode("ascii").split()]
        return tuple(LeaderEpoch(int(epoch), int(start)) for epoch, start in pairs)
    except ValueError as error:
        raise SegmentError("corrupt_object", f"{FOOTER_KEY.decode()} of the data file: {error}") from error


def clipped(runs: Sequence[LeaderEpoch], first: int, last: int) -> tuple[LeaderEpoch, ...]:
    """The runs of rows with offsets in [first, last], both inclusive; the first one begins at `first` or above."""
    found: list[LeaderEpoch] = []
    for number, run in enumerate(runs):
        end = runs[number + 1].start_offset - 1 if number + 1 < len(runs) else last
        start = max(run.start_offset, first)
        if start <= min(end, last):
            found.append(LeaderEpoch(run.epoch, start))
    return tuple(found)


def joined(left: Sequence[LeaderEpoch], right: Sequence[LeaderEpoch]) -> tuple[LeaderEpoch, ...]:
    """The runs of rows and of those that follow them."""
    same = bool(left and right) and left[-1].epoch == right[0].epoch
    return (*left, *(right[1:] if same else right))
