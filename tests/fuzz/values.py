"""Values of the three formats: decoded, compared with other readers, and written again from their columns."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from converter.values.avro.decoder import avro_decoder
from converter.values.json.decoder import json_decoder
from converter.values.model import Decoded, Decoder
from converter.values.proof.encoders import encoder
from converter.values.protobuf.decoder import protobuf_decoder
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.fuzz.envelope import packed, unpacked
from tests.fuzz.mutate import bent
from tests.fuzz.target import MIB, Outcome, Target, WrongError
from tests.oracle.protobuf import (
    UnsureError,
    agree,
    bytes_for_texts,
    expected,
    expected_of_what_is_read,
    message_class,
)
from tests.oracle.protobuf_messages import damage, fill, rewrite
from tests.property import json_world
from tests.property.test_values_avro_property import STRICTER, counts_alone, refused
from tests.property.test_values_protobuf_property import SCHEMAS
from tests.support.avro_values import Encoder, Matcher, random_schema, read_all, rows_of, without_logical

VALUES = 8
_JUDGED_BYTES_MAX = 4096
#: Characters of a message, and of what it says was found, or wanted.
_MESSAGE_MAX = 3000
_SHOWN_MAX = 1000


class Values(Target):
    """Eight values of one schema are one input: so they lie in one array, one beside the other."""

    memory_bytes_max = 128 * MIB

    def decoder(self, schema: str) -> Decoder:
        """Of the schema's text."""
        raise TypeError(schema)

    def compare(self, schema: str, values: list[bytes], found: Decoded) -> None:
        """Raises WrongError where another reader says otherwise."""
        raise TypeError(schema)

    def again(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        """One of the corpus, its values bent."""
        facts, values = unpacked(rng.choice(corpus))
        return packed(facts, [bent(value, rng) if rng.random() < 0.7 else value for value in values])

    def run(self, data: bytes) -> Outcome:
        facts, values = unpacked(data)
        schema = facts["schema"]
        decoder = self.decoder(schema)
        array = pa.array([b"\xff", *values, b"\0"], pa.binary()).slice(1, len(values))
        found = decoder.decode(array)
        found.columns.validate(full=True)
        found.errors.validate(full=True)
        errors = found.errors.to_pylist()
        if found.columns.type != decoder.type or len(found.columns) != len(values):
            raise WrongError("other columns than the decoder's type, or another number of rows")
        if not found.columns.is_null().equals(found.errors.is_valid()):
            raise WrongError("a row has columns and an error, or neither")
        for error in errors:
            if error is not None and (error.startswith("internal") or len(error) > 200):
                raise WrongError(f"{error[:300]!r} is no error of a value")
        written_again(decoder, array, found)
        words = ",".join(sorted({(error or "ok").split("(")[0][:50] for error in errors}))
        return Outcome(words, lambda: self.compare(schema, values, found))


def written_again(decoder: Decoder, array: pa.BinaryArray, found: Decoded) -> None:
    """What the encoder gives for a row decodes to the same columns, and has the value's size."""
    encoding = decoder.encoding(array)
    if encoding is None:
        return
    back = encoder(encoding).encode(found.columns, np.array([len(value.as_py()) for value in array], np.int64))
    valid = np.flatnonzero(np.asarray(back.valid))
    bounds = back.offsets.tolist()
    texts = [back.data[bounds[row] : bounds[row + 1]].tobytes() for row in valid.tolist()]
    for row, text in zip(valid.tolist(), texts, strict=True):
        if not found.columns[row].is_valid:
            raise WrongError("a value that does not decode is written")
        if len(text) != len(array[row].as_py()):
            raise WrongError("a value is written with another size")


class AvroValues(Values):
    """Random schemas, with fastavro as the judge."""

    name = "values-avro"

    def prepare(self) -> None:
        for seed in range(60):
            self.run(self.make(random.Random(seed), ()))

    def decoder(self, schema: str) -> Decoder:
        return _avro(schema)

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        if corpus and rng.random() < 0.3:
            return self.again(rng, corpus)
        schema = random_schema(random.Random(rng.randrange(400)))
        making = Encoder(schema, rng)
        values = [making.value() for _ in range(VALUES)]
        values = [bent(value, rng) if rng.random() < 0.6 else value for value in values]
        return packed({"schema": json.dumps(schema)}, values)

    def compare(self, schema: str, values: list[bytes], found: Decoded) -> None:
        document = json.loads(schema)
        parsed, matcher = fastavro.parse_schema(without_logical(document)), Matcher(document)
        counting = counts_alone(document)
        rows = zip(values, rows_of(found.columns), found.errors.to_pylist(), strict=True)
        for value, column, error in rows:
            if len(value) > _JUDGED_BYTES_MAX:
                continue
            if error is None:
                if not matcher.matches(document, column, read_all(parsed, value)):
                    raise WrongError(f"found {_short(column)}, in {value!r}"[:_MESSAGE_MAX])
            elif not counting and not any(text in error for text in STRICTER) and not refused(parsed, value):
                raise WrongError(f"refused: {error}, in {value!r}"[:_MESSAGE_MAX])


class JsonValues(Values):
    """Random schemas and styles, with the standard library as the judge."""

    name = "values-json"

    def prepare(self) -> None:
        for seed in range(60):
            self.run(self.make(random.Random(seed), ()))

    def decoder(self, schema: str) -> Decoder:
        return _json(json.dumps(json_world.schema_of(_spec(schema))))

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        if corpus and rng.random() < 0.3:
            return self.again(rng, corpus)
        number = rng.randrange(400)
        world = json_world.World(number)
        spec = world.spec()
        world.seed(rng.getrandbits(64))
        values = [bent(value, rng) if rng.random() < 0.5 else value for value in world.values(spec, VALUES)]
        return packed({"schema": str(number)}, values)

    def compare(self, schema: str, values: list[bytes], found: Decoded) -> None:
        spec = _spec(schema)
        for data, row, error in zip(values, found.columns.to_pylist(), found.errors.to_pylist(), strict=True):
            value, problems = json_world.expected(spec, data)
            if problems:
                if row is not None or error is None or error.split(":")[0] not in problems:
                    raise WrongError(f"found {error!r}, wanted {set(problems)}, in {data!r}"[:_MESSAGE_MAX])
                continue
            got = None if row is None else json_world.loaded(spec, row if spec[0] == "object" else row["value"])
            if error is not None or repr(got) != repr(value):
                raise WrongError(difference(got if error is None else error, value, data))


class ProtobufValues(Values):
    """Three schemas with everything in them, with google.protobuf as the judge."""

    name = "values-protobuf"

    def prepare(self) -> None:
        for seed in range(60):
            self.run(self.make(random.Random(seed), ()))

    def decoder(self, schema: str) -> Decoder:
        return _protobuf(schema)[0]

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        if corpus and rng.random() < 0.3:
            return self.again(rng, corpus)
        schema = rng.choice(sorted(SCHEMAS))
        kind = _protobuf(schema)[1]

        def message() -> bytes:
            if rng.random() < 0.9:  # to fill one takes longer than to read eight
                return rng.choice(_messages(schema))
            return bytes(fill(rng, kind()).SerializePartialToString())

        ways: tuple[Callable[[], bytes], ...] = (
            message,
            lambda: damage(rng, message()),
            lambda: bent(message(), rng),
            lambda: bent(message(), rng),
            *([lambda: rewrite(rng, message(), message())] if schema != "proto2" else []),  # knows no groups
        )
        return packed({"schema": schema}, [rng.choice(ways)() for _ in range(VALUES)])

    def compare(self, schema: str, values: list[bytes], found: Decoded) -> None:
        kind = _protobuf(schema)[1]
        rows = zip(values, found.columns.to_pylist(), found.errors.to_pylist(), strict=True)
        for value, column, error in rows:
            try:
                wanted = expected(kind, value)
                if schema == "recursive" and wanted == "undecodable" and error is None:
                    continue  # a message within itself stays bytes, which nobody has to read
                if wanted == "undecodable":
                    wanted = expected_of_what_is_read(kind, _without_texts(schema), value)
            except UnsureError:
                continue
            if not agree(wanted, column if error is None else error.split(":")[0]):
                raise WrongError(difference(column if error is None else error, wanted, value))


def difference(found: Any, wanted: Any, value: bytes) -> str:
    """What to say of a value that is read in another way: of columns those that differ. The value comes last."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = [name for name in {**found, **wanted} if not agree(wanted.get(name), found.get(name))]
        if names:
            found, wanted = ({name: row.get(name) for name in names} for row in (found, wanted))
    return f"found {_short(found)}, wanted {_short(wanted)}, in {value!r}"[:_MESSAGE_MAX]


def _short(content: Any) -> str:
    text = repr(content)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


@lru_cache(500)
def _avro(schema: str) -> Decoder:
    return avro_decoder(schema)


@lru_cache(500)
def _json(schema: str) -> Decoder:
    return json_decoder(schema)


@lru_cache(500)
def _spec(number: str) -> json_world.Spec:
    return json_world.World(int(number)).spec()


@lru_cache(10)
def _messages(schema: str) -> list[bytes]:
    rng, kind = random.Random(schema), _protobuf(schema)[1]
    return [bytes(fill(rng, kind()).SerializePartialToString()) for _ in range(300)]


@lru_cache(10)
def _without_texts(schema: str) -> Any:
    return message_class(bytes_for_texts(protobuf_schema(SCHEMAS[schema])), "p.M")


@lru_cache(10)
def _protobuf(schema: str) -> tuple[Decoder, Any]:
    files = protobuf_schema(SCHEMAS[schema])
    return protobuf_decoder(files, "p.M"), message_class(files, "p.M")
