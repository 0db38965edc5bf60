"""How values that a data file has as columns alone become bytes again; what the segment index stores of it.

The index names, row by row, which encoding gives the value back: docs/format.md. Whatever happens to the table's
columns later, the data file keeps those it was written with, and field ids say which of them an encoder takes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import zstandard

from converter import stored_json
from converter.errors import SegmentError
from converter.limits import PROVEN_BYTES_MAX
from converter.parquet.columns import value_fields
from converter.values.model import Bound, Encoder, Encoding
from converter.values.proof.encoders import encoder
from converter.values.rows import FIELD_ID


@dataclass(frozen=True, slots=True)
class ValueEncoding:
    """How some rows' values are written.

    Attributes:
        header: the bytes before each: the wire format's, or none.
        encoding: of the rest.
        columns: what the encoder takes, its type; each field, nested ones too, with the field id of its column.
    """

    header: bytes
    encoding: Encoding
    columns: pa.StructType


@dataclass(frozen=True, slots=True)
class ProvenValues:
    """What a segment index says.

    Attributes:
        schema: the value columns of the data file, in its order; page tables number their leaves.
        encodings: number 1 is the first.
        encoders: one for each.
    """

    schema: pa.Schema
    encodings: tuple[ValueEncoding, ...]
    encoders: tuple[Encoder, ...]

    def numbered(self, number: int) -> tuple[ValueEncoding, Encoder]:
        """The encoding with this number, from 1, and its encoder.

        Raises:
            SegmentError: `corrupt_object`: there is none.
        """
        if not 1 <= number <= len(self.encodings):
            raise SegmentError("corrupt_object", f"there is no encoding {number}")
        return self.encodings[number - 1], self.encoders[number - 1]


def pack_proven(rows: pa.Schema, encodings: Sequence[ValueEncoding]) -> bytes:
    """What unpack_proven() reads. rows: the schema of the data file."""
    text = {
        "schema": _schema_text(value_fields(rows)),
        "encodings": [_stored(item) for item in encodings],
    }
    return zstandard.ZstdCompressor(level=3).compress(json.dumps(text, sort_keys=True).encode())


def stored_size(encoding: ValueEncoding) -> int | None:
    """Bytes that pack_proven() has of it; None: unpack_proven() would not give it back."""
    text = json.dumps(_stored(encoding), sort_keys=True).encode()
    try:
        back = _encoding(stored_json.parse(text))
    except ValueError:  # a text that cannot be written down: schemas come from registries
        return None
    return len(text) if back == encoding else None


def _stored(encoding: ValueEncoding) -> dict[str, object]:
    return {
        "header": encoding.header.hex(),
        "kind": encoding.encoding.kind,
        "version": encoding.encoding.version,
        "parameters": dict(encoding.encoding.parameters),
        "columns": _schema_text(pa.schema(list(encoding.columns))),
    }


@lru_cache(maxsize=128)
def unpack_proven(packed: bytes) -> ProvenValues:
    """What pack_proven() was given, with the encoders.

    Raises:
        SegmentError: `corrupt_object`, `unsupported_version`.
    """
    try:
        if not 0 <= zstandard.frame_content_size(packed) <= PROVEN_BYTES_MAX:
            raise ValueError("its size is not to be believed")
        document = stored_json.parse(zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False))
        encodings = tuple(_encoding(item) for item in stored_json.listed(stored_json.field(document, "encodings")))
        schema = _schema(stored_json.field(document, "schema"))
    except (ValueError, zstandard.ZstdError) as error:
        raise SegmentError("corrupt_object", f"the index does not say how values are encoded: {error!r}") from error
    return ProvenValues(schema, encodings, tuple(encoder(item.encoding) for item in encodings))


def moved(packed: bytes, rows: pa.Schema) -> bytes:
    """The same for a data file with the columns `rows` that has the rows too.

    Raises:
        SegmentError: as unpack_proven().
    """
    return pack_proven(rows, unpack_proven(packed).encodings)


def columns_taken(kind: pa.StructType, bound: Sequence[Bound], table: pa.StructType) -> pa.StructType | None:
    """`kind`, a decoder's type, with the field ids of the columns its fields are in; None: some field is in none.

    bound: how the columns `table` are filled from the decoder's, as for project().
    """
    fields = []
    for place, field in enumerate(kind):
        found = next((number for number, item in enumerate(bound) if item.source == place), None)
        made = None if found is None else _taken(field, bound[found], table.field(found))
        if made is None:
            return None
        fields.append(made)
    return pa.struct(fields)


def _taken(field: pa.Field, bound: Bound, column: pa.Field) -> pa.Field | None:
    kind: pa.DataType | None = field.type
    if pa.types.is_struct(field.type):
        kind = columns_taken(field.type, bound.children, column.type)
    elif pa.types.is_list(field.type):
        element = _taken(field.type.value_field, bound.children[0], column.type.value_field)
        kind = None if element is None else pa.list_(element)
    elif pa.types.is_map(field.type):
        item = _taken(field.type.item_field, bound.children[0], column.type.item_field)
        kind = None if item is None else pa.map_(field.type.key_field, item)
    metadata = {FIELD_ID: (column.metadata or {})[FIELD_ID]}
    return None if kind is None else pa.field(field.name, kind, field.nullable, metadata)


def _encoding(item: object) -> ValueEncoding:
    parameters = stored_json.fields(stored_json.field(item, "parameters"))
    encoding = Encoding(
        stored_json.text(stored_json.field(item, "kind")),
        stored_json.whole(stored_json.field(item, "version")),
        {stored_json.text(name): stored_json.text(value) for name, value in parameters.items()},
    )
    header = bytes.fromhex(stored_json.text(stored_json.field(item, "header")))
    return ValueEncoding(header, encoding, pa.struct(list(_schema(stored_json.field(item, "columns")))))


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def _schema(value: object) -> pa.Schema:
    """Raises ValueError for what is no schema."""
    data = base64.b64decode(stored_json.text(value), validate=True)
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError) as error:  # a damaged one is an OSError
        raise ValueError(f"no schema of columns: {error}") from error
