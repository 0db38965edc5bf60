"""Random Avro schemas without a record within itself, and their values as the usual writers encode them."""

from __future__ import annotations

import io
import random

import fastavro

from tests.support.avro_values import Encoder, Json, SchemaMaker, zigzag


def random_flat_schema(rng: random.Random, fields: int = 4) -> Json:
    """A record of up to this many fields, of any construct that comes back from columns."""
    return _FlatSchemaMaker(rng).record(fields, 0)


class _FlatSchemaMaker(SchemaMaker):
    def recursive(self, depth: int) -> Json:
        return self.union(depth)


class UsualEncoder(Encoder):
    """Writes random values the way Java's, Python's and librdkafka's writers do."""

    def _blocks(self, schema: Json, kind: str, depth: int) -> bytes:
        count = self.rng.choice([0, 1, 2, 3] if depth > 2 else [0, 1, 3, 16, 70]) if depth < 6 else 0
        items = b"".join(self._item(schema, kind, f".{i}", depth + 1) for i in range(count))
        if len(items) < count:  # items of no bytes: the decoder takes a few
            items, count = b"", 1
        return (zigzag(count) + items if count else b"") + b"\0"

    def _decimal(self, schema: Json) -> bytes:
        limit = 10 ** schema["precision"] - 1
        power = 2 ** self.rng.randrange(limit.bit_length())
        number = self.rng.choice([0, 1, -1, limit, -limit, power, -power, self.rng.randint(-limit, limit)])
        shortest = (number if number >= 0 else ~number).bit_length() // 8 + 1
        data: bytes = number.to_bytes(schema.get("size", shortest), "big", signed=True)
        return data if "size" in schema else zigzag(shortest) + data


def written_by_fastavro(parsed: Json, value: bytes) -> bytes | None:
    """What fastavro writes for what it reads in a value. In a union it may choose another branch of no name.

    None, one in 50: it cannot, where named types lie in a list or map in a union.
    """
    read = fastavro.schemaless_reader(io.BytesIO(value), parsed, None, return_named_type=True)
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, parsed, read)
    except ValueError:
        return None
    return out.getvalue()
