"""Loads, or compiles, the kernels of the value decoders and encoders: a minute where nothing is cached."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Final

import numpy as np
import pyarrow as pa
from google.protobuf import duration_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from converter.types import VarBytes
from converter.values.allowance import Allowance
from converter.values.avro.decoder import avro_decoder
from converter.values.by_writer import Route, Writer, columns_of, parted_by_id
from converter.values.json.decoder import json_decoder
from converter.values.json.encoder import json_encoder
from converter.values.model import Decoder
from converter.values.proof.encoders import encoder
from converter.values.proof.proven import ProvenValues, ValueEncoding
from converter.values.proof.restore import equal_rows, restored, written
from converter.values.protobuf.decoder import protobuf_decoder

_AVRO = {
    "type": "record",
    "name": "Warm",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "map", "type": {"type": "map", "values": "long"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
_HEADER = b"\0\0\0\0\x01"


def warm_values() -> None:
    """Decodes a value of each format, one behind a registry's header, and encodes it where there is an encoder.

    Protobuf only where the extra `typed` is installed: without it no value is decoded so.
    """
    avro = avro_decoder(json.dumps(_AVRO))
    value = b"\x02\x02\x02a\x04\x02k\x02\x02l\x04\x00\x02\x01"
    framed = parted_by_id(pa.array([_HEADER + value], pa.binary()), lambda _: ())
    columns_of(framed, {Writer(1): Route(avro, ())}, pa.struct([]), allowance=Allowance())
    _encode_again(avro, value)
    warm_json()
    if find_spec("ptars") is None:
        return
    protobuf = protobuf_decoder(_protobuf_files(), (0,))
    parted_by_id(pa.array([_HEADER + b"\x00\x08\x01"], pa.binary()), lambda ids: ids)
    value = b"\x08\x01\x12\x01a\x22\x04\x08\x01\x10\x01"
    _encode_again(protobuf, value)
    # Its number is padded: what the library writes again are other bytes, which say the same.
    protobuf.decode(pa.array([b"\x08\x81\x00" + value[2:]], pa.binary()))


def _encode_again(decoder: Decoder, value: bytes) -> None:
    """What a copy does that proves values, and a fetch of such a value."""
    encoding = decoder.encoding(pa.array([value], pa.binary()))
    if encoding is None:
        return
    made, columns = encoder(encoding), decoder.decode(pa.array([value], pa.binary())).columns
    how, sizes = ValueEncoding(_HEADER, encoding, decoder.type), np.array([len(_HEADER) + len(value)], np.int64)
    equal_rows(pa.array([_HEADER + value], pa.binary()), _HEADER, written(how, made, columns, sizes))
    nothing = VarBytes(np.zeros(2, np.int64), np.empty(0, np.uint8), np.zeros(1, np.bool_))
    restored(nothing, np.ones(1, np.int64), sizes, columns, ProvenValues(pa.schema([]), (how,), (made,)))


def _protobuf_files() -> bytes:
    """A number and a text, and what is written by kernels of its own: a duration, and keys of 64 bits without sign."""
    files = FileDescriptorSet()
    files.file.add().MergeFromString(duration_pb2.DESCRIPTOR.serialized_pb)
    file = files.file.add(name="warm.proto", syntax="proto3", dependency=[duration_pb2.DESCRIPTOR.name])
    message = file.message_type.add(name="Warm")
    for number, (name, kind) in enumerate(
        (("n", FieldDescriptorProto.TYPE_INT32), ("text", FieldDescriptorProto.TYPE_STRING)), start=1
    ):
        message.field.add(name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL)
    took = message.field.add(name="took", number=3, label=FieldDescriptorProto.LABEL_OPTIONAL)
    took.type_name = ".google.protobuf.Duration"
    entry = message.nested_type.add(name="MapEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), start=1):
        entry.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_UINT64, label=took.label)
    message.field.add(name="map", number=4, type_name=".Warm.MapEntry", label=FieldDescriptorProto.LABEL_REPEATED)
    return files.SerializeToString()


_SCHEMA: Final = """{"type": "object", "properties": {
    "i": {"type": "integer"}, "t": {}, "l": {"type": "array", "items": {"type": "number"}},
    "m": {"type": "object", "additionalProperties": {"type": "string"}},
    "o": {"type": "object", "properties": {"b": {"type": "boolean"}}}}}"""
_VALUE: Final = rb'{"i":1,"t":["\n"],"l":[1.5],"m":{"k":"\u00e9"},"o":{"b":true},"x":null}'


def warm_json() -> None:
    """Decode one value in which every kind of node occurs, and encode it again."""
    decoder = json_decoder(_SCHEMA)
    values = pa.array([_VALUE], pa.binary())
    columns = decoder.decode(values).columns
    encoding = decoder.encoding(values)
    if encoding is not None:
        json_encoder(encoding.parameters).encode(columns, np.array([len(_VALUE)], dtype=np.int64))
