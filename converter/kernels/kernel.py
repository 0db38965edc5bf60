"""How hot loops are compiled: numba, cached on disk, without the GIL.

Kernels have no bounds checks. Each one says what its caller must have checked; inside, a length is tested as
`length > end - position`, because `position + length` may wrap.

numba compiles a kernel again for every new combination of argument types, and a read-only array is a type of its own.
Arrays that come from outside therefore go through :func:`readonly`, so that a fetch never waits for a compiler.

Kernels that call each other with many arrays.

Each array that one compiled function passes to another costs two atomic counts of references. Per token of a text that
is most of the time: four fifths of a decode; the compiler cannot leave the counting away in an interpreter with many
arrays, callers and ways out. Functions compiled by :func:`borrowing` count none. So they must not create arrays, return
them or keep them: their caller, in Python, owns all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])

#: One element of a record array, its fields read and set as attributes.
Row = Any

#: Machine integers inside kernels. To a type checker they are ints, which is how kernels calculate with them.
MachineInt = Callable[[Any], int]
i8: MachineInt = cast(MachineInt, np.int8)
i32: MachineInt = cast(MachineInt, np.int32)
i64: MachineInt = cast(MachineInt, np.int64)
u8: MachineInt = cast(MachineInt, np.uint8)
u32: MachineInt = cast(MachineInt, np.uint32)
u64: MachineInt = cast(MachineInt, np.uint64)


def kernel(function: Function) -> Function:
    """Compile a function on first call for the argument types it is called with."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def borrowing(function: Function) -> Function:
    """Compile a function, even a compiled one, like :func:`kernel`, but without counting references to arrays."""
    compile_it: Any = numba.njit  # its stubs leave out _nrt
    return cast(Function, compile_it(cache=True, nogil=True, _nrt=False)(getattr(function, "py_func", function)))


def readonly(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A read-only, aligned, contiguous view of `array` with this dtype; copies only where the array is not that.

    Packed record dtypes are never aligned and are taken as they are.
    """
    wanted = np.dtype(dtype)
    if wanted.names:
        view = np.require(array, dtype=wanted, requirements=["C"]).view()
    else:
        view = np.require(array, dtype=wanted, requirements=["C", "A"]).view()
    view.setflags(write=False)
    return view
