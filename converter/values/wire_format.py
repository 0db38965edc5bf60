"""The wire format of schema registries: a magic byte, a schema id, and for Protobuf which message of the schema it is.

    00 | schema id, 4 bytes, big-endian | payload                                      Avro, JSON Schema
    00 | schema id, 4 bytes, big-endian | message indexes | payload                    Protobuf

The message indexes are zigzag varints: how many, then the number of the message within its file, of the message nested
in that one, and so on. No indexes at all (the one byte 00) stand for [0], the first message of the file.

Records carry any bytes, so nothing here raises for what they contain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from converter.kernels.kernel import i64, kernel, readonly
from converter.kernels.memory import copy
from converter.kernels.varint import BAD, read_int
from converter.types import BoolArray, Int64Array, UInt8Array

HEADER_BYTES = 5
#: Schema id of a value that has no header, and of a null.
NOT_FRAMED = -1
NULL = -2
#: Path number of a payload whose message indexes cannot be read.
MALFORMED = -1
MESSAGE_INDEXES_MAX = 64


@dataclass(frozen=True, slots=True)
class Framed:
    """What n values are in the wire format.

    Attributes:
        schema_ids: per value its schema id, in [0, 2**32); NOT_FRAMED or NULL where there is none.
        payloads: what follows the header; null where there is no schema id.
    """

    schema_ids: Int64Array
    payloads: pa.BinaryArray


@dataclass(frozen=True, slots=True)
class MessageIndexes:
    """Which message each of n Protobuf payloads is.

    Attributes:
        paths: the paths that occur, each once; a path is never empty.
        numbers: per payload the number of its path; MALFORMED or NULL where there is none.
        payloads: what follows the indexes; null where there is no path.
    """

    paths: tuple[tuple[int, ...], ...]
    numbers: Int64Array
    payloads: pa.BinaryArray


def unframe(values: pa.BinaryArray) -> Framed:
    """Parts values from their headers. A value is framed if its first byte is 00 and four more bytes follow."""
    offsets, data, valid = _parts(values)
    ids = np.empty(len(values), dtype=np.int64)
    _read_ids(offsets, data, valid, ids)
    return Framed(ids, _tails(offsets, data, np.full(len(values), HEADER_BYTES, dtype=np.int64), ids >= 0))


def looks_framed(values: pa.BinaryArray) -> BoolArray:
    """True where a value may be in the wire format: framed, with an id in [1, 2**31), which is what registries give.

    Cheap, and a guess: an 8-byte big-endian number may look like this, too. Nulls do not.
    """
    offsets, data, valid = _parts(values)
    ids = np.empty(len(values), dtype=np.int64)
    _read_ids(offsets, data, valid, ids)
    return (ids >= 1) & (ids < 2**31)


def message_indexes(payloads: pa.BinaryArray) -> MessageIndexes:
    """Parts Protobuf payloads (see :func:`unframe`) from their message indexes.

    A list that does not end, has more than MESSAGE_INDEXES_MAX indexes, or a negative count or index is malformed.
    """
    offsets, data, valid = _parts(payloads)
    sizes = np.empty(len(payloads), dtype=np.int64)
    counts = np.zeros(len(payloads), dtype=np.int64)
    _measure_indexes(offsets, data, valid, sizes, counts)
    starts = np.zeros(len(payloads) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    flat = np.zeros(int(starts[-1]), dtype=np.int32)
    _read_indexes(offsets, data, sizes, starts, flat)
    # Paths as byte strings, so that Arrow's dictionary finds the distinct ones, however many there are.
    distinct = _binary(starts * 4, flat.view(np.uint8), sizes >= 0).dictionary_encode()
    numbers = np.asarray(distinct.indices.fill_null(MALFORMED), dtype=np.int64)
    numbers[~valid] = NULL
    paths = tuple(tuple(np.frombuffer(path, dtype=np.int32).tolist()) for path in distinct.dictionary.to_pylist())
    return MessageIndexes(paths, numbers, _tails(offsets, data, sizes, sizes >= 0))


@kernel
def _read_ids(offsets: Int64Array, data: UInt8Array, valid: BoolArray, out: Int64Array) -> None:
    for i in range(len(out)):
        p = offsets[i]
        if not valid[i]:
            out[i] = NULL
        elif offsets[i + 1] - p < HEADER_BYTES or data[p] != 0:
            out[i] = NOT_FRAMED
        else:
            out[i] = (i64(data[p + 1]) << 24) | (i64(data[p + 2]) << 16) | (i64(data[p + 3]) << 8) | i64(data[p + 4])


@kernel
def _measure_indexes(
    offsets: Int64Array, data: UInt8Array, valid: BoolArray, sizes: Int64Array, counts: Int64Array
) -> None:
    """Bytes of each list, -1 where it is malformed or null, and how many indexes it stands for."""
    for i in range(len(sizes)):
        sizes[i] = -1
        if not valid[i]:
            continue
        end = offsets[i + 1]
        count, p = read_int(data, offsets[i], end)
        if p == BAD or count < 0 or count > MESSAGE_INDEXES_MAX:
            continue
        for _ in range(count):
            index, p = read_int(data, p, end)
            if p == BAD or index < 0:
                p = BAD
                break
        if p != BAD:
            sizes[i] = p - offsets[i]
            counts[i] = max(count, 1)


@kernel
def _read_indexes(
    offsets: Int64Array, data: UInt8Array, sizes: Int64Array, starts: Int64Array, out: npt.NDArray[np.int32]
) -> None:
    """Caller's promise: sizes and starts are what _measure_indexes gave, and out is all zeros."""
    for i in range(len(sizes)):
        if sizes[i] >= 0:
            end = offsets[i] + sizes[i]
            count, p = read_int(data, offsets[i], end)
            for k in range(count):
                out[starts[i] + k], p = read_int(data, p, end)


@kernel
def _copy_tails(
    offsets: Int64Array, data: UInt8Array, skip: Int64Array, keep: BoolArray, to: Int64Array, out: UInt8Array
) -> None:
    for i in range(len(skip)):
        if keep[i]:
            copy(out, to[i], data, offsets[i] + skip[i], to[i + 1] - to[i])


def _tails(offsets: Int64Array, data: UInt8Array, skip: Int64Array, keep: BoolArray) -> pa.BinaryArray:
    to = np.zeros(len(skip) + 1, dtype=np.int64)
    np.cumsum(np.where(keep, np.diff(offsets) - skip, 0), out=to[1:])
    out = np.empty(int(to[-1]), dtype=np.uint8)
    _copy_tails(offsets, data, skip, keep, to, out)
    return _binary(to, out, keep)


def _parts(values: pa.BinaryArray) -> tuple[Int64Array, UInt8Array, BoolArray]:
    """Offsets (n + 1), data and validity of a column that may be a slice."""
    _, places, content = values.buffers()
    # An empty array may come without any offsets.
    offsets = (
        np.zeros(1, dtype=np.int32) if len(values) == 0 else np.frombuffer(places, dtype=np.int32)[values.offset :]
    )
    offsets = offsets[: len(values) + 1]
    data = np.empty(0, dtype=np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return readonly(offsets, np.int64), readonly(data, np.uint8), readonly(valid, np.bool_)


def _binary(offsets: Int64Array, data: UInt8Array, valid: BoolArray) -> pa.BinaryArray:
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(valid), buffers)
