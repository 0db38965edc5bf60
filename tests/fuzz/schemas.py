"""Schemas as producers register them: a decoder is made, or one error says why not. Then a few values go through it.

Protobuf's text is compiled by a process of its own; what is fuzzed here is what it compiles to.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from converter.values.avro.decoder import avro_decoder
from converter.values.json.decoder import json_decoder
from converter.values.json.schema.infer import infer_schema
from converter.values.model import Decoder, SchemaTextError
from converter.values.proof.warmup import warm_values
from converter.values.protobuf.decoder import protobuf_decoder
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.fuzz.envelope import packed, unpacked
from tests.fuzz.mutate import TEXTS, bent, bent_json, number, written
from tests.fuzz.outcome import worded
from tests.fuzz.target import MIB, Outcome, Target
from tests.property import json_world
from tests.property.test_values_protobuf_property import SCHEMAS
from tests.support.avro_values import random_schema

_ODD_VALUES = (b"", b"\0", b"\2", b"\1\0", b"{}", b"[]", b"null", b'{"a":1}', b"\xff" * 9, bytes(40), b"\2" * 40)
_AVRO_WORDS = (
    "null", "int", "long", "string", "bytes", "record", "enum", "fixed", "array", "map", "decimal", "uuid", "date",
    "timestamp-micros", "duration", "time-micros", "local-timestamp-millis",
)  # fmt: skip
_JSON_WORDS = (
    "object",
    "array",
    "string",
    "integer",
    "number",
    "boolean",
    "null",
    "date-time",
    "date",
    "#",
    "#/$defs/a",
)


class Schemas(Target):
    """A schema text, or what it was compiled to."""

    memory_bytes_max = 128 * MIB

    def prepare(self) -> None:
        warm_values()  # a first input would compile for longer than one may take
        for seed in range(40):
            self.run(self.make(random.Random(seed), ()))

    def decoder(self, text: bytes) -> Decoder:
        """The product's."""
        raise TypeError(text)

    def run(self, data: bytes) -> Outcome:
        facts, (text,) = unpacked(data)
        try:
            made = self.decoder(text)
        except SchemaTextError as error:
            return Outcome(worded(error))
        values = pa.array([*_ODD_VALUES, bytes.fromhex(facts["value"])], pa.binary())
        found = made.decode(values)
        found.columns.validate(full=True)
        made.encoding(values)
        return Outcome(f"made {str(made.type)[:100]}")


def _text(data: bytes) -> str:
    """As a registry's JSON answer gives it: lone surrogates are possible."""
    return data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace")


def _decoded(data: bytes) -> str:
    try:
        return _text(data)
    except UnicodeDecodeError:
        return data.decode("latin-1")


class AvroSchemas(Schemas):
    """Avro schemas, bent as JSON."""

    name = "schema-avro"

    def decoder(self, text: bytes) -> Decoder:
        return avro_decoder(_decoded(text))

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        document = random_schema(rng, fields=rng.choice((1, 3)))
        if corpus and rng.random() < 0.3:
            with suppress(ValueError, RecursionError):
                document = json.loads(unpacked(rng.choice(corpus))[1][0])
        document = bent_json({"s": document}, rng)
        document = document["s"] if isinstance(document, dict) and "s" in document else document
        text = written(document, rng)
        if rng.random() < 0.3:
            text = text.replace(
                rng.choice(_AVRO_WORDS).encode(), rng.choice((*_AVRO_WORDS, *TEXTS[:6])).encode("utf-8", "replace"), 1
            )
        return packed({"value": rng.randbytes(12).hex()}, [text])


class JsonSchemas(Schemas):
    """JSON schemas, bent as JSON, and inferred ones."""

    name = "schema-json"

    def decoder(self, text: bytes) -> Decoder:
        return json_decoder(_decoded(text))

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        world = json_world.World(rng.getrandbits(64))
        spec = world.spec()
        if rng.random() < 0.2:
            values = [bent(value, rng) if rng.random() < 0.3 else value for value in world.values(spec, 6)]
            return packed({"value": "7b7d"}, [(infer_schema(pa.array(values, pa.binary())) or "{}").encode()])
        document = {"s": json_world.schema_of(spec)}
        if rng.random() < 0.3:
            document["s"] = {
                "$ref": "#/$defs/a",
                "$defs": {"a": document["s"], "b": {"$ref": rng.choice(("#", "#/$defs/b"))}},
            }
        bent_document = bent_json(document, rng)
        inner = bent_document.get("s", bent_document) if isinstance(bent_document, dict) else bent_document
        text = written(inner, rng)
        if rng.random() < 0.3:
            text = text.replace(rng.choice(_JSON_WORDS).encode(), rng.choice(_JSON_WORDS).encode(), 1)
        return packed({"value": written(world.anything(), rng).hex()}, [text])


class ProtobufSchemas(Schemas):
    """Compiled Protobuf schemas, bent as messages: names, numbers, types, labels, nesting."""

    name = "schema-protobuf"

    def decoder(self, text: bytes) -> Decoder:
        return protobuf_decoder(text, "p.M")

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        files = descriptor_pb2.FileDescriptorSet()
        files.CopyFrom(_compiled(rng.choice(sorted(SCHEMAS))))
        for _ in range(rng.choice((1, 1, 3))):
            _bend(files.file[-1], rng)
        data = files.SerializePartialToString()
        return packed({"value": rng.randbytes(20).hex()}, [bent(data, rng) if rng.random() < 0.2 else data])


@cache
def _compiled(name: str) -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet.FromString(protobuf_schema(SCHEMAS[name]))


def _bend(file: Message, rng: random.Random) -> None:
    """Sets one field of one message somewhere below, or takes it away, or doubles an element of a list."""
    places: list[tuple[Message, str]] = []
    waiting: list[Message] = [file]
    while waiting:
        message = waiting.pop()
        for found, value in message.ListFields():
            places.append((message, found.name))
            if found.message_type is not None:
                waiting += list(value) if found.is_repeated else [value]
    message, name = rng.choice(places)
    field: Any = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if field.is_repeated:
        if rng.random() < 0.5 and len(value):
            del value[rng.randrange(len(value))]
        elif len(value):
            value.extend([value[rng.randrange(len(value))]] * rng.choice((1, 1, 50)))
    elif field.message_type is not None or rng.random() < 0.2:
        message.ClearField(name)
    elif isinstance(value, str):
        text = rng.choice(("M", ".p.M", ".p.Leaf", ".p.Other", ".google.protobuf.Any", *TEXTS))
        setattr(message, name, text.encode("utf-8", "replace").decode())
    elif field.enum_type is not None:
        setattr(message, name, rng.choice(field.enum_type.values).number)
    elif isinstance(value, bool):
        setattr(message, name, not value)
    else:
        setattr(message, name, number(rng, 32))
