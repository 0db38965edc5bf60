"""A typed key is one column, `_key`, whatever its schema: a struct for a record, else the value itself."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from converter.values.allowance import Allowance
from converter.values.model import CELLS_UNLIMITED, Decoded, Decoder, Encoding
from converter.values.rows import by_name
from iceberg_catalog.evolution import key_writer


@dataclass(frozen=True, slots=True)
class KeyDecoder:
    """A decoder whose columns are bound as iceberg_catalog.evolution.bind_key says."""

    inner: Decoder

    @property
    def type(self) -> pa.StructType:
        """Its only field is `_key`."""
        return key_writer(self.inner.type)

    def decode(
        self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
    ) -> Decoded:
        """See converter.values.model.Decoder."""
        made, kind = self.inner.decode(values, cells_max, allowance), self.type
        bare = kind.field(0).type != self.inner.type
        key = next(iter(by_name(made.columns).values())) if bare else made.columns
        columns = pa.StructArray.from_arrays([key], fields=list(kind), mask=made.columns.is_null())
        return Decoded(columns, made.errors, made.cells)

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:  # noqa: ARG002
        """None: keys keep their bytes."""
        return None
