"""Which maps have a key twice. On the wire that is allowed, and the last one counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from converter.kernel import kernel, readonly
from converter.types import BoolArray, Int64Array

_PAIRWISE_MAX = 16


def has_duplicates(offsets: pa.Int32Array, keys: pa.Array) -> BoolArray:
    """Per map, whether a key occurs more than once in it.

    Args:
        offsets: of n maps, n + 1 of them.
        keys: of all maps; bool, any integer or binary, without nulls.
    """
    places = np.asarray(offsets)
    out = np.zeros(max(len(places) - 1, 0), dtype=np.bool_)
    if len(keys):
        _find(readonly(places, np.int64), readonly(_codes(keys), np.int64), out)
    return out


def _codes(keys: pa.Array) -> Int64Array:
    """Numbers that are equal where the keys are."""
    if pa.types.is_binary(keys.type):
        keys = keys.dictionary_encode().indices
    numbers = np.asarray(keys.to_numpy(zero_copy_only=False))
    # Numbers beyond 2**63 become negative ones, each its own.
    return numbers.astype(np.int64)


@kernel
def _find(offsets: Int64Array, codes: Int64Array, out: BoolArray) -> None:
    for i in range(len(out)):
        start, end = offsets[i], offsets[i + 1]
        if end - start > _PAIRWISE_MAX:
            ordered = np.sort(codes[start:end])
            for k in range(1, len(ordered)):
                if ordered[k] == ordered[k - 1]:
                    out[i] = True
                    break
            continue
        for a in range(start + 1, end):
            for b in range(start, a):
                if codes[a] == codes[b]:
                    out[i] = True
