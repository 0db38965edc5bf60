"""Columns of many values at once, whatever writer schemas they have.

Values are parted by writer schema, each part is decoded by its own decoder and projected to the table's columns, and
all is put back into the order of the rows. A value that has no schema, or none that can be used, or that does not
decode, has null columns and an error; a null value (a tombstone) has null columns and none.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from converter.types import Int64Array
from converter.values.allowance import Allowance
from converter.values.model import (
    CELLS_UNLIMITED,
    Bound,
    CellsExceededError,
    Decoded,
    Decoder,
    ValueProblem,
    error_text,
    misfits,
)
from converter.values.project import project
from converter.values.wire_format import MALFORMED, NOT_FRAMED, message_indexes, unframe


@dataclass(frozen=True, slots=True, order=True)
class Writer:
    """Which schema a value was written with.

    Attributes:
        schema_id: the registry's; -1: the one schema that all values of the topic have.
        message: of a Protobuf schema, the message's path in its file; empty for other kinds.
        version: how its values are read: those that do not fit by one version, by the next.
    """

    schema_id: int = -1
    message: tuple[int, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """How the values of one writer become columns; `otherwise`: those that do not fit its decoder's types."""

    decoder: Decoder
    bound: tuple[Bound, ...]
    otherwise: Route | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Values of one writer: their rows, ascending, and their bytes without wire-format header."""

    writer: Writer
    rows: Int64Array
    values: pa.BinaryArray


@dataclass(frozen=True, slots=True)
class Parted:
    """The values of n rows. `problems`: rows that have no writer, with the error; nulls are in neither."""

    length: int
    parts: tuple[Part, ...]
    problems: tuple[tuple[Int64Array, str], ...] = ()


#: Schema ids that some thousand values may have, and messages of one Protobuf schema.
SCHEMA_IDS_MAX = 100
MESSAGES_MAX = 100

_TOO_MANY = error_text(ValueProblem.UNKNOWN_SCHEMA, f"values have over {SCHEMA_IDS_MAX} ids; rare ones are left")
_TOO_MANY_MESSAGES = error_text(
    ValueProblem.UNKNOWN_SCHEMA, f"values name over {MESSAGES_MAX} messages of one schema; rare ones are left"
)
_NOT_FRAMED = error_text(ValueProblem.NOT_WIRE_FORMAT, "no magic byte 00 with a schema id behind it")
_BAD_INDEXES = error_text(ValueProblem.NOT_WIRE_FORMAT, "the list of message indexes does not parse")


def parted(values: pa.BinaryArray) -> Parted:
    """Values that all have the topic's one schema."""
    rows, present = _where(values, np.asarray(values.is_valid().to_numpy(zero_copy_only=False)))
    return Parted(len(values), (Part(Writer(), rows, present),) if len(rows) else ())


def parted_by_id(values: pa.BinaryArray, protobuf_of: Callable[[Sequence[int]], Container[int]]) -> Parted:
    """Values in the wire format of schema registries; `protobuf_of`: which of some ids name Protobuf schemas.

    Of more than SCHEMA_IDS_MAX ids the most frequent are looked at: random bytes must not flood the registry. Of more
    than MESSAGES_MAX messages of a Protobuf schema, too: each has columns of its own to be made.
    """
    framed = unframe(values)
    parts: list[Part] = []
    problems: list[tuple[Int64Array, str]] = []
    if len(strange := np.flatnonzero(framed.schema_ids == NOT_FRAMED)):
        problems.append((strange, _NOT_FRAMED))
    ids, counts = np.unique(framed.schema_ids[framed.schema_ids >= 0], return_counts=True)
    most = np.argsort(-counts, kind="stable")[:SCHEMA_IDS_MAX]
    if len(ids) > SCHEMA_IDS_MAX:
        rare = (framed.schema_ids >= 0) & ~np.isin(framed.schema_ids, ids[most])
        problems.append((np.flatnonzero(rare), _TOO_MANY))
    wanted: list[int] = np.sort(ids[most]).tolist()
    protobuf = protobuf_of(wanted)
    for schema_id in wanted:
        rows, payloads = _where(framed.payloads, framed.schema_ids == schema_id)
        if schema_id not in protobuf:
            parts.append(Part(Writer(schema_id), rows, payloads))
            continue
        indexes = message_indexes(payloads)
        if len(malformed := rows[indexes.numbers == MALFORMED]):
            problems.append((malformed, _BAD_INDEXES))
        found = np.bincount(indexes.numbers[indexes.numbers >= 0], minlength=len(indexes.paths))
        frequent = np.argsort(-found, kind="stable")[:MESSAGES_MAX]
        if len(found) > MESSAGES_MAX:
            rare = (indexes.numbers >= 0) & ~np.isin(indexes.numbers, frequent)
            problems.append((rows[rare], _TOO_MANY_MESSAGES))
        for number in np.sort(frequent).tolist():
            mine, messages = _where(indexes.payloads, indexes.numbers == number)
            parts.append(Part(Writer(schema_id, indexes.paths[number]), rows[mine], messages))
    return Parted(len(values), tuple(parts), tuple(problems))


