"""Leader-epoch runs of a live file's rows: which files must be asked for them, and how.

They lie in the file's own footer (converter/epochs.py), for a manifest has no field and a name no room for them. But
hardly ever is one needed. A live file was alive under the lineage that was recorded with it; where the new lineage has
the same epoch at the file's last row, it still is, for two logs that agree on a batch agree on all before it. Only a
file whose last row lies where the two differ has to be looked into, and only if it begins below the divergence; the
others leave whole. The lowest that died takes the frontier back to there (rewind.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from converter.epochs import clipped, runs_of_footer
from converter.errors import SegmentError
from iceberg_catalog.errors import CatalogError
from iceberg_catalog.limits import FILE_EPOCHS_KEPT_MAX
from iceberg_catalog.plan.lineage import UNKNOWN, Lineage, valid_end
from iceberg_catalog.plan.types import LiveFile, Runs

Look = Callable[[LiveFile], Runs]
"""Gives the runs of a file that does not tell them itself."""


def no_look(file: LiveFile) -> Runs:
    """For plans of which no file needs it. Raises ValueError."""
    raise ValueError(f"the epochs of {file.path} are asked for, and nobody can look")


@dataclass(frozen=True, slots=True)
class Endings:
    """How far live files are alive, once a lineage follows the recorded one.

    recorded: with the head the files are in; without entries where nothing is recorded, so all files are looked into.
    """

    recorded: Lineage
    lineage: Lineage
    look: Look

    def of(self, file: LiveFile, frontier: int) -> int:
        """Offset up to which the file's rows stay, exclusive; `file.first` or below if none does.

        frontier: the (rewound) one; no row stays from it on.
        """
        limit = max(frontier, 0)
        if limit <= file.first or self._agree(file.last):
            return min(limit, file.last + 1)
        runs = self.look(file) if file.runs is None else file.runs
        return min(limit, valid_end(runs, file.first, file.last + 1, self.lineage))

    def agree_from(self) -> int | None:
        """The lowest offset from which on both histories are known and the same, up to the recorded one's end."""
        before, after = self.recorded, self.lineage
        found: int | None = None
        if after.end < before.end:
            return found
        starts = {start for _, start in (*before.entries, *after.entries) if start < before.end}
        for start in sorted(starts, reverse=True):
            epoch = before.epoch_at(start)
            if epoch in (None, UNKNOWN) or epoch != after.epoch_at(start):
                break
            found = start
        return found

    def _agree(self, offset: int) -> bool:
        before, after = self.recorded, self.lineage
        if not before.entries:
            return not after.entries
        begin = before.entries[0][1]
        if offset < begin:
            # The record does not reach down to what was alive there. Where the two are one at its beginning, they are
            # below; else the new one may tell of another log there.
            return after.epoch_at(begin) == before.epoch_at(begin) or after.epoch_at(offset) in (None, UNKNOWN)
        epoch = before.epoch_at(offset)
        if epoch is None or epoch != after.epoch_at(offset):
            return False
        # In a hole of both they agree, unless what follows it shows that the new one cannot have what the old one may.
        return epoch != UNKNOWN or after.most_at(offset) >= before.most_at(offset)


@dataclass(slots=True)
class FileEpochs:
    """Reads footers of one table's files, each once. `io`: the table's, as it was last loaded."""

    io: FileIO | None = None
    _known: OrderedDict[str, Runs] = field(default_factory=OrderedDict)

    def of(self, file: LiveFile) -> Runs:
        """The leader-epoch runs of a file's rows.

        Raises:
            CatalogError: `corrupt_state` when its footer does not tell them. What the table's storage raises passes.
        """
        if self.io is None:
            raise ValueError("no table was read")
        if (known := self._known.get(file.path)) is None:
            try:
                with self.io.new_input(file.path).open() as stream:
                    runs = runs_of_footer(pq.read_metadata(stream))
            except (SegmentError, pa.ArrowInvalid) as error:
                raise CatalogError("corrupt_state", f"{file.path} does not tell its leader epochs: {error}") from error
            kept = clipped(runs, file.first, file.last)
            known = self._known[file.path] = tuple((run.epoch, run.start_offset) for run in kept)
            if len(self._known) > FILE_EPOCHS_KEPT_MAX:
                self._known.popitem(last=False)
        return known
