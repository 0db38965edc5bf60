"""`python -m tests.support.warm_kernels`: warms up, and prints as JSON which kernels that leaves to be compiled.

`cold`: kernels that nothing has compiled. `other`: those that values and batches of every kind, decoded, written and
served, compile for arguments of other types. Both are names, sorted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pkgutil import walk_packages
from random import Random
from types import CodeType
from typing import Any

import numpy as np
import pyarrow as pa

import converter
from converter.segment.warmup import warm
from converter.types import ConvertOptions, VarBytes
from converter.values.avro.decoder import avro_decoder
from converter.values.json.decoder import json_decoder
from converter.values.model import Decoder
from converter.values.proof.encoders import encoder
from converter.values.proof.proven import ProvenValues, ValueEncoding
from converter.values.proof.restore import equal_rows, restored, written
from converter.values.proof.warmup import warm_values
from converter.values.protobuf.decoder import protobuf_decoder
from rsm_bridge.values.registry.protobuf_compiler import protobuf_schema
from tests.oracle.protobuf_messages import rewrite
from tests.oracle.records import NONE, ZSTD, Batch, Message, Record, marker
from tests.oracle.stored import copy_segment
from tests.oracle.strategies import make_segment
from tests.support.typed_avro import AVRO, AVRO_WRITTEN
from tests.support.typed_json import JSON
from tests.support.typed_protobuf import NAME, protobuf

_HEADER = b"\0\0\0\0\1"
_FORMS = (ConvertOptions("raw"), ConvertOptions("string"), ConvertOptions("raw", "verbatim"))
Kernels = Mapping[Any, str]


def kernels() -> Kernels:
    """Every compiled function of the converter, with its name."""
    found: dict[Any, str] = {}
    for module in walk_packages(converter.__path__, "converter."):
        for value in vars(import_module(module.name)).values():
            if hasattr(value, "signatures") and hasattr(value, "py_func"):
                found.setdefault(value, f"{value.py_func.__module__}.{value.py_func.__name__}")
    return found


def ready(known: Kernels) -> set[Any]:
    """Kernels that are compiled, or lie within one that is: a cache gives the outermost alone."""
    found: set[Any] = set()
    waiting = [kernel for kernel in known if kernel.signatures]
    while waiting:
        kernel = waiting.pop()
        if kernel not in found:
            found.add(kernel)
            called = _names(kernel.py_func.__code__)
            spaces = kernel.py_func.__globals__
            waiting += [spaces[name] for name in called if name in spaces and _is_one(spaces[name], known)]
    return found


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _is_one(value: Any, known: Kernels) -> bool:
    return hasattr(value, "signatures") and value in known


def every_value() -> None:
    """Values of every type: decoded, proven and restored, and such as are damaged or written by others' habits."""
    rnd = Random(1)
    shop = protobuf(importing=False)
    others = [rewrite(rnd, value, other) for value, other in zip(shop.values, reversed(shop.values), strict=True)]
    _values(protobuf_decoder(protobuf_schema(shop.schema), NAME), [*shop.values, *others])
    for kind in (AVRO, AVRO_WRITTEN):
        _values(avro_decoder(kind.schema), kind.values)
    _values(json_decoder(JSON.schema), JSON.values)


def _values(decoder: Decoder, values: Sequence[bytes]) -> None:
    array = pa.array([*values, *(value[:-1] for value in values), None], pa.binary())
    decoder.decode(array)
    decoder.decode(array.slice(3))
    sample = pa.array(values, pa.binary())
    encoding = decoder.encoding(sample)
    if encoding is None:
        return
    made, columns = encoder(encoding), decoder.decode(sample).columns
    how = ValueEncoding(_HEADER, encoding, decoder.type)
    sizes = np.array([len(_HEADER) + len(value) for value in values], np.int64)
    framed = pa.array([_HEADER + value for value in values], pa.binary())
    equal = equal_rows(framed, _HEADER, written(how, made, columns, sizes))
    stored = VarBytes(np.zeros(len(values) + 1, np.int64), np.empty(0, np.uint8), np.zeros(len(values), np.bool_))
    restored(
        stored, equal.astype(np.int64), np.where(equal, sizes, 0), columns, ProvenValues(pa.schema([]), (how,), (made,))
    )


def every_batch() -> None:
    """Batches of every form: copied, and fetched whole and in parts."""
    some = (Record(0, 0, b"k", b"v", ((b"h", None), (b"\xff", b"\xfc"))), Record(1, 7, None, "ü".encode()))
    plain = Batch(0, some, last_offset_delta=1)
    parts: list[Batch | Message] = [replace(plain, codec=codec) for codec in range(NONE, ZSTD + 2)]
    parts += [replace(plain, variant=variant, codec=codec) for codec in range(NONE, ZSTD + 1) for variant in (1, 2)]
    parts += [
        replace(plain, records=(replace(some[0], padding=1), some[1])),
        replace(plain, base_timestamp=-1, log_append_time=True),
        replace(plain, records=()),
        replace(plain, crc_error=1),
        Message(0, b"k", b"v"),
        replace(plain, transactional=True, producer_id=1),
        marker(0, 1, 0),
        replace(plain, transactional=True, producer_id=2),
        marker(0, 2, 1),
        replace(plain, transactional=True, producer_id=3),
    ]
    segment = make_segment([replace(part, base_offset=2 * place) for place, part in enumerate(parts)])
    for options in _FORMS:
        copied = copy_segment(segment.data, segment.metadata, segment.transactions, options)
        copied.fetch_all()
        for block in copied.blocks():
            for number in range(block.first_batch, block.first_batch + len(block.batches)):
                copied.fetch(block, number, number)


def main() -> None:
    """Prints one line."""
    known = kernels()
    warm()
    warm_values()
    cold = sorted(known[kernel] for kernel in known.keys() - ready(known))
    before = {kernel: len(kernel.signatures) for kernel in known}
    every_batch()
    every_value()
    # Inner kernels get their signatures when an outer one is compiled: one that was not before is enough.
    other = sorted(known[kernel] for kernel in known if len(kernel.signatures) != before[kernel])
    print(json.dumps({"cold": cold, "other": other}))


if __name__ == "__main__":
    main()