def columns_of(
    given: Parted,
    routes: Mapping[Writer, Route | str],
    target: pa.StructType,
    cells_max: int = CELLS_UNLIMITED,
    allowance: Allowance | None = None,
) -> Decoded:
    """The table's columns of all rows, in their order.

    Args:
        given: the values.
        routes: of every writer that occurs; a text is why its values cannot become columns, as `_kafka_error` says it.
        target: the table's value columns; at least one.
        cells_max: that decoders may allocate.
        allowance: of the file the rows go to.

    Raises:
        CellsExceededError: the values take more cells than that; `allowance` is then to be given back.
        KeyError: a writer has no route.
    """
    columns: list[pa.StructArray] = [pa.nulls(1, target)]
    errors: list[pa.StringArray] = [pa.nulls(1, pa.string())]
    place = np.zeros(given.length, dtype=np.int64)  # where in the joined parts a row's result lies; 0: nulls
    size = 1
    cells = 0
    for part in given.parts:
        route = routes[part.writer]
        if isinstance(route, str):
            decoded = _failed(len(part.rows), route, target)
        else:
            decoded = _decoded(part, route, target, cells_max - cells, allowance)
        cells += decoded.cells
        if len(part.rows) == given.length:
            return decoded
        place[part.rows] = np.arange(size, size + len(part.rows))
        size += len(part.rows)
        columns.append(decoded.columns)
        errors.append(decoded.errors)
    for rows, text in given.problems:
        decoded = _failed(1, text, target)
        place[rows] = size
        size += 1
        columns.append(decoded.columns)
        errors.append(decoded.errors)
    order = pa.array(place)
    return Decoded(pa.concat_arrays(columns).take(order), pa.concat_arrays(errors).take(order), cells)


def _decoded(part: Part, route: Route, target: pa.StructType, cells_max: int, allowance: Allowance | None) -> Decoded:
    """An error of ours must neither fail a copy nor hold up the table: it costs these rows their columns."""
    try:
        return _by_route(part.values, route, target, cells_max, allowance)
    except CellsExceededError:
        raise
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return _failed(len(part.rows), error_text(ValueProblem.INTERNAL, text), target)


def _by_route(
    values: pa.BinaryArray, route: Route, target: pa.StructType, cells_max: int, allowance: Allowance | None
) -> Decoded:
    made = route.decoder.decode(values, cells_max, allowance)
    columns, errors, cells = project(made.columns, route.bound, target), made.errors, made.cells
    rows = misfits(errors)
    if route.otherwise is None or not len(rows):
        return Decoded(columns, errors, cells)
    again = _by_route(values.take(pa.array(rows)), route.otherwise, target, cells_max - cells, allowance)
    # What fits nowhere has the error of the first way, whose columns are those that people know.
    fits = np.asarray(again.errors.is_null().to_numpy(zero_copy_only=False))
    order = np.arange(len(values))
    order[rows[fits]] = len(values) + np.flatnonzero(fits)
    indices = pa.array(order)
    joined = pa.concat_arrays([columns, again.columns]).take(indices)
    return Decoded(joined, pa.concat_arrays([errors, again.errors]).take(indices), cells + again.cells)


def _failed(count: int, text: str, target: pa.StructType) -> Decoded:
    return Decoded(pa.nulls(count, target), pa.array([text], pa.string()).take(pa.array(np.zeros(count, np.int64))))


def _where(values: pa.BinaryArray, mask: np.ndarray) -> tuple[Int64Array, pa.BinaryArray]:
    """Rows of the mask, and their values."""
    rows = np.flatnonzero(mask)
    return rows, values if len(rows) == len(values) else values.filter(pa.array(mask))
