"""Documents that follow a schema of json_world.py exactly, as plain Python, and writers that make values of them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from converter.types import VarBytes
from converter.values.json.decoder import json_decoder
from converter.values.proof.encoders import encoder
from tests.property import json_world as world

Writer = Callable[[Any], bytes]
INTEGERS = [0, -1, 9, 10, -10, 2**31, 10**18, 10**18 - 1, 2**63 - 1, -(2**63), -(2**63) + 1]
DECIMALS = [0, -1, 2**64, 10**37, 10**38 - 1, 1 - 10**38]


def _python(document: Any, **options: Any) -> bytes:
    return json.dumps(document, **options).encode()


#: Each with whether it sorts members, and whether it takes integers beyond 64 bits.
WRITERS: dict[str, tuple[Writer, bool, bool]] = {
    "compact": (partial(_python, separators=(",", ":")), False, True),
    "compact utf-8": (partial(_python, separators=(",", ":"), ensure_ascii=False), False, True),
    "default": (_python, False, True),
    "default utf-8": (partial(_python, ensure_ascii=False), False, True),
    "sorted": (partial(_python, sort_keys=True), True, True),
    "compact sorted": (partial(_python, sort_keys=True, separators=(",", ":")), True, True),
    "orjson": (orjson.dumps, False, False),
    "orjson sorted": (partial(orjson.dumps, option=orjson.OPT_SORT_KEYS), True, False),
}


class Documents(world.World):
    """Draws documents of which every form but the writer's is settled."""

    big = True
    others = True
    skip = False

    def exact(self, spec: world.Spec) -> Any:
        """A document of the spec; null at times."""
        kind = spec[0]
        if self.random() < 0.1:
            return None
        if kind == "integer":
            return self.choice(INTEGERS) if self.random() < 0.5 else self.randint(-(2**63), 2**63 - 1)
        if kind == "decimal":
            return self.choice(DECIMALS) if self.big else self.choice(INTEGERS)
        if kind == "datetime":
            return self.moment().isoformat().replace("+00:00", "Z")
        if kind == "list":
            return [self.exact(spec[1]) for _ in range(self.randrange(4))]
        if kind == "map":
            return {self.name(): self.exact(spec[1]) for _ in range(self.randrange(4))}
        if kind == "object":
            return self.exact_object(spec)
        leaf: dict[str, Callable[[], Any]] = {
            "number": self.double,
            "boolean": lambda: self.random() < 0.5,
            "string": self.text,
            "date": lambda: str(self.moment().date()),
            "text": self.plain,
            "flag": dict,
        }
        return leaf[kind]()

    def exact_object(self, spec: world.Spec) -> dict[str, Any]:
        members = {name: self.exact(inner) for name, inner in spec[1].items()}
        if self.skip:
            members = {name: value for name, value in members.items() if value is not None}
        if spec[2] and self.others and self.random() < 0.3:
            members |= {f"new {self.name()}": self.plain() for _ in range(self.randint(1, 3))}
        return members

    def rows(self, spec: world.Spec, count: int) -> list[Any]:
        """Documents for values: an object's own is never null."""
        return [self.exact_object(spec) if spec[0] == "object" else self.exact(spec) for _ in range(count)]

    def double(self) -> float:
        value: float = struct.unpack("<d", self.randbytes(8))[0]
        if not math.isfinite(value) or self.random() < 0.5:
            return self.choice(
                [0.0, -0.0, 1.0, 0.1, 1e15, 1e16, 1e17, 1e21, 1e22, 1e23, 1e-4, 1e-5, 123456.789, 5e-324]
            )
        return value

    def plain(self, depth: int = 0) -> Any:
        kind = self.randrange(8 if depth < 3 else 6)
        if kind < 2:
            return self.choice([None, True, False])
        if kind < 6:
            return [self.choice(INTEGERS), self.double(), self.text(), self.text()][kind - 2]
        if kind == 6:
            return [self.plain(depth + 1) for _ in range(self.randrange(4))]
        return {self.name(): self.plain(depth + 1) for _ in range(self.randrange(4))}


def rewritten(schema: str, values: list[bytes], sample: int = 1000) -> tuple[pa.StructArray, VarBytes]:
    """The columns of values, and what the encoder for values like the first ones makes of them."""
    array = pa.array(values, pa.binary())
    decoder = json_decoder(schema)
    columns = decoder.decode(array).columns
    encoding = decoder.encoding(array[:sample])
    assert encoding is not None
    made = encoder(encoding)
    assert made.type == decoder.type
    assert made.type.equals(decoder.type, check_metadata=True)
    return columns, made.encode(columns, sizes_of(values))


def sizes_of(values: list[bytes]) -> np.ndarray:
    return np.array([len(value) for value in values], dtype=np.int64)


def texts(back: VarBytes) -> list[bytes | None]:
    """The values, None where they are not valid."""
    rows = zip(back.valid, back.offsets[:-1], back.offsets[1:], strict=True)
    return [back.data[first:behind].tobytes() if good else None for good, first, behind in rows]
