"""Columns back into Protobuf values, byte for byte as the usual writers write them.

Canonical values have their fields by ascending number, numbers in as few bytes as possible, no scalar at its default
where that means nothing, packed lists where the schema says so, and nothing that the schema does not know. In what
canonical writers differ is part of the encoding (`Habits`). Whether a value is canonical is not asked here: who encodes
compares.

The message type becomes a program (encode_compile.py), the columns flat arrays (encode_flat.py),
and a kernel runs the one over the others (encode_kernel.py). No library that a later release may bring writes
a byte of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from converter.types import Int64Array, VarBytes
from converter.values.model import Encoder, Encoding
from converter.values.protobuf.encode_compile import Habits, NoEncodingError, compile_message
from converter.values.protobuf.encode_flat import flatten
from converter.values.protobuf.encode_kernel import write
from converter.values.protobuf.nodes import make_plan
from converter.values.protobuf.schema import SchemaFiles

_KIND: Final = "protobuf"
_VERSION: Final = 1
_FILES, _MESSAGE, _ENTRIES, _ONEOFS = "files", "message", "map_entries", "oneofs"
_ENTRY_HABITS: Final = {"complete": False, "sparse": True}
_ONEOF_HABITS: Final = {"by_number": False, "at_first": True}


def protobuf_encoder(parameters: Mapping[str, str]) -> Encoder:
    """The encoder of one message type.

    Args:
        parameters: `files`, a serialized FileDescriptorSet in base64; `message`, the full name; `map_entries`,
            `complete` or `sparse`; `oneofs`, `by_number` or `at_first`; see Habits for the two.

    Raises:
        KeyError: a parameter is missing, or has another value.
        ValueError: `files` is no base64.
        SchemaTextError: the set cannot be used or has no such message.
        NoEncodingError: the columns of the message do not say enough.
    """
    habits = Habits(_ENTRY_HABITS[parameters[_ENTRIES]], _ONEOF_HABITS[parameters[_ONEOFS]])
    message = SchemaFiles(base64.b64decode(parameters[_FILES], validate=True)).message(parameters[_MESSAGE])
    return _ProtobufEncoder(message, habits)


def protobuf_encodings(files: bytes, message: Descriptor) -> list[Encoding]:
    """How values of a message type may be written, the likeliest first; none: its columns do not say enough.

    Args:
        files: a serialized FileDescriptorSet.
        message: a message in it.
    """
    root, _ = make_plan(message)
    try:
        compile_message(root, message, Habits())
    except NoEncodingError:
        return []
    fields = _all_fields(message)
    maps = any(field.message_type is not None and field.message_type.GetOptions().map_entry for field in fields)
    entries = list(_ENTRY_HABITS) if maps else ["complete"]
    oneofs = list(_ONEOF_HABITS) if any(_leaves_its_place(field) for field in fields) else ["by_number"]
    text = base64.b64encode(_without_comments(files)).decode()
    fixed = {_FILES: text, _MESSAGE: message.full_name}
    return [
        Encoding(_KIND, _VERSION, {**fixed, _ENTRIES: entry, _ONEOFS: oneof}) for entry in entries for oneof in oneofs
    ]


class _ProtobufEncoder:
    def __init__(self, message: Descriptor, habits: Habits) -> None:
        root, self._type = make_plan(message)
        self._compiled = compile_message(root, message, habits)

    @property
    def type(self) -> pa.StructType:
        """See :class:`converter.values.model.Encoder`."""
        return self._type

    def encode(self, columns: pa.StructArray, sizes: Int64Array) -> VarBytes:
        """See :class:`converter.values.model.Encoder`."""
        wanted = sizes >= 0
        starts = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(np.where(wanted, sizes, 0), out=starts[1:])
        out = np.empty(int(starts[-1]), dtype=np.uint8)
        good = wanted & np.asarray(columns.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        program = self._compiled.program
        stack = np.zeros((program.depth, 2), dtype=np.int64)
        write(program.code, flatten(self._compiled, columns), starts, out, stack, good)
        return VarBytes(starts, out, good)


def _all_fields(message: Descriptor) -> list[FieldDescriptor]:
    """Fields of a message and of those within it, each type once."""
    seen = {message.full_name: message}
    waiting, fields = [message], []
    while waiting:
        for field in waiting.pop().fields:
            fields.append(field)
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen[inner.full_name] = inner
                waiting.append(inner)
    return fields


def _leaves_its_place(field: FieldDescriptor) -> bool:
    """True where writing a oneof's member at the place of the first may change the order of fields."""
    oneof = field.containing_oneof
    if oneof is None or field.number == oneof.fields[0].number:
        return False
    low, high = sorted((int(field.number), int(oneof.fields[0].number)))
    return any(low < other.number < high and other.containing_oneof != oneof for other in oneof.containing_type.fields)


def _without_comments(files: bytes) -> bytes:
    parsed = FileDescriptorSet.FromString(files)
    for file in parsed.file:
        file.ClearField("source_code_info")
    return parsed.SerializeToString(deterministic=True)
