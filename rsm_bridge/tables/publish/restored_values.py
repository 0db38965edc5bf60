"""Value bytes for rows of data files that have them as columns alone, where bytes are to be decoded anew.

Needed when a table was removed and made anew: the columns of files that were written before have the field ids of the
table that is gone. What gives bytes back is in the segment's index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from converter.batches.rows import binary_array, var_bytes
from converter.index.codec import decode_index
from converter.parquet.columns import RAW_VALUE, VALUE_SIZE, value_fields
from converter.segment.repoint import first_row_of
from converter.types import Int64Array
from converter.values.proof.proven import ProvenValues, unpack_proven
from converter.values.proof.restore import restored


@dataclass(frozen=True, slots=True)
class RestoredValues:
    """What gives the rows of one segment their bytes back.

    Attributes:
        proven: of the segment.
        encoders: of its rows, as in converter.index.model.Block.
        first_row: number of the first of them in the data file and its tail.
    """

    proven: ProvenValues
    encoders: Int64Array
    first_row: int

    def of(self, rows: pa.RecordBatch, numbers: Int64Array) -> pa.RecordBatch:
        """Rows with all their bytes in `_kafka_value`.

        Args:
            rows: of the data file or its tail, with its columns and their field ids.
            numbers: of the rows, those of the tail going on from those of the data file.

        Raises:
            SegmentError: `corrupt_object`.
        """
        columns = rows.select(value_fields(rows.schema).names).to_struct_array()
        sizes = rows.column(VALUE_SIZE).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        stored = var_bytes(rows.column(RAW_VALUE))
        values = restored(stored, self.encoders[numbers - self.first_row], sizes, columns, self.proven)
        place = rows.schema.get_field_index(RAW_VALUE)
        return rows.set_column(place, rows.schema.field(place), binary_array(pa.binary(), values))


def restored_values(index: bytes) -> RestoredValues | None:
    """What a segment index says of values that are columns alone; None where none is.

    Raises:
        SegmentError: `corrupt_object`, `unsupported_version`.
    """
    directory, blocks = decode_index(index)
    first_row = first_row_of(blocks)
    if not directory.proven or first_row is None:
        return None
    parts = [
        block.encoders
        if len(block.encoders)
        else np.zeros(int(block.batches["row_count"].sum(dtype=np.int64)), np.int64)
        for block in blocks
    ]
    return RestoredValues(unpack_proven(directory.proven), np.concatenate(parts), first_row)
