"""Protobuf values into typed columns.

Four steps, each in its own file:

1. The *scan* (scan.py) finds the rows that any decoder understands in the same way.
2. *ptars* decodes those, all at once, by the lowered schema (schema.py), and encodes them again. Rows that
   come back as the same bytes are proven, and rows that come back as others with the same print (fingerprint.py).
3. All other rows, malformed ones among them, are read one by one by google.protobuf (exact_rows.py).
4. Both are *lifted* to the columns' types (lift.py). What is found there to be unclear goes through 3, too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from converter.kernels.kernel import kernel, readonly
from converter.kernels.memory import same
from converter.limits import VALUE_CELLS_MAX
from converter.types import BoolArray, Int64Array, UInt8Array
from converter.values.allowance import Allowance, refused_by
from converter.values.model import (
    CELLS_UNLIMITED,
    CellsExceededError,
    Decoded,
    Decoder,
    Encoder,
    Encoding,
    no_room_in_file,
    too_many_cells,
)
from converter.values.protobuf.encoder import protobuf_encoder, protobuf_encodings
from converter.values.protobuf.exact_rows import MALFORMED, RowReader
from converter.values.protobuf.fingerprint import prints
from converter.values.protobuf.lift import Findings, lift
from converter.values.protobuf.nodes import make_plan
from converter.values.protobuf.scan import OVER, QUICK, most_cells, scan
from converter.values.protobuf.scan_table import row_cells, scan_table
from converter.values.protobuf.schema import SchemaFiles, lower
from converter.values.schema_size import check_levels

#: Cells of one row's lists and maps. Two bytes of an empty message in a list are a row of its columns.
CELLS_MAX: Final = VALUE_CELLS_MAX
#: Rows between two pieces below which putting together is done row by row.
_PIECE_ROWS: Final = 32


def protobuf_decoder(files: bytes | SchemaFiles, message: str | tuple[int, ...]) -> Decoder:
    """A decoder for one message type.

    Args:
        files: a serialized FileDescriptorSet, each file after those it imports; the last one is the schema itself. Or
            what was read of it.
        message: the full name, or the index path of the wire format within the schema's file.

    Raises:
        SchemaTextError: the set cannot be used, has no such message, or the message would have too many columns.
    """
    return _ProtobufDecoder(SchemaFiles(files) if isinstance(files, bytes) else files, message)


class _ProtobufDecoder:
    def __init__(self, files: SchemaFiles, message: str | tuple[int, ...]) -> None:
        self._files = files.data
        self._message = files.message(message)
        self._root, self._type = make_plan(self._message)
        check_levels(self._type)
        lowered = lower(self._root)
        self._handler = lowered.handler
        self._table = scan_table(self._root)
        self._reader = RowReader(self._root, lowered.message)
        self._row_cells = row_cells(self._root)

    @property
    def type(self) -> pa.StructType:
        """The columns, with their field numbers as metadata."""
        return self._type

    def decode(
        self, values: pa.BinaryArray, cells_max: int = CELLS_UNLIMITED, allowance: Allowance | None = None
    ) -> Decoded:
        """See :class:`converter.values.model.Decoder`."""
        findings = Findings()
        offsets, data = _parts(values)
        statuses, taken = scan(self._table, offsets, data, cells_max=CELLS_MAX)
        refused = refused_by(allowance, taken, np.diff(offsets))
        cells = len(values) * self._row_cells + int(taken[~refused].sum())
        if cells > cells_max:
            raise CellsExceededError(cells)
        slow, rows = self._quick(values, offsets, data, (statuses != QUICK) | refused)
        quick = None if slow.all() else lift(self._root, rows, findings)
        slow[list(findings.unclear)] = True
        numbers = np.flatnonzero(slow)
        errors = {row: error for row, error in findings.errors.items() if not slow[row]}
        inner, steps = most_cells(self._table, offsets, data, numbers, cells_max=CELLS_MAX)
        most = inner + self._row_cells
        refused = refused[numbers]
        fits = (most <= CELLS_MAX) & ~refused
        refused[fits] = refused_by(allowance, inner[fits], np.diff(offsets)[numbers[fits]], steps[fits])
        cells += int(most[fits & ~refused].sum())
        if cells > cells_max:
            raise CellsExceededError(cells)
        lost = {k: too_many_cells(slow=statuses[numbers[k]] != OVER) for k in np.flatnonzero(~fits).tolist()}
        lost |= dict.fromkeys(np.flatnonzero(refused).tolist(), no_room_in_file())
        slowly = self._slow(values, numbers, errors, lost)
        columns = slowly if quick is None else _join(quick, slowly, numbers, errors)
        return Decoded(self._with_nulls(columns, errors), _error_array(len(values), errors), cells)

    def encoding(self, sample: pa.BinaryArray) -> Encoding | None:
        """See :class:`converter.values.model.Decoder`."""
        found = protobuf_encodings(self._files, self._message)
        if len(found) < 2:
            return found[0] if found else None
        columns = self.decode(sample).columns
        offsets, data = _parts(sample)
        return max(
            found, key=lambda encoding: _same_rows(protobuf_encoder(encoding.parameters), columns, offsets, data)
        )

    def _quick(
        self, values: pa.BinaryArray, offsets: Int64Array, data: UInt8Array, slow: BoolArray
    ) -> tuple[BoolArray, pa.StructArray]:
        """Which rows are not proven, and all rows in the lowered type; rows not proven hold anything.

        `offsets`, `data`: of the values; `slow`: rows that the scan leaves to the slow path.
        """
        if not self._root.fields or slow.all():
            return slow, pa.Array.from_buffers(pa.struct([]), len(values), [None])
        try:
            batch = self._handler.array_to_record_batch(_without(values, slow))
            back_offsets, back = _parts(self._handler.record_batch_to_array(batch))
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException:  # noqa: BLE001  (its panics are no Exceptions)
            return np.ones(len(values), dtype=np.bool_), None
        if len(back_offsets) != len(offsets):
            return np.ones(len(values), dtype=np.bool_), None
        other = np.zeros(len(values), dtype=np.bool_)
        _differ(offsets, data, back_offsets, back, slow, other)
        if other.any():
            before = prints(self._table, offsets, data, other)
            slow |= before != prints(self._table, back_offsets, back, other)
        return slow, batch.to_struct_array()

    def _slow(
        self, values: pa.BinaryArray, numbers: Int64Array, errors: dict[int, str], lost: dict[int, str]
    ) -> pa.StructArray:
        """Columns of some rows, one after another; adds what is wrong with them to `errors`.

        Those that are `lost`, by their place among these rows, are not even read.
        """
        mask = np.zeros(len(numbers), dtype=np.bool_)
        mask[list(lost)] = True
        rows, problems = self._reader.read(values.take(pa.array(numbers, mask=mask)).to_pylist())
        findings = Findings()
        columns = lift(self._root, rows, findings)
        found = {k: error for k, error in enumerate(problems) if error is not None} | lost
        found |= {k: findings.errors.get(k, MALFORMED) for k in {*findings.errors, *findings.unclear} - found.keys()}
        errors.update((int(numbers[k]), error) for k, error in found.items())
        return columns

    def _with_nulls(self, columns: pa.StructArray, errors: dict[int, str]) -> pa.StructArray:
        children = [columns.field(i) for i in range(self._type.num_fields)]
        mask = None
        if errors:
            dead = np.zeros(len(columns), dtype=np.bool_)
            dead[list(errors)] = True
            mask = pa.array(dead)
        return pa.StructArray.from_arrays(children, fields=list(self._type), mask=mask)


def _same_rows(encoder: Encoder, columns: pa.StructArray, offsets: Int64Array, data: UInt8Array) -> int:
    """How many rows come back as the same bytes."""
    back = encoder.encode(columns, np.diff(offsets))
    other = np.zeros(len(columns), dtype=np.bool_)
    _differ(offsets, data, readonly(back.offsets, np.int64), readonly(back.data, np.uint8), ~back.valid, other)
    return int(np.count_nonzero(back.valid & ~other))


def _join(quick: pa.StructArray, slowly: pa.StructArray, numbers: Int64Array, errors: dict[int, str]) -> pa.StructArray:
    """The quick rows, with slow ones in their places; what is there of rows with errors does not matter."""
    places = [k for k, number in enumerate(numbers.tolist()) if number not in errors]
    if not places:
        return quick
    if len(places) * _PIECE_ROWS > len(quick):
        take = np.arange(len(quick))
        take[numbers] = len(quick) + np.arange(len(numbers))
        return pa.concat_arrays([quick, slowly]).take(pa.array(take))
    pieces, done = [], 0
    for k in places:
        number = int(numbers[k])
        pieces += [quick.slice(done, number - done), slowly.slice(k, 1)]
        done = number + 1
    return pa.concat_arrays([*pieces, quick.slice(done)])


def _parts(values: pa.BinaryArray) -> tuple[Int64Array, UInt8Array]:
    _, places, content = values.buffers()
    offsets = np.zeros(1, dtype=np.int32)
    if len(values):
        offsets = np.frombuffer(places, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.empty(0, dtype=np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    return readonly(offsets.astype(np.int64), np.int64), readonly(data, np.uint8)


def _without(values: pa.BinaryArray, slow: BoolArray) -> pa.BinaryArray:
    """The same array with some rows null; nothing is copied."""
    if not slow.any():
        return values
    _, offsets, data = values.buffers()
    valid = np.concatenate([np.zeros(values.offset, dtype=np.bool_), ~slow])
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(values), [bits, offsets, data], offset=values.offset)


@kernel
def _differ(
    offsets: Int64Array, data: UInt8Array, back_offsets: Int64Array, back: UInt8Array, slow: BoolArray, out: BoolArray
) -> None:
    """Caller's promise: both offsets lie inside their data and are of equally many rows."""
    for i in range(len(out)):
        size = offsets[i + 1] - offsets[i]
        if not slow[i]:
            out[i] = size != back_offsets[i + 1] - back_offsets[i] or not same(
                data, offsets[i], back, back_offsets[i], size
            )


def _error_array(rows: int, errors: dict[int, str]) -> pa.StringArray:
    if not errors:
        return pa.nulls(rows, pa.string())
    texts = {text: number for number, text in enumerate(dict.fromkeys(errors.values()))}
    numbers = np.full(rows, -1)
    numbers[list(errors)] = [texts[text] for text in errors.values()]
    return pa.array(list(texts), pa.string()).take(pa.array(numbers, mask=numbers < 0))
