"""Copying and comparing bytes inside kernels.

numba's own loops over bytes test every index for being negative and are not vectorised: 2 ns a byte. The copy is
LLVM's memcpy; the comparison counts with unsigned numbers, which LLVM does vectorise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from converter.kernel import kernel
from converter.types import UInt8Array


@intrinsic
def _memcpy(typing_context: Any, out: Any, to: Any, data: Any, p: Any, size: Any) -> Any:
    """memcpy(&out[to], &data[p], size)."""
    signature = types.void(out, types.int64, data, types.int64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out_type, _, data_type, _, _ = signature.args
        target = context.make_array(out_type)(context, builder, arguments[0]).data
        source = context.make_array(data_type)(context, builder, arguments[2]).data
        cgutils.raw_memcpy(
            builder, builder.gep(target, [arguments[1]]), builder.gep(source, [arguments[3]]), arguments[4], 1
        )
        return context.get_dummy_value()

    return signature, codegen


@kernel
def copy(out: UInt8Array, to: int, data: UInt8Array, p: int, size: int) -> None:
    """Copy bytes. Caller's promise: size is not negative, both ranges lie inside their arrays, and are apart."""
    _memcpy(out, to, data, p, size)


@kernel
def same(a: UInt8Array, at: int, b: UInt8Array, p: int, size: int) -> bool:
    """True if the ranges are equal. Caller's promise: size is not negative, both ranges lie inside their arrays."""
    difference = np.uint8(0)
    left = np.uint64(at)
    right = np.uint64(p)
    for i in range(np.uint64(size)):
        difference |= a[left + i] ^ b[right + i]
    return difference == 0
