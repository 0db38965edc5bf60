"""Kernels that call each other with many arrays.

Each array that one compiled function passes to another costs two atomic counts of references. Per token of a text that
is most of the time: four fifths of a decode. Functions compiled here count none. So they must not create arrays, return
them or keep them: their caller, in Python, owns all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def borrowing(function: Function) -> Function:
    """Compile a function on first call, like `converter.kernel.kernel`, without counting references to arrays."""
    compile_it: Any = numba.njit  # its stubs leave out _nrt
    return cast(Function, compile_it(cache=True, nogil=True, _nrt=False)(function))
