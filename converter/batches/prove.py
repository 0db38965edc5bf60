"""Which batches come back, byte for byte, from the columns they became.

Each batch is rebuilt with the very function a fetch uses, from the very arrays that go to Parquet, and compared with
the uncompressed records the broker sent; an uncompressed batch is compared whole, header included.
"""

from __future__ import annotations

import numpy as np

from converter.batches.codecs import NONE
from converter.batches.framing import CODEC_MASK, HEADER_BYTES
from converter.batches.rebuild import SERVED_ATTRIBUTES, put_header, put_records
from converter.batches.records import Extents
from converter.batches.row_arrays import RowArrays, row_arrays
from converter.kernels.kernel import kernel, readonly
from converter.kernels.memory import same
from converter.types import BATCH_DTYPE, BatchTable, BoolArray, Int64Array, RowBuffers, UInt8Array


@kernel
def _prove(
    out: UInt8Array,
    starts: Int64Array,
    raw: UInt8Array,
    plain: UInt8Array,
    batches: BatchTable,
    extents: Extents,
    wanted: BoolArray,
    equal: BoolArray,
    rows: RowArrays,
    deltas: Int64Array,
    row_base: int,
    delta_base: int,
) -> None:
    for i in range(len(batches)):
        if not wanted[i]:
            continue
        batch = batches[i]
        data = plain if extents[i].source == 1 else raw
        row = batch.row_start - row_base
        delta_at = max(batch.timestamps_start - delta_base, 0)
        p = starts[i]
        start = extents[i].start
        size = extents[i].end - start
        end = p + HEADER_BYTES + size
        put_header(out, p, batch, HEADER_BYTES + size, batch.attributes & SERVED_ATTRIBUTES)
        ok = put_records(out, p + HEADER_BYTES, end, batch, row, rows, deltas, delta_at)
        ok = ok and same(out, p + HEADER_BYTES, data, start, size)
        if ok and (batch.attributes & CODEC_MASK) == NONE:
            # The CRC field, bytes 17 to 20, was compared with the bytes it covers already.
            ok = same(out, p, raw, start - HEADER_BYTES, 17) and same(
                out, p + 21, raw, start - HEADER_BYTES + 21, HEADER_BYTES - 21
            )
        equal[i] = ok


def prove(
    raw: UInt8Array,
    plain: UInt8Array,
    batches: BatchTable,
    extents: Extents,
    wanted: BoolArray,
    rows: RowBuffers,
    deltas: Int64Array,
    scratch: UInt8Array,
    starts: Int64Array,
    row_base: int,
    delta_base: int,
) -> BoolArray:
    """True for the wanted batches that are rebuilt equal.

    raw, plain, batches and extents are those of records.measure(). The rows of a batch are `rows` from row_start -
    row_base on, its exact timestamp deltas `deltas` from timestamps_start - delta_base on. `scratch` receives the
    rebuilt batch i, without its CRC, at starts[i] and must be long enough; batches may share a place.
    """
    equal = np.zeros(len(batches), dtype=np.bool_)
    _prove(
        scratch,
        starts,
        raw,
        plain,
        readonly(batches, BATCH_DTYPE),
        extents,
        wanted,
        equal,
        row_arrays(rows),
        readonly(deltas, np.int64),
        row_base,
        delta_base,
    )
    return equal
