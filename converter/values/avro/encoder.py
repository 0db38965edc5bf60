"""Columns of one Avro schema back to values, as the usual writers encode them.

Numbers have the fewest bytes, arrays and maps one block without its size, decimals in bytes the fewest bytes that hold
them and their sign, a map's entries their order in the column. Values of other writers, and what the decoder does not
keep (the signalling bit of a float that is no number), do not come back the same. A schema with a record within itself
has no encoder: its column is JSON, which has lost what the values looked like.

The schema's layout is the decoder's; it becomes a program (encode_compile.py) that one compiled kernel runs over
all rows (encode_kernel.py), once the columns lie flat (encode_flat.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from converter.types import Int64Array, VarBytes
from converter.values.avro.columns import Form
from converter.values.avro.compile import Layout, lay_out
from converter.values.avro.encode_compile import is_written, lay_out_writing, numbered
from converter.values.avro.encode_flat import flat
from converter.values.avro.encode_kernel import STACK_COLUMNS, run
from converter.values.avro.schema import read_schema
from converter.values.model import Encoder, Encoding, SchemaTextError

KIND: Final = "avro"
VERSION: Final = 1
_SCHEMA: Final = "schema"
#: Texts of the named types that the schema uses without defining them, by name, as one JSON object.
_REFERENCES: Final = "references"


def avro_encoding(layout: Layout, schema: str, references: Mapping[str, str]) -> Encoding | None:
    """The encoding of a schema with this layout; None where a record lies within itself."""
    if not is_written(layout.columns):
        return None
    # In the order they came: names are looked for in this order.
    return Encoding(KIND, VERSION, {_SCHEMA: schema, _REFERENCES: json.dumps(dict(references))})


def avro_encoder(parameters: Mapping[str, str]) -> Encoder:
    """The encoder of what avro_encoding() gave.

    Raises:
        KeyError, ValueError: a parameter is missing, or no JSON.
        SchemaTextError: as for the decoder, or a record lies within itself.
    """
    return AvroEncoder(parameters[_SCHEMA], json.loads(parameters[_REFERENCES]))


class AvroEncoder:
    """See avro_encoder(). Immutable; encode() may run in several threads at once and holds no lock while it writes."""

    def __init__(self, schema: str, references: Mapping[str, str]) -> None:
        root, names = read_schema(schema, references)
        layout = lay_out(root, names)
        if not is_written(layout.columns):
            raise SchemaTextError("schema: a record within itself, whose columns are not written")
        self._columns = layout.columns
        self._type: pa.StructType = layout.columns.settle()
        self._program, self._depth = lay_out_writing(root, names, layout)
        columns = numbered(layout.columns)
        self._inputs = len(columns)
        self._symbols = {c: pa.array(c.symbols, pa.string()) for c in columns if c.form is Form.SYMBOL}

    @property
    def type(self) -> pa.StructType:
        """The columns: those of the schema's decoder."""
        return self._type

    def encode(self, columns: pa.StructArray, sizes: Int64Array) -> VarBytes:
        """See :class:`converter.values.model.Encoder`.

        All sizes together are allocated: the caller knows that they are no more than it can take. Beside them, memory
        is a small multiple of the columns' size.

        Raises:
            ValueError: there are more or fewer sizes than rows.
        """
        rows = len(columns)
        if len(sizes) != rows:
            raise ValueError(f"{len(sizes)} sizes for {rows} rows")
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        valid = np.zeros(rows, np.bool_)
        stack = np.zeros((self._depth + 1, STACK_COLUMNS), np.int64)
        given = flat(self._columns, columns, self._inputs, self._symbols)
        run(self._program, given, stack, out, offsets, np.asarray(sizes) >= 0, valid)
        return VarBytes(offsets, out, valid)
