"""Which values of a copy need no bytes, because their columns give them back.

Proven row by row, by writing each value again from the very arrays that go to Parquet. A value that does not come back
exactly keeps its bytes: other ways to write the same content, fields without a column, what did not decode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from converter.errors import SegmentError
from converter.limits import ENCODINGS_BYTES_MAX
from converter.parquet.columns import RAW_VALUE, VALUE_SIZE, zone
from converter.types import BoolArray, Int64Array
from converter.values.by_writer import Part, Parted, Route, Writer
from converter.values.model import Encoder
from converter.values.proof.encoders import encoder
from converter.values.proof.proven import ValueEncoding, columns_taken, pack_proven, stored_size, unpack_proven
from converter.values.proof.restore import equal_rows, written

#: Values that an encoding is chosen by.
SAMPLE_VALUES: Final = 1000
#: Encodings of one copy, and limits.ENCODINGS_BYTES_MAX; values of further writers keep their bytes.
ENCODINGS_MAX: Final = 255
#: After so many values of a writer of which fewer than one in eight was proven its others are not tried.
TRIED_VALUES: Final = 4000


@dataclass(slots=True, kw_only=True)
class _Numbered:
    """An encoding, its encoder, its number in the index, and how many values it was tried on, and fit."""

    number: int
    encoding: ValueEncoding
    encoder: Encoder
    tried: int = 0
    proven: int = 0

    @property
    def is_worth_it(self) -> bool:
        """Whether to try it on more."""
        return self.tried < TRIED_VALUES or 8 * self.proven >= self.tried


@dataclass(slots=True)
class ValueProver:
    """Proves the values of one copy. Used by one thread.

    Attributes:
        rows: how many values were proven.
    """

    rows: int = 0
    _encodings: list[ValueEncoding] = field(default_factory=list)
    _stored_bytes: int = 0
    _known: dict[Writer, _Numbered | None] = field(default_factory=dict)

    def prove(
        self, rows: pa.RecordBatch, values: Parted, routes: Mapping[Writer, Route | str], table: pa.StructType
    ) -> tuple[pa.RecordBatch, Int64Array | None]:
        """Takes the bytes from the values that their columns give back.

        Args:
            rows: with the table's columns.
            values: of those rows, by writer.
            routes: how they became columns, by writer.
            table: the table's value columns, which the routes lead to.

        Returns:
            The rows, null in `_kafka_value` where the value was proven, and the encoders as index_model.Block has them;
            None where all values keep their bytes.
        """
        stored = rows.column(RAW_VALUE)
        numbers = np.zeros(rows.num_rows, dtype=np.int64)
        sizes = rows.column(VALUE_SIZE).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        names = [name for name in rows.schema.names if zone(name) == "value"]
        columns = rows.select(names).to_struct_array()
        for part in values.parts:
            route = routes[part.writer]
            known = None if isinstance(route, str) else self._numbered(part, stored, route, table)
            if known is None or not known.is_worth_it:
                continue
            mine = None if len(part.rows) == rows.num_rows else pa.array(part.rows)
            back = written(
                known.encoding, known.encoder, columns if mine is None else columns.take(mine), sizes[part.rows]
            )
            equal = equal_rows(stored if mine is None else stored.take(mine), known.encoding.header, back)
            numbers[part.rows[equal]] = known.number
            known.tried += len(equal)
            known.proven += int(np.count_nonzero(equal))
        proven = numbers > 0
        count = int(np.count_nonzero(proven))
        if not count:
            return rows, None
        self.rows += count
        return _without_bytes(rows, stored, proven), numbers

    def packed(self, schema: pa.Schema) -> bytes:
        """What the segment index is to say of it; empty where no value was proven. schema: the data file's.

        Raises:
            ValueError: nobody could read it again.
        """
        if not self.rows:
            return b""
        made = pack_proven(schema, self._encodings)
        try:
            unpack_proven(made)
        except SegmentError as error:  # bytes that nobody could read again must not become a copy
            raise ValueError(f"the index would not say how values are encoded: {error}") from error
        return made

    def _numbered(self, part: Part, stored: pa.BinaryArray, route: Route, table: pa.StructType) -> _Numbered | None:
        """The encoding of a writer, chosen by the first of its values."""
        if part.writer not in self._known:
            self._known[part.writer] = self._chosen(part, stored, route, table)
        return self._known[part.writer]

    def _chosen(self, part: Part, stored: pa.BinaryArray, route: Route, table: pa.StructType) -> _Numbered | None:
        if len(self._encodings) >= ENCODINGS_MAX:
            return None
        made = route.decoder.encoding(part.values[:SAMPLE_VALUES])
        taken = columns_taken(route.decoder.type, route.bound, table)
        if made is None or taken is None:
            return None
        first = stored[int(part.rows[0])].as_py()
        header = first[: len(first) - len(part.values[0].as_py())]
        encoding = ValueEncoding(header, made, taken)
        size = stored_size(encoding)
        if size is None or self._stored_bytes + size > ENCODINGS_BYTES_MAX:
            return None
        self._stored_bytes += size
        self._encodings.append(encoding)
        return _Numbered(number=len(self._encodings), encoding=encoding, encoder=encoder(made))


def _without_bytes(rows: pa.RecordBatch, stored: pa.BinaryArray, proven: BoolArray) -> pa.RecordBatch:
    place = rows.schema.get_field_index(RAW_VALUE)
    nothing = pa.nulls(len(stored), stored.type)
    left = nothing if proven.all() else pc.if_else(pa.array(proven), pa.scalar(None, stored.type), stored)
    arrays = list(rows.columns)
    arrays[place] = left
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)
