"""Counts what publishing and reporting need of a segment's batches while they stream through."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.epochs import EpochRuns
from converter.index.model import CauseCount, OpenTransaction, Summary, UndecidedTransaction
from converter.index.position import last_offsets
from converter.limits import SUMMARY_TRANSACTIONS_MAX
from converter.types import BatchFlag, BatchTable, BoolArray, Cause, LeaderEpoch


class SummaryBuilder:
    """Feed batches in order, then ask for the summary. `told`: the leader epochs of the segment's metadata."""

    def __init__(self, told: Sequence[LeaderEpoch]) -> None:
        self._batches = 0
        self._rows = 0
        self._served_bytes = 0
        self._markers = 0
        self._epochs = EpochRuns(told)
        self._undecided: dict[int, tuple[int, int]] = {}
        self._overflow = False
        self._quarantined = _CauseCounter()
        self._kept = _CauseCounter()

    def add(self, batches: BatchTable) -> None:
        """Count the next batches."""
        if not len(batches):
            return
        flags = batches["flags"]
        self._batches += len(batches)
        self._rows += int(batches["row_count"].sum(dtype=np.int64))
        self._served_bytes += int(batches["served_size"].sum(dtype=np.int64))
        self._markers += int(((flags & BatchFlag.CONTROL) != 0).sum())
        self._quarantined.add(batches, (flags & BatchFlag.QUARANTINED) != 0)
        self._kept.add(batches, (flags & BatchFlag.KEPT) != 0)
        self._epochs.add(batches)
        self._add_undecided(batches[(flags & BatchFlag.UNDECIDED) != 0])

    @property
    def leader_epochs(self) -> tuple[LeaderEpoch, ...]:
        """The runs of all batches so far."""
        return self._epochs.runs()

    def build(
        self,
        open_transactions: tuple[OpenTransaction, ...] | None,
        conflict: bool,
        verbatim: bool,
        pending: str | None = None,
    ) -> Summary:
        """The summary of all batches so far, with what only the caller knows."""
        undecided = tuple(
            UndecidedTransaction(producer, first, last) for producer, (first, last) in self._undecided.items()
        )
        return Summary(
            batches=self._batches,
            rows=self._rows,
            served_bytes=self._served_bytes,
            markers=self._markers,
            leader_epochs=self.leader_epochs,
            undecided=() if self._overflow else undecided,
            undecided_overflow=self._overflow,
            open_transactions=open_transactions,
            transaction_conflict=conflict,
            quarantined=self._quarantined.counts(),
            kept=self._kept.counts(),
            verbatim=verbatim,
            pending=pending,
        )

    def _add_undecided(self, batches: BatchTable) -> None:
        if self._overflow:
            return
        last = last_offsets(batches)
        for producer in np.unique(batches["producer_id"]).tolist():
            mine = batches["producer_id"] == producer
            first, _ = self._undecided.get(producer, (int(batches["base_offset"][mine][0]), 0))
            self._undecided[producer] = (first, int(last[mine][-1]))
            if len(self._undecided) > SUMMARY_TRANSACTIONS_MAX:
                self._overflow = True
                self._undecided.clear()
                return


class _CauseCounter:
    def __init__(self) -> None:
        self._batches = np.zeros(256, dtype=np.int64)
        self._records = np.zeros(256, dtype=np.int64)
        self._bytes = np.zeros(256, dtype=np.int64)

    def add(self, batches: BatchTable, chosen: BoolArray) -> None:
        batches = batches[chosen]
        cause = batches["cause"]
        np.add.at(self._batches, cause, 1)
        np.add.at(self._records, cause, np.maximum(batches["count"], 0))
        np.add.at(self._bytes, cause, batches["served_size"])

    def counts(self) -> tuple[CauseCount, ...]:
        return tuple(
            CauseCount(Cause(i), int(self._batches[i]), int(self._records[i]), int(self._bytes[i]))
            for i in np.flatnonzero(self._batches).tolist()
        )
